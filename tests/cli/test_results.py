import io
import json
import sys
from typing import Any

import pytest

from memagent.cli.exits import Outcome
from memagent.cli.options import Display
from memagent.cli.results import as_json, facts, report
from memagent.messages import Usage
from memagent.run.result import Result
from memagent.runstore import RunRecord
from memagent.trajectory import StopReason, Trajectory

RECORD = RunRecord("r1", 0, 0, "stopped", {"model": "m"}, {}, {"name": "d", "path": None})


def result(answer: str | None = "Ada.", question: str = "Who?", **fields: Any) -> Result:
    reason = StopReason.ANSWERED if answer is not None else StopReason.LIMIT
    detail = "" if answer is not None else "the limit of 3 calls is reached"
    given = {"memory": "m", "usage": Usage(calls=3, prompt_tokens=12_345, retries=2), "chunks": 2}
    return Result(
        question=question,
        answer=answer,
        stop_reason=reason,
        run_id="r1",
        trajectory=Trajectory((), answer, reason),
        detail=detail,
        **(given | fields),
    )


def test_facts() -> None:
    assert facts([result()], 1.25, "r1") == (
        "run r1 · 2 chunks · 3 calls · 12.3k prompt + 0 completion tokens · answered · 2 retries · 1.2 s"
    )
    both = facts([result(), result(None)], None, None)
    assert both.startswith("2 chunks · 6 calls · 24.7k prompt")
    assert "answered and limit" in both


def test_json_of_one_and_of_several() -> None:
    assert as_json([result()], RECORD)["document"] == "d"
    several = as_json([result(), result(None)], RECORD)
    assert several["run_id"] == "r1"
    assert [one["answer"] for one in several["results"]] == ["Ada.", None]


@pytest.mark.parametrize("display", list(Display))
def test_an_answer_that_is_missing(display: Display, capsys: pytest.CaptureFixture[str]) -> None:
    shown = [result(), result(None, "When?")]
    assert report(shown, RECORD, display, Outcome(json=display is Display.JSON)) == 6
    out, said = capsys.readouterr()
    assert "no answer to 'When?': the limit of 3 calls is reached" in said
    if display is Display.NONE:
        assert out == "Ada.\n"
    elif display is Display.JSON:
        assert json.loads(out)["results"][1]["detail"]
    else:
        assert "Ada." in out


def test_the_answer_is_prominent_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert report([result("[b]Ada\x1b")], RECORD, Display.FULL, Outcome(json=False)) == 0
    screen = stream.getvalue()
    assert "╭─ Who? ─" in screen
    assert "[b]Ada\ufffd" in screen
    report([result("Ada\x1b[2J")], RECORD, Display.NONE, Outcome(json=False))
    assert "Ada\ufffd[2J" in stream.getvalue()
