"""Promise 3: a run killed at any instant resumes; nothing committed is sent again, lost or doubled."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from memagent import RunStore
from memagent.events import Event
from memagent.memory.state import restore
from memagent.run.caller import seed_of
from memagent.runstore.records import split_key

DRIVER = Path(__file__).with_name("kill_driver.py")


def without_repeats(events: list[Event]) -> list[dict[str, object]]:
    """Events as plain data, without what rightly differs: how often calls were repeated."""
    plain = [event.model_dump(mode="json") for event in events]
    for event in plain:
        if "usage" in event:
            for name in ("repeated", "discarded", "retry_tokens"):
                event["usage"].pop(name)
    return plain


@pytest.mark.parametrize(
    ("kills", "questions", "ahead", "again"),
    [(50, 1, 1, 0), (15, 2, 1, 0), (15, 1, 8, 0), (5, 2, 4, 0), (20, 1, 1, 20)],
)
@pytest.mark.timeout(300)
def test_killed_runs_end_like_an_unbroken_one(
    tmp_path: Path, kills: int, questions: int, ahead: int, again: int
) -> None:
    numbers = map(str, (20261120, kills, questions, ahead, again))
    command = [sys.executable, str(DRIVER), str(tmp_path), *numbers]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    sessions = json.loads(done.stdout)
    killed, unbroken = RunStore(tmp_path / "killed.sqlite"), RunStore(tmp_path / "unbroken.sqlite")
    chunks = restore(unbroken, "r1", questions)[0].next_chunk
    assert chunks >= 300

    # The kills were real, and spread over the run.
    assert [session["killed"] for session in sessions] == [True] * kills + [False]
    progress = [len(session["committed"]) for session in sessions]
    assert len(set(progress)) > kills * 0.6
    assert progress[-1] < questions * (chunks + again)

    # No committed step was sent again.
    places: dict[str, str] = {}
    for question in range(questions):
        updates = [f"update-{chunk}/q{question}" for chunk in range(chunks)]
        rereads = [f"reread-{number}/q{question}" for number in range(again)]
        for key in [*updates, f"draft/q{question}", *rereads, f"answer/q{question}"]:
            kind, number = split_key(key)
            call = {"draft": "answer", "reread": "update"}.get(name := kind.split("/")[0], name)
            sent = f"Line {question}? {call} {seed_of(0, key, 0)}"
            places[sent] = f"{kind} {number}"
    for session in sessions:
        resent = {places[line] for line in session["sent"]} & set(session["committed"])
        assert not resent, f"sent again though committed: {resent}"
        if ahead == 1:
            assert len(session["sent"]) == len(set(session["sent"]))

    # Nothing was lost or doubled: the same events, memories and answers, in the same order.
    events = list(killed.events("r1"))
    assert [event.seq for event in events] == list(range(len(events)))
    if questions == 1:
        assert without_repeats(events) == without_repeats(list(unbroken.events("r1")))
    for question in range(questions):
        assert restore(killed, "r1", questions) == restore(unbroken, "r1", questions)
        ours, theirs = killed.conversations("r1", question), unbroken.conversations("r1", question)
        assert list(ours) == list(theirs)

    # Calls count once; what was in flight at a kill counts apart, at most one a question and kill.
    total, reference = killed.usage("r1"), unbroken.usage("r1")
    assert (total.calls, total.prompt_tokens) == (reference.calls, reference.prompt_tokens)
    sent = sum(len(session["sent"]) for session in sessions)
    assert total.calls <= sent <= total.calls + total.discarded + total.repeated
    assert total.repeated <= kills * questions * ahead
    assert (total.discarded > 0) == (ahead > 1)
    killed.close()
    unbroken.close()
