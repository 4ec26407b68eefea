"""Runs that version 2 left unfinished are finished by today's loops, and come to what version 2 came to."""

from pathlib import Path
from typing import Any

import pytest
from tests.runstore.version2 import Finished, cases, restored, rows
from tests.runstore.version2_agents import finish

from memagent import RunStore
from memagent.errors import RunMismatch
from memagent.events import Event
from memagent.run.result import Result

CALLS = ("act", "room", "summary", "early")
"""What a session asks its model for; its other effects are tools and what follows from others."""
BEGUN = [
    pytest.param(case, id=f"{case.file}-{case.run}")
    for case in cases()
    if case.status != "finished"
]


def in_flight(path: Path, run: str) -> int:
    """Calls of the model that a file of version 2 says were sent, and whose replies it does not have."""
    flying = rows(path, "SELECT sent FROM steps WHERE run = ? AND committed IS NULL", run)
    if rows(path, "SELECT 1 FROM sqlite_master WHERE name = 'effects'"):
        effects = rows(path, "SELECT key, sent FROM effects WHERE run = ? AND body IS NULL", run)
        flying += [row for row in effects if row["key"].split("-")[0] in CALLS]
    return sum(row["sent"] for row in flying)


def told(events: list[Event], kind: str) -> list[Any]:
    return [event for event in events if event.type == kind]


@pytest.mark.parametrize("case", BEGUN)
def test_an_unfinished_run_of_version_2_is_finished(case: Finished, tmp_path: Path) -> None:
    path = restored(case.file, tmp_path / "run")
    flying = in_flight(path, case.run)
    store = RunStore(path)
    before, spent = list(store.events(case.run)), store.usage(case.run)
    summarised = any(store.count(case.run, kind) for kind in ("summary", "early"))
    try:
        results = finish(case, store)
    except RunMismatch as error:
        # Prompts are counted otherwise now, so the summary stands for other turns: said, and nothing lost.
        if not summarised or "earlier version" not in str(error):
            raise
        assert list(store.events(case.run))[: len(before)] == before
        assert store.get(case.run).status == "stopped"
        store.close()
        return
    if case.run == "native-roomy-stale":
        # It needs the last quarter of its working context, which sessions do not fill any more: said, and nothing lost.
        assert [result.stop_reason.value for result in results] == ["no_progress"]
        assert "use a larger working_context" in results[0].detail  # type: ignore[union-attr]
        assert list(store.events(case.run))[: len(before)] == before
        store.close()
        return
    assert tuple(result.answer for result in results) == case.answers
    assert tuple(r.memory for r in results if isinstance(r, Result)) == case.memories
    assert tuple(result.stop_reason.value for result in results) == case.stop_reasons
    assert store.get(case.run).status == "finished"
    reads = all(isinstance(result, Result) for result in results)
    if reads:  # a session may need fewer summaries now, and fewer calls for them
        assert tuple(len(r.trajectory.conversations) for r in results) == case.conversations

    # Committed calls count once, and what was in flight counts apart.
    usage = store.usage(case.run)
    assert not reads or usage.calls == case.calls
    assert usage.calls >= spent.calls
    assert usage.repeated <= spent.repeated + flying
    assert not reads or usage.repeated == spent.repeated + flying
    assert usage.retries >= spent.retries

    # What was committed is told again as it was, and nothing twice.
    events = list(store.events(case.run))
    assert events[: len(before)] == before
    last = len(events) - 1
    assert store.last_seq(case.run) == last
    assert not reads or last == case.last_seq
    for kind in ("chunk_read", "memory_updated", "memory_kept", "answered"):
        places = [
            (getattr(event, "question", 0), getattr(event, "chunk", None))
            for event in told(events, kind)
        ]
        assert len(places) == len(set(places))
    steps = [event.step for event in told(events, "acted")]
    assert steps == list(range(len(steps)))
    calls = [(event.step, event.call.id) for event in told(events, "tool_returned")]
    assert len(calls) == len(set(calls))
    # A finished run is handed out as it is.
    assert [result.to_dict() for result in finish(case, store)] == [r.to_dict() for r in results]
    assert store.last_seq(case.run) == last
    store.close()
