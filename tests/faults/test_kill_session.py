"""Promise 3 for conversations: killed at any instant, between messages or within one, one ends as if it was never
killed, and a tool that was in doubt made each call exactly once."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.faults.kill_session_driver import AMOUNTS, MESSAGES, PAYMENTS
from tests.faults.test_kill_tools import plain

from memagent import RunStore
from memagent.run.caller import seed_of

ROOT = Path(__file__).parents[2]
KILLS = 30


@pytest.mark.parametrize("early", [0, 0.7])
@pytest.mark.timeout(600)
def test_a_killed_conversation_ends_like_an_unbroken_one(tmp_path: Path, early: float) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.kill_session_driver", str(tmp_path), "20261125", str(KILLS), str(early)],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    processes = json.loads(done.stdout)
    killed, unbroken = RunStore(tmp_path / "killed.sqlite"), RunStore(tmp_path / "unbroken.sqlite")

    # The kills were real, spread over the conversation, and hit it between messages and within them.
    assert [process["killed"] for process in processes] == [True] * KILLS + [False]
    assert len({len(process["committed"]) for process in processes}) > KILLS * 0.6
    ends = [process["did"][-1].split()[0] for process in processes[:-1] if process["did"]]
    assert {"answered", "ran", "sent"} <= set(ends)

    # Nothing was lost or doubled: the same events, conversations, answers and saved states.
    events, reference = list(killed.events("r1")), list(unbroken.events("r1"))
    assert plain(events) == plain(reference)
    assert [event.seq for event in events] == list(range(len(events)))
    kinds = Counter(event.type for event in reference)
    assert kinds["answered"] == MESSAGES
    assert kinds["message_sent"] == MESSAGES - 1
    assert kinds["compacted"] > 10
    assert kinds["tool_interrupted"] == 0
    assert list(killed.conversations("r1")) == list(unbroken.conversations("r1"))
    states = {line for line in processes[-1]["committed"] if line.startswith("state ")}
    assert len(states) >= 2
    latest = killed.latest("r1", "state")
    assert latest == unbroken.latest("r1", "state")

    # No committed reply was asked for again.
    keys = {f"sent act {seed_of(0, f'act-{step}', 0)}": f"act {step}" for step in range(2000)}
    for process in processes:
        acts = [line for line in process["did"] if line.startswith("sent act ")]
        assert not {keys[line] for line in acts} & set(process["committed"])
    total, once = killed.usage("r1"), unbroken.usage("r1")
    assert (total.calls, total.prompt_tokens) == (once.calls, once.prompt_tokens)

    # Each payment was made exactly once, although some calls were made again, with the key they had.
    booked = (tmp_path / "killed.sqlite.bank").read_text().splitlines()
    assert [int(line.split()[0]) for line in booked] == AMOUNTS
    ran = [
        line.split()[1:]
        for process in processes
        for line in process["did"]
        if line.startswith("ran ")
    ]
    assert len(ran) > MESSAGES * PAYMENTS, "no kill hit a payment: the test shows nothing"
    assert any(int(attempt) > 1 for _, attempt, _ in ran)
    assert len({(amount, key) for amount, _, key in ran}) == len(AMOUNTS)
    assert len({key for _, _, key in ran}) == len(AMOUNTS)
    killed.close()
    unbroken.close()
