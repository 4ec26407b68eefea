"""`memagent-bench sessions`: what it prints, leaves behind and ends with."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from blockbuster import BlockBuster
from typer.testing import Result

from memagent_bench.sessions.plot import PLOT
from memagent_bench.sessions.record import read_sessions
from memagent_bench.sessions.wire.plot import PLOT as STEPS

Invoke = Callable[..., Result]
SMALL = ("sessions", "--games", "deck,heaviest", "--difficulty", "30", "--working-context", "2048")


def test_from_nothing_to_a_table_and_a_picture(invoke: Invoke, tmp_path: Path) -> None:
    out = tmp_path / "out"
    args = (*SMALL, "--difficulty", "12,30", "--summaries", "50", "--out", out)
    done = invoke(*args)
    assert (done.exit_code, done.stderr) == (0, "")
    told = done.stdout.splitlines()
    assert [line.split("/16")[0].strip() for line in told[:16]] == [str(n) for n in range(1, 17)]
    assert "right" in told[0]
    assert told[16].split()[:3] == ["12", "steps", "success"]
    assert [line.split()[0] for line in told[17:21]] == ["full", "drop-oldest", "mask", "summary"]
    assert told[-1] == f"records in {out}, a picture in {out / PLOT}"
    assert (out / PLOT).read_bytes().startswith(b"\x89PNG")
    assert {r.score for r in read_sessions(out) if r.arm.system in ("full", "summary")} == {1.0}
    again = invoke(*args)
    assert again.stdout.splitlines() == told[16:]


def test_loops_work_shifts_at_a_server(
    invoke: Invoke, tmp_path: Path, blockbuster: BlockBuster
) -> None:
    blockbuster.deactivate()  # the loops are measured as they are
    out = tmp_path / "out"
    loops = ("--systems", "tool-agent,openai", "--working-context", "6144")
    args = ("sessions", "--games", "shifts", *loops, "--difficulty", "40", "--out", out)
    done = invoke(*args)
    assert (done.exit_code, done.stderr) == (0, "")
    told = done.stdout.splitlines()
    assert [line.split()[-1] == "s" or "OVERFLOW" in line for line in told[:4]] == [True] * 4
    assert told[4].startswith("shift, 40 steps ")
    assert told[5].split()[:5] == ["tool-agent", "W=6144", "1", "of", "1"]
    assert told[6].split()[:5] == ["openai", "W=6144", "0", "of", "1"]
    assert told[8].startswith("shift-huge, 40 steps ")
    assert told[-1] == f"records in {out}, a picture in {out / STEPS}"
    agent, whole, huge, _ = read_sessions(out)
    assert agent.wired is not None
    assert whole.wired is not None
    assert agent.wired.own_milliseconds is not None
    assert (agent.wired.overflows, whole.wired.overflows) == (0, 1)
    assert huge.game == "shift-huge"
    data = json.loads(invoke(*args, "--display", "json").stdout)
    assert [row["label"] for row in data["wired"]] == ["tool-agent W=6144", "openai W=6144"] * 2
    assert invoke("report", out).exit_code == 0
    page = (out / "report.html").read_text()
    assert "Work of 40 steps is finished by tool-agent W=6144 for" in page
    assert "<h3>shift-huge, 40 steps</h3>" in page
    assert "tokens/finished" in page


def test_json(invoke: Invoke, tmp_path: Path) -> None:
    done = invoke(*SMALL, "--systems", "full", "--display", "json", "--out", tmp_path)
    (cell,) = json.loads(done.stdout)["cells"]
    assert (cell["difficulty"], cell["label"]) == (30, "full")
    assert cell["success"]["mean"] == 1
    assert cell["reasons"] == {}
    assert done.stdout.count("\n") == 1


def test_sessions_have_a_page(invoke: Invoke, tmp_path: Path) -> None:
    played, other = tmp_path / "played", tmp_path / "other"
    assert invoke(*SMALL, "--systems", "full,summary", "--out", played).exit_code == 0
    done = invoke("report", played)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1] == str(played / "report.html")
    assert "summary W=2048 S=7" in (played / "report.html").read_text()
    other.mkdir()
    done = invoke("report", played, other, "--out", tmp_path / "page")
    assert (done.exit_code, "has sessions" in done.stderr) == (2, True)


def test_a_folder_of_sessions_is_for_sessions_only(invoke: Invoke, tmp_path: Path) -> None:
    played, asked = tmp_path / "played", tmp_path / "asked"
    sessions = (*SMALL, "--systems", "full", "--out")
    assert invoke(*sessions, played).exit_code == 0
    ruler = ("tracking", "--model", "extractive", "--tasks", "ledger", "--lengths", "2k", "-n", "1")
    assert invoke(*ruler, "--systems", "bm25", "--out", asked).exit_code == 0
    for args, exit_code, message in (
        ((*ruler, "--out", played), 5, "played' holds tool sessions: use another --out"),
        (
            (*ruler, "--out", played, "--dry-run"),
            5,
            "played' holds tool sessions: use another --out",
        ),
        (
            (*sessions, asked),
            5,
            "asked' holds no tool sessions, but other records: use another --out",
        ),
        (("diagnose", played), 2, "played' holds tool sessions, which have no memories to trace"),
    ):
        done = invoke(*args)
        assert (done.exit_code, message in done.stderr) == (exit_code, True), done.stderr


def test_a_lost_session_is_a_result_and_no_failure(invoke: Invoke, tmp_path: Path) -> None:
    done = invoke(*SMALL, "--systems", "full", "--window", "1500", "--out", tmp_path)
    assert done.exit_code == 0
    assert "OVERFLOW: none: a prompt of" in done.stdout
    assert "2 of 2" in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--games", "chess"), "there is no game 'chess'"),
        (("--systems", "memory"), "there is no system 'memory'"),
        (("--difficulty", "many"), "--difficulty 'many'"),
        (("--difficulty", "5"), "got 5"),
        (("--working-context", "0"), "--working-context '0'"),
        (("--window", "500"), "the window has 500: give --working-context 500 or less"),
        (("--player", "model"), "no model to play"),
        (("--tokenizer", "nowhere.json"), "nowhere.json"),
        (("--systems", "buffer"), "'buffer' doesn't play deck, heaviest"),
        (("--games", "shift"), "'full' doesn't play shift: shifts"),
        (("--systems", "loops", "--protocol", "text"), "leave out --model and --protocol"),
    ],
)
def test_wrong_options_are_named(
    invoke: Invoke, tmp_path: Path, options: tuple[str, str], message: str
) -> None:
    done = invoke(*SMALL, *options, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert message in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_server_that_is_not_there(invoke: Invoke, tmp_path: Path) -> None:
    where = ("--model", "openai:x", "--base-url", "http://127.0.0.1:9/v1")
    done = invoke(*SMALL, *where, "--out", tmp_path / "out")
    assert done.exit_code == 4
    assert "127.0.0.1:9" in done.stderr
