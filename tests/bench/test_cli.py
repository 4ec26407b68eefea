"""The command: what it prints, leaves behind and ends with."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.bench.fakes import benchmark, grid, model, record
from tests.models.chat_server import Script, say, send, slow
from typer.testing import Result

import memagent
from memagent.cli.exits import Outcome
from memagent.cli.options import Display
from memagent_bench.cli.measure import Going
from memagent_bench.cli.results import show_means
from memagent_bench.records import RESULTS, RecordFile, read_records
from memagent_bench.suites import ABOUT, tasks_of
from memagent_bench.systems.base import Status

ROOT = Path(__file__).parents[2]
Invoke = Callable[..., Result]
Start = Callable[..., "subprocess.Popen[str]"]
SMALL = ("--tasks", "chain", "--lengths", "1500", "-n", "2")
WITH_BYTES = ("--window", "4096", "--tokenizer", "bytes")


@pytest.fixture
def served(server: Script) -> tuple[str, ...]:
    return ("--model", "openai:x", "--base-url", server.url, *WITH_BYTES)


@pytest.fixture
def quick(tmp_path: Path) -> tuple[str | Path, ...]:
    """Two samples whose filler is quickly read: processes of their own have nothing cached."""
    essays = tmp_path / "essays.txt"
    lines = (
        f"The clerk of year {n} counted the harvest at noon, and went home." for n in range(400)
    )
    essays.write_text("\n\n".join(lines))
    return (*SMALL, "--essays", essays)


def only_json(output: str) -> Any:
    assert output.count("\n") == 1
    return json.loads(output)


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a command and does not wait for it."""
    running: list[subprocess.Popen[str]] = []

    def run(*args: str | Path) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "memagent_bench", *map(str, args)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": f"{ROOT / 'benchmarks'}:{ROOT / 'src'}"},
        )
        running.append(process)
        return process

    yield run
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


# --- from end to end


def test_a_process_measures_and_then_has_nothing_to_do(
    start: Start, invoke: Invoke, tmp_path: Path, quick: tuple[str | Path, ...]
) -> None:
    out = tmp_path / "my out"
    args = ("tracking", "--model", "extractive", *quick, "--systems", "memory,direct,bm25")
    process = start(*args, "--out", out)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (0, "")
    lines = stdout.splitlines()
    assert [line.split()[0] for line in lines[:6]] == [f"{n}/6" for n in range(1, 7)]
    assert lines[6].split() == ["1500"]
    assert [line.split()[0] for line in lines[7:10]] == ["bm25", "direct", "memory"]
    assert all(line.endswith("(n=2)") for line in lines[7:10])
    assert lines[10] == f"records in {out}"
    records = read_records(out)
    assert {record.status for record in records} == {Status.ANSWERED}
    assert len(records) == 6
    before = (out / RESULTS).read_bytes()
    assert invoke(*args, "--out", out).stdout.splitlines() == lines[6:]
    assert (out / RESULTS).read_bytes() == before


def test_samples_are_measured_from_one_on(
    invoke: Invoke, tmp_path: Path, quick: tuple[str | Path, ...]
) -> None:
    args = ("tracking", "--model", "extractive", *quick)
    assert invoke(*args, "--out", tmp_path / "whole", "-n", "3").exit_code == 0
    for share in (("--first", "2", "-n", "1"), ("-n", "2")):
        done = invoke(*args, "--out", tmp_path / "shares", *share)
        assert done.exit_code == 0, done.output
        assert f"(n={3 if '--first' not in share else 1})" in done.output
    whole, shares = (
        {record.index: record.outputs for record in read_records(tmp_path / name)}
        for name in ("whole", "shares")
    )
    assert sorted(whole) == [0, 1, 2]
    assert shares == whole


def test_every_task_of_the_notes_is_measured_and_shown(invoke: Invoke, tmp_path: Path) -> None:
    sizes = ("--lengths", "300", "-n", "1")
    args = ("notes", "--model", "extractive", "--systems", "extractive", *sizes)
    done = invoke(*args, "--out", tmp_path)
    assert done.exit_code == 0, done.output
    records = read_records(tmp_path)
    assert {record.task for record in records} == set(tasks_of("notes"))
    assert {record.status for record in records} == {Status.ANSWERED}
    assert all(record.evidence for record in records)
    generate = ("generate", "notes", "--task", "hop", "--length", "300")
    assert invoke(*generate, "--out", tmp_path / "hop.jsonl").exit_code == 0


def test_displays(invoke: Invoke, tmp_path: Path) -> None:
    args = ("tracking", "--model", "extractive", *SMALL, "--out", tmp_path / "out")
    said = only_json(invoke(*args, "--display", "json").stdout)
    assert said["means"] == [
        {
            "system": "memory",
            "length": 1500,
            "score": said["means"][0]["score"],
            "n": 2,
            "missing": 0,
            "tasks": 1,
            "tasks_asked": 1,
        }
    ]
    assert [(task["task"], task["n"]) for task in said["tasks"]] == [("chain", 2)]
    assert (said["missing"], said["impossible"], said["limit"]) == ([], [], None)
    (line,) = invoke(*args, "--display", "none").stdout.splitlines()
    assert line.split("\t") == ["memory", "1500", str(said["means"][0]["score"]), "2", "0"]


def test_a_dry_run_calls_nobody_and_leaves_nothing(
    invoke: Invoke, tmp_path: Path, server: Script, served: tuple[str, ...]
) -> None:
    out = tmp_path / "out"
    args = ("tracking", *served, *SMALL, "--systems", "memory,direct", "--out", out, "--dry-run")
    done = invoke(*args)
    assert done.exit_code == 0, done.output
    assert "tracking, direct at 1500" in done.stdout
    assert "2 records, 2 calls" in done.stdout
    assert server.bodies == []
    assert not out.exists()
    said = only_json(invoke(*args, "--display", "json").stdout)["forecast"]
    by_system = {share["system"]: share for share in said["shares"]}
    assert list(by_system) == ["memory", "direct"], "as they were named"
    assert by_system["direct"]["calls"] == 2
    assert said["calls"] == sum(share["calls"] for share in said["shares"])


def test_what_was_forecast_is_what_it_takes(invoke: Invoke, tmp_path: Path) -> None:
    args = ("tracking", "--model", "extractive", "--tasks", "ledger,tally", "--lengths", "2k,4k")
    args = (
        *args,
        "-n",
        "2",
        "--systems",
        "memory,direct,map-reduce,bm25,regex-model",
    )
    args = (*args, "--out", tmp_path / "out", "--display", "json")
    forecast = only_json(invoke(*args, "--dry-run").stdout)["forecast"]
    done = invoke(*args)
    assert done.exit_code == 0
    for share in forecast["shares"]:
        records = [
            r
            for r in read_records(tmp_path / "out")
            if (r.system, r.length) == (share["system"], share["length"])
        ]
        assert len(records) == share["records"]
        calls = sum(record.usage.calls for record in records)
        # Lengths are in GPT-2's tokens and windows in bytes here: a chunk more or less for each sample.
        assert abs(calls - share["calls"]) <= share["records"]
        assert sum(r.usage.prompt_tokens for r in records) <= share["prompt_tokens"] * 1.2


# --- what goes wrong


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--tasks", "leger"), "there is no task 'leger'; did you mean 'ledger'?"),
        (("--systems", "memry"), "there is no system 'memry'; did you mean 'memory'?"),
        (("--systems", ","), "names no system"),
        (("--lengths", "8q"), "'8q' is not a length"),
        (("--max-cost", "3"), "needs prices"),
        (("--top-p", "0"), "top_p"),
        (("--prompts", "none.toml"), "no prompt set 'none.toml'"),
        (("--essays", "none.txt"), "none.txt"),
        (("--length-tokenizer", "none"), "no tokenizer 'none'"),
        (("--model", "extractiv"), "did you mean 'extractive'?"),
        (("--systems", "no.module:make"), "cannot be made: ModuleNotFoundError"),
        (("--temperature", "inf"), "temperature must be a finite number, got inf"),
        (("-n", "1000000000"), "less than or equal to 10000"),
    ],
)
def test_wrong_options_are_named(
    invoke: Invoke, tmp_path: Path, args: tuple[str, ...], said: str
) -> None:
    done = invoke("tracking", "--model", "extractive", *SMALL, "--out", tmp_path / "o", *args)
    assert done.exit_code == 2
    assert said in done.stderr
    assert "This is a bug" not in done.stderr
    assert "pydantic" not in done.stderr


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_another_setting_in_the_same_folder_is_refused(
    invoke: Invoke, tmp_path: Path, more: tuple[str, ...]
) -> None:
    args = ("tracking", "--model", "extractive", *SMALL, "--out", tmp_path / "out")
    assert invoke(*args).exit_code == 0
    done = invoke(*args, "--seed", "7", "--window", "4096", *more)
    assert done.exit_code == 5
    assert "seed was 42, is 7; window was 8192, is 4096" in done.stderr
    assert "resume with" not in done.stderr


def test_failures_are_listed_and_the_next_run_tries_them_again(
    invoke: Invoke, tmp_path: Path, server: Script, served: tuple[str, ...]
) -> None:
    server.default = send(400, {"error": {"message": "not this one"}})
    args = ("tracking", *served, *SMALL, "--out", tmp_path / "out")
    done = invoke(*args)
    assert done.exit_code == 6
    assert "0.000 (n=2, 2 missing)" in done.stdout
    assert "without an answer: 2 records" in done.stderr
    assert "2 x memory, failed: RequestRefused" in done.stderr
    server.default = say("17")
    done = invoke(*args)
    assert done.exit_code == 0
    assert "missing" not in done.stdout


def test_a_wrong_key_ends_it_at_once(
    invoke: Invoke, tmp_path: Path, server: Script, served: tuple[str, ...]
) -> None:
    server.default = send(401, {"error": {"message": "bad key"}})
    args = ("tracking", *served, "--tasks", "chain", "--lengths", "1500", "-n", "50")
    done = invoke(*args, "--out", tmp_path / "out", "--display", "json")
    assert done.exit_code == 4
    assert json.loads(done.stdout)["error"]["type"] == "AuthenticationFailed"
    assert "resume with: memagent-bench" in done.stderr
    assert read_records(tmp_path / "out") == []
    assert len(server.bodies) <= 16


def test_the_command_that_resumes_tells_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    urls = "http://me:s3cret@one/v1,https://you@two/v1"
    given = ["qa", "--base-url", urls, "--header", "X-Key: s3cret", "--header=A: s3cret"]
    monkeypatch.setattr(sys, "argv", ["memagent-bench", *given])
    shown = Going(Display.PLAIN, begun=True).resume_command(None)
    hidden = "http://…@one/v1,https://…@two/v1 --header 'X-Key: …' '--header=A: …'"
    assert shown == f"memagent-bench qa --base-url {hidden}"


def test_a_limit_says_how_to_go_on(invoke: Invoke, tmp_path: Path) -> None:
    # One sample: of two, the second may or may not have begun.
    one = ("--tasks", "chain", "--lengths", "3000", "-n", "1")
    args = ("tracking", "--model", "extractive", *one, "--out", tmp_path / "out")
    done = invoke(*args, "--max-calls", "1")
    assert done.exit_code == 6
    assert "stopped: the limit calls=1 is reached (1 spent); 1 sample in progress" in done.stderr
    assert "resume with a higher limit: memagent-bench" in done.stderr
    assert invoke(*args, "--max-calls", "1").exit_code == 6
    assert invoke(*args).exit_code == 0
    assert len(read_records(tmp_path / "out")) == 1


def test_samples_that_cannot_be_made(invoke: Invoke, tmp_path: Path) -> None:
    args = (
        "tracking",
        "--model",
        "extractive",
        "--tasks",
        "chain",
        "--lengths",
        "50,1500",
        "-n",
        "1",
    )
    done = invoke(*args, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "chain at 50 cannot be made: " in done.stderr
    assert "not measured in full: chain at 50" in done.stderr
    assert len(read_records(tmp_path / "out")) == 1


def test_a_mean_over_some_of_the_tasks_says_so(invoke: Invoke, tmp_path: Path) -> None:
    args = ("ruler", "--model", "extractive", "--systems", "bm25", "--lengths", "4k", "-n", "1")
    args = (*args, "--tasks", "vt,cwe,qa_1", "--out", tmp_path / "out")
    done = invoke(*args)
    assert done.exit_code == 2
    assert "not measured in full: qa_1 at 4K" in done.stderr
    assert "(n=2, 2 of 3 tasks)" in done.stdout
    (mean,) = only_json(invoke(*args, "--display", "json").stdout)["means"]
    assert (mean["tasks"], mean["tasks_asked"]) == (2, 3)


def test_two_at_once(
    start: Start,
    invoke: Invoke,
    tmp_path: Path,
    server: Script,
    served: tuple[str, ...],
    quick: tuple[str | Path, ...],
) -> None:
    server.default = slow(20)
    args = ("tracking", *served, *quick, "--out", tmp_path / "out")
    start(*args)
    wait_for_calls(server, 1)
    second = invoke(*args)
    assert second.exit_code == 5
    assert "another process is writing to" in second.stderr
    assert "resume with" not in second.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_keeps_what_is_done(
    start: Start,
    invoke: Invoke,
    tmp_path: Path,
    server: Script,
    served: tuple[str, ...],
    quick: tuple[str | Path, ...],
    number: signal.Signals,
    code: int,
) -> None:
    server.replies = [say("one")] * 3
    server.default = slow(20)
    args = ("tracking", *served, *quick, "--out", tmp_path / "out")
    process = start(*args, "--concurrency", "1")
    wait_for_calls(server, 4)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == code
    assert (
        f"Resume with: memagent-bench tracking --model openai:x --base-url {server.url}" in stderr
    )
    server.default = say("17")
    assert invoke(*args).exit_code == 0
    records = read_records(tmp_path / "out")
    assert len(records) == 2
    committed = sum(record.usage.calls for record in records)
    repeated = sum(record.usage.repeated for record in records)
    assert (len(server.bodies), repeated) == (committed + 1, 1)


def wait_for_calls(server: Script, calls: int) -> None:
    end = time.monotonic() + 30
    while len(server.bodies) < calls:
        assert time.monotonic() < end
        time.sleep(0.01)


# --- the other commands


def test_generate_writes_what_it_says(invoke: Invoke, tmp_path: Path) -> None:
    def make(name: str, *more: str) -> list[dict[str, Any]]:
        done = invoke(
            *("generate", "tracking", "--task", "ledger", "--length", "2k", "-n", "3"),
            *("--out", tmp_path / name, *more),
        )
        assert done.exit_code == 0, done.output
        return [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]

    first = make("a.jsonl")
    assert [sample["index"] for sample in first] == [0, 1, 2]
    assert all(sample["length"] <= 2048 for sample in first)
    assert make("b.jsonl") == first
    assert make("c.jsonl", "--seed", "7") != first
    wrong = invoke("generate", "rulr", "--task", "t", "--length", "1k", "--out", tmp_path / "x")
    assert (wrong.exit_code, "did you mean 'ruler'?" in wrong.stderr) == (2, True)


@pytest.fixture
def measured(invoke: Invoke, tmp_path: Path) -> Path:
    """A folder of a few records."""
    out = tmp_path / "measured"
    args = ("tracking", "--model", "extractive", "--tasks", "chain,facts", "--lengths", "1k,2k")
    done = invoke(*args, "-n", "3", "--systems", "memory,direct", "--out", out)
    assert done.exit_code == 0, done.output
    return out


def test_report_writes_a_page(invoke: Invoke, measured: Path, tmp_path: Path) -> None:
    done = invoke("report", measured, "--out", tmp_path / "page")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1] == str(tmp_path / "page" / "report.html")
    assert "<html" in (tmp_path / "page" / "report.html").read_text()
    done = invoke("report", tmp_path / "none")
    assert (done.exit_code, "no records in" in done.stderr) == (5, True)
    assert invoke("report", measured, "--margin", "0").exit_code == 2


def test_a_page_of_several_folders_overwrites_none_of_theirs(
    invoke: Invoke, measured: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(measured, other)
    assert invoke("report", measured).exit_code == 0
    before = (measured / "report.html").read_bytes()
    done = invoke("report", measured, other)
    assert (done.exit_code, "--out" in done.stderr) == (2, True)
    assert (measured / "report.html").read_bytes() == before
    assert invoke("report", measured, other, "--out", tmp_path / "both").exit_code == 0


def test_diagnose_says_where_memories_lost_it(invoke: Invoke, measured: Path) -> None:
    done = invoke("diagnose", measured, "--misses", "1")
    assert done.exit_code == 0, done.output
    assert "never written" in done.stdout
    said = json.loads(invoke("diagnose", measured, "--display", "json").stdout)
    assert said["all"]["wanted"] > 0
    lines = invoke("diagnose", measured, "--display", "none").stdout.splitlines()
    assert len(lines) == said["all"]["missed"]
    assert invoke("diagnose", measured / "none").exit_code == 5


def test_questions_can_be_asked_without_their_documents(
    invoke: Invoke, tmp_path: Path, squad: Path
) -> None:
    args = ("qa", "--model", "extractive", "--squad", squad, "--lengths", "2k,1k", "-n", "2")
    args = (*args, "--tasks", "squad", "--no-context", "--out", tmp_path / "out")
    done = invoke(*args)
    assert done.exit_code == 0, done.output
    records = read_records(tmp_path / "out")
    assert sorted({(r.task, r.length) for r in records}) == [
        ("squad", 1024),
        ("squad", 2048),
        ("squad_no_context", 1024),
    ]
    for one in records:
        assert set(one.scores) == {"sub_exact_match", "exact_match", "f1"}
        if one.task == "squad":
            assert one.score == 1.0
        else:
            assert one.score == 0.0


def test_lists(invoke: Invoke) -> None:
    listed = [line.split(maxsplit=1) for line in invoke("systems").stdout.splitlines()]
    assert {"memory", "direct-left", "bm25"} <= {name for name, _ in listed}
    assert all(about for _, about in listed)
    listed = [line.split(maxsplit=2) for line in invoke("tasks").stdout.splitlines()]
    assert {"ruler", "qa", "tracking", "notes"} == {suite for suite, _, _ in listed}
    assert sum(suite == "ruler" for suite, _, _ in listed) == 13
    assert {name for _, name, _ in listed} == set(ABOUT), "every task is described"


def test_lists_fit_a_terminal(invoke: Invoke) -> None:
    for what in ("systems", "tasks"):
        assert max(map(len, invoke(what).stdout.splitlines())) <= 80


def test_version(invoke: Invoke) -> None:
    assert invoke("--version").stdout == f"memagent-bench {memagent.__version__}\n"


def test_a_table_that_is_too_wide_becomes_a_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lengths = [1024, 2048, 4096, 8192]
    asked = benchmark(tmp_path, model=model(), grid=grid(lengths=lengths))
    file = RecordFile(tmp_path)
    for length in lengths:
        file.append(record(length=length))
    file.close()
    for width, first in (("100", ["1K", "2K", "4K", "8K"]), ("50", ["memory", "at", "1K"])):
        monkeypatch.setenv("COLUMNS", width)
        show_means(asked, Outcome(Display.FULL))
        assert capsys.readouterr().out.splitlines()[0].split()[: len(first)] == first


def test_help_offers_what_a_suite_has(invoke: Invoke) -> None:
    assert "--squad" in invoke("ruler", "--help").stdout
    for suite in ("tracking", "notes"):
        assert "--squad" not in invoke(suite, "--help").stdout
        assert invoke(suite, "--out", "x", "--squad", "y").exit_code == 2
