"""Promise 3 for tool sessions: a run killed at any instant resumes; no finished tool runs twice, and one that may
have had its effect is reported instead of repeated."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.faults.kill_tools_driver import ITEMS
from tests.session.adding import answer_of

from memagent import RunStore
from memagent.events import Event
from memagent.run.caller import seed_of

ROOT = Path(__file__).parents[2]
KILLS = 35


def killed_sessions(folder: Path, early: float, *, idempotent: bool) -> list[dict[str, Any]]:
    options = [str(folder), "20261121", str(KILLS), str(early), "yes" if idempotent else "no"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.kill_tools_driver", *options],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    return json.loads(done.stdout)


def plain(events: list[Event]) -> list[dict[str, Any]]:
    """Events as plain data, without what rightly differs: repeats, and the order of what ran side by side."""
    found = [event.model_dump(mode="json") for event in events]
    for event in found:
        for usage in (event.get("usage"), event.get("compaction", {}).get("usage")):
            if usage:
                usage.pop("repeated")
        if event["type"] == "tool_returned":
            event.pop("seq")
    return sorted(
        found,
        key=lambda event: (
            event.get("step", -1 if event["type"] == "session_started" else 10**9),
            event["type"],
            json.dumps(event.get("call")),
        ),
    )


@pytest.mark.parametrize("early", [0, 0.7])
@pytest.mark.timeout(600)
def test_killed_sessions_end_like_an_unbroken_one(tmp_path: Path, early: float) -> None:
    sessions = killed_sessions(tmp_path, early, idempotent=True)
    killed, unbroken = RunStore(tmp_path / "killed.sqlite"), RunStore(tmp_path / "unbroken.sqlite")
    check_common(sessions, killed, tmp_path)

    # Nothing was lost or doubled: the same events, conversations and answer.
    events, reference = list(killed.events("r1")), list(unbroken.events("r1"))
    assert plain(events) == plain(reference)
    kinds = Counter(event.type for event in reference)
    assert kinds["acted"] > 200
    assert kinds["compacted"] > 20
    assert kinds["tool_interrupted"] == 0
    ours, theirs = killed.conversations("r1"), unbroken.conversations("r1")
    assert list(ours) == list(theirs)
    begun_early = any(e.type == "compacted" and e.compaction.early for e in reference)
    assert begun_early is bool(early)

    # Calls count once; what was in flight at a kill counts apart.
    total, once = killed.usage("r1"), unbroken.usage("r1")
    assert (total.calls, total.prompt_tokens) == (once.calls, once.prompt_tokens)
    sent = sum(line.startswith("sent") for session in sessions for line in session["did"])
    assert total.calls <= sent <= total.calls + total.repeated
    assert total.repeated <= KILLS * (2 if early else 1)
    killed.close()
    unbroken.close()


@pytest.mark.timeout(600)
def test_what_cannot_be_repeated_is_reported_and_not_repeated(tmp_path: Path) -> None:
    sessions = killed_sessions(tmp_path, 0, idempotent=False)
    killed = RunStore(tmp_path / "killed.sqlite")
    check_common(sessions, killed, tmp_path)
    events = list(killed.events("r1"))
    interrupted = [event for event in events if event.type == "tool_interrupted"]
    assert interrupted, "no kill hit a note: the test shows nothing"
    for event in interrupted:
        told = next(
            e for e in events if e.type == "tool_returned" and (e.step, e.call) == (event.step, event.call)
        )  # fmt: skip
        assert "was under way when the session was interrupted" in told.output
        assert not told.ok
    # Each note that ran is either one that the model heard of, or one that was reported.
    ran = Counter(
        line for session in sessions for line in session["did"] if line.startswith("ran note ")
    )
    heard = Counter(
        f"ran note {e.output.split()[1]}"
        for e in events
        if e.type == "tool_returned" and e.ok and e.call.name == "note"
    )
    assert sum(ran.values()) <= sum(heard.values()) + len(interrupted)
    assert all(heard[one] <= 1 for one in heard)
    killed.close()


def check_common(sessions: list[dict[str, Any]], killed: RunStore, folder: Path) -> None:
    # The kills were real, and spread over the run.
    assert [session["killed"] for session in sessions] == [True] * KILLS + [False]
    progress = [len(session["committed"]) for session in sessions]
    assert len(set(progress)) > KILLS * 0.6

    # No committed reply was asked for again.
    keys = {f"sent act {seed_of(0, f'act-{step}', 0)}": f"act {step}" for step in range(2000)}
    for session in sessions:
        acts = [line for line in session["did"] if line.startswith("sent act ")]
        assert not {keys[line] for line in acts} & set(session["committed"])
        assert len(acts) == len(set(acts))

    # No finished tool ran again: what ran more often than it was heard of was under way at a kill.
    ran = sum(line.startswith("ran") for session in sessions for line in session["did"])
    returned = [e for e in killed.events("r1") if e.type == "tool_returned"]
    assert len(returned) - len(sessions) <= ran <= len(returned) + 2 * KILLS

    # Each note stands in the file once, and the sum is right.
    notes = (folder / "killed.sqlite.notes").read_text().split()
    assert notes == [str(item) for item in range(5, ITEMS + 1, 5)]
    assert killed.effect("r1", "answer/q0")["answer"] == answer_of(ITEMS)  # type: ignore[index]
    assert [event.seq for event in killed.events("r1")] == list(range(killed.last_seq("r1") + 1))
