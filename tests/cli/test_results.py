import io
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from memagent.cli.exits import Outcome
from memagent.cli.options import Display
from memagent.cli.progress import Tally
from memagent.cli.show import as_json, costs, list_costs, report
from memagent.events import Answered, Event, MemoryUpdated, Settled, Stopped
from memagent.messages import Usage
from memagent.runstore import RunRecord, RunStore
from memagent.trajectory import StopReason

USAGE = Usage(calls=3, prompt_tokens=12_345, retries=2, retry_tokens=700)
ONE = Usage(calls=1)


@pytest.fixture
def store() -> Iterator[RunStore]:
    store = RunStore(None)
    yield store
    store.close()


def tally_of(*events: Event, questions: tuple[str, ...] = ("Who?",)) -> Tally:
    tally = Tally(questions)
    for event in events:
        tally.add(event)
    return tally


def updated(question: int = 0) -> MemoryUpdated:
    return MemoryUpdated(chunk=1, memory="m", tokens=1, usage=ONE, question=question)


def answered(answer: str = "Ada.", *, truncated: bool = False) -> Answered:
    return Answered(answer=answer, form_found=True, truncated=truncated, usage=ONE)


LIMIT = Stopped(
    question=1, reason=StopReason.LIMIT, detail="the limit of 3 calls is reached", usage=ONE
)


def made(store: RunStore, *questions: str) -> RunRecord:
    binding = {"agent": "memory", "model": "m", "questions": list(questions)}
    store.create("r1", binding, {}, {"name": "d", "path": None})
    return store.get("r1")


def test_costs_count_what_was_thrown_away() -> None:
    assert " · ".join(costs(USAGE, tally_of(updated(), answered()))) == (
        "2 chunks · 3 calls · 12.3k prompt + 0 completion tokens · 2 retries (700 tokens) · answered"
    )
    both = costs(ONE, tally_of(updated(), answered(), LIMIT, questions=("Who?", "When?")))
    assert both[1] == "1 call"
    assert "answered and limit" in both
    assert list_costs(ONE) == ["1 call", "0 prompt + 0 completion tokens"]


def test_json_of_one_and_of_several(store: RunStore) -> None:
    record = made(store, "Who?", "When?")
    settled = as_json(store, record, tally_of(updated(), Settled(chunk=1), answered()))
    assert (settled["document"], settled["stop_reason"], settled["chunks"]) == ("d", "settled", 2)
    both = tally_of(updated(), answered(), LIMIT, questions=("Who?", "When?"))
    several = as_json(store, record, both)
    assert several["run_id"] == "r1"
    assert [found["answer"] for found in several["results"]] == ["Ada.", None]


@pytest.mark.parametrize("display", list(Display))
def test_an_answer_that_is_missing(
    display: Display, store: RunStore, capsys: pytest.CaptureFixture[str]
) -> None:
    record = made(store, "Who?", "When?")
    tally = tally_of(updated(), answered(), LIMIT, questions=("Who?", "When?"))
    assert report(store, record, tally, Outcome(display)) == 6
    out, said = capsys.readouterr()
    assert "no answer to 'When?': the limit of 3 calls is reached" in said
    if display is Display.NONE:
        assert out == "Ada.\n"
    elif display is Display.JSON:
        assert json.loads(out)["results"][1]["detail"]
    else:
        assert "Ada." in out


def test_the_answer_is_prominent_on_a_terminal(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    record = made(store, "Who?")

    def shown(answer: Answered, display: Display) -> Any:
        return report(store, record, tally_of(answer), Outcome(display))

    assert shown(answered("[b]Ada\x1b", truncated=True), Display.FULL) == 0
    screen = stream.getvalue()
    assert "╭─ Who? ─" in screen
    assert "[b]Ada\ufffd" in screen
    assert "cut off by its token limit" in screen
    shown(answered("Ada\x1b[2J"), Display.NONE)
    assert "Ada\ufffd[2J" in stream.getvalue()
