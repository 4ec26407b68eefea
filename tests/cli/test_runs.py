import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from tests.cli.conftest import QUESTION, Invoke, Process, only_json
from tests.cli.pseudo_terminal import converse, texts

from memagent.cli.runs import seconds_of, status_of
from memagent.errors import ConfigError
from memagent.runstore import RunStore


@pytest.fixture
def store() -> RunStore:
    return RunStore(RunStore.default_path())


def listed(invoke: Invoke) -> list[str]:
    return [run["id"] for run in only_json(invoke("runs", "--display", "json").stdout)]


def test_an_empty_store_says_how_runs_come_to_be(invoke: Invoke) -> None:
    done = invoke("runs")
    assert done.exit_code == 0
    assert "memagent ask" in done.stdout


def test_the_list(invoke: Invoke, book: Path, made: str) -> None:
    other = ("ask", book, "-q", "One?", "-q", "Two?", "--model", "extractive", "--run-id", "later")
    assert invoke(*other).exit_code == 0
    rows = only_json(invoke("runs", "--display", "json").stdout)
    assert [row["id"] for row in rows] == ["later", made]
    assert rows[1]["questions"] == [QUESTION]
    assert rows[1]["calls"] == rows[1]["chunks"] + 1
    assert {row["status"] for row in rows} == {"finished"}
    lines = invoke("runs").stdout.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("later")
    assert "2 questions: One?" in lines[0]
    assert invoke("runs", "--display", "none").stdout == f"later\n{made}\n"


def test_rm(invoke: Invoke, made: str, tmp_path: Path) -> None:
    missing = invoke("runs", "rm", made, "nosuch")
    assert missing.exit_code == 5
    assert listed(invoke) == [made]  # all or none
    twice = invoke("runs", "rm", made, made)
    assert (twice.exit_code, twice.stdout) == (0, f"removed {made}\n")
    assert listed(invoke) == []
    assert invoke("runs", "--store", tmp_path / "typo.sqlite", "rm", "x").exit_code == 5


def test_a_run_that_somebody_is_at_stays(invoke: Invoke, made: str, store: RunStore) -> None:
    store.set_status(made, at_work=True)
    with store.hold(made):
        assert status_of(store, store.get(made)) == "running"
        done = invoke("runs", "rm", made)
        assert (done.exit_code, done.stdout) == (5, "")
        assert "no run to remove" in invoke("runs", "prune", "--older-than", "0d", "--yes").stdout
    assert status_of(store, store.get(made)) == "interrupted"  # killed without a word
    store.close()


def test_runs_in_use_keep_no_others_from_being_removed(
    invoke: Invoke, made: str, book: Path, store: RunStore
) -> None:
    invoke("ask", book, QUESTION, "--model", "extractive", "--run-id", "later")
    with store.hold(made):
        done = invoke("runs", "rm", made, "later")
        assert (done.exit_code, done.stdout) == (5, "removed later\n")
        assert "in use by another process, so not removed: made; try again later" in done.stderr
    assert listed(invoke) == [made]
    store.close()


@pytest.mark.parametrize("body", ["'garbage'", "json_set(body, '$.type', 'novel')"])
def test_a_damaged_run_leaves_the_others_readable(
    invoke: Invoke, made: str, book: Path, tmp_path: Path, body: str
) -> None:
    store = ("--store", tmp_path / "other.sqlite")
    for name in ("good", "bad"):
        ask = ("ask", book, QUESTION, "--model", "extractive", "--run-id", name)
        assert invoke(*ask, *store).exit_code == 0
    with closing(sqlite3.connect(tmp_path / "other.sqlite")) as db:
        db.execute(f"UPDATE events SET body = {body} WHERE run = 'bad'")
        db.commit()
    command = f"memagent runs rm bad --store {tmp_path / 'other.sqlite'}"
    problem = (
        "run 'bad' is damaged, or a newer memagent wrote it: upgrade memagent, or remove it with"
    )
    bad, good = invoke("runs", *store).stdout.splitlines()
    assert bad.endswith(f"finished  {problem} `{command}`")
    assert good.startswith("good  ")
    rows = only_json(invoke("runs", *store, "--json").stdout)
    assert [(row["id"], row["status"]) for row in rows] == [
        ("bad", "finished"),
        ("good", "finished"),
    ]
    chosen = only_json(invoke("runs", *store, "--json", "--status", "finished").stdout)
    assert "bad" in [row["id"] for row in chosen]
    assert "good  " in invoke("runs", "--search", "Lovelace", *store).stdout
    for arguments in (["show", "bad"], ["show", "bad", "--html", tmp_path / "page.html"]):
        shown = invoke(*arguments, *store)
        assert shown.exit_code == 5
        assert f"error: {problem} `{command}`" in shown.stderr
    would = invoke("runs", "prune", "--older-than", "0m", "-n", *store).stdout
    assert "would remove 2 runs" in would
    assert invoke("runs", "rm", "bad", *store).stdout == "removed bad\n"


def test_prune(invoke: Invoke, made: str, book: Path) -> None:
    prune = ("runs", "prune")
    assert invoke(*prune).exit_code == 2
    assert "no run to remove" in invoke(*prune, "--older-than", "1h", "--yes").stdout
    invoke("ask", book, "q?", "--model", "extractive", "--max-calls", "1", "--run-id", "stopped")
    dry = invoke(*prune, "--finished", "--dry-run")
    assert f"{QUESTION}\nwould remove 1 run\n" in dry.stdout
    assert invoke(*prune, "--finished").exit_code == 2  # nobody to ask
    assert sorted(listed(invoke)) == sorted([made, "stopped"])
    assert "removed 1 run\n" in invoke(*prune, "--finished", "--yes").stdout
    assert listed(invoke) == ["stopped"]
    time.sleep(0.01)
    assert "removed 1 run\n" in invoke(*prune, "--older-than", "0d", "--yes").stdout
    assert listed(invoke) == []


@pytest.mark.parametrize("typed", [b"\x03", b"\x04"])
def test_a_question_may_be_left(invoke: Invoke, made: str, tmp_path: Path, typed: bytes) -> None:
    command = (sys.executable, "-m", "memagent", "runs", "prune", "--finished")
    code, screen = converse(command, tmp_path, until="[y/N]:", typed=typed)
    assert code == 130
    assert texts(screen).rstrip().endswith("interrupted.")
    assert listed(invoke) == [made]


def test_ages() -> None:
    assert seconds_of("30d") == 30 * 86400
    assert seconds_of("1.5h") == 5400
    assert seconds_of("2w") == 14 * 86400
    for bad in ("30", "d", "-1d", "1y", ""):
        with pytest.raises(ConfigError, match="30d"):
            seconds_of(bad)


def test_the_list_can_be_narrowed(memagent: Process, book: Path) -> None:
    ask = ("ask", book, "--model", "extractive", "--window", "2048")
    memagent(*ask, "Who is Ada?", "--run-id", "one")
    memagent(*ask, "Who is Bob?", "--run-id", "two", "--max-calls", "1")
    memagent(*ask, "Where is Bob?", "--run-id", "three", "--max-calls", "1")

    def ids(*options: str) -> list[str]:
        done = memagent("runs", *options, "--display", "none")
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    assert ids("--limit", "2") == ["three", "two"]
    assert ids("--status", "stopped", "--limit", "1") == ["three"]
    assert ids("--status", "finished") == ["one"]
    assert ids("--search", "WHO IS") == ["two", "one"]
    assert ids("--search", "book.txt") == ["three", "two", "one"]
    assert memagent("runs", "--search", "nobody").stdout == "No run matches.\n"
    assert memagent("runs", "--status", "odd").returncode == 2
    for options in ([], ["--search", "Ada"]):
        huge = memagent("runs", "--limit", "9" * 20, *options)
        assert (huge.returncode, "Invalid value for '--limit'" in huge.stderr) == (2, True)
    shown = memagent("show", "two")
    assert "\nread        1 chunk\n" in shown.stdout
    assert "\nusage       1 call · " in shown.stdout
