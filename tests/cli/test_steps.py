import pytest

from memagent.cli.history import Steps, format_call, turns_of
from memagent.compaction import Change, Compaction
from memagent.events import (
    Acted,
    Answered,
    Compacted,
    Event,
    Retried,
    Stopped,
    ToolInterrupted,
    ToolReturned,
)
from memagent.messages import ToolCall, Usage
from memagent.terminal import Paper
from memagent.trajectory import StopReason

ONE = Usage(calls=1)
SEARCH = ToolCall(id="a", name="search", arguments='{"query": "fog", "k": 5}')
NOTE = ToolCall(id="b", name="note", arguments='{"text": "1813"}')


def acted(step: int, *calls: ToolCall, text: str = "") -> Acted:
    return Acted(step=step, text=text, calls=calls, prompt_tokens=1200 + step, usage=ONE)


def returned(step: int, call: ToolCall, output: str, *, ok: bool = True) -> ToolReturned:
    return ToolReturned(step=step, call=call, output=output, ok=ok)


def change(turn: int, what: str, before: int, after: int = 0, tool: str | None = None) -> Change:
    fields = {"turn": turn, "what": what, "tokens_before": before, "tokens_after": after}
    return Change.model_validate(fields | {"tool": tool, "handle": f"t{turn}"})


def written(
    events: list[Event], capsys: pytest.CaptureFixture[str], *, whole: bool = False
) -> list[str]:
    Steps(Paper(colour=False), turns_of(events), whole=whole).write(events)
    return capsys.readouterr().out.splitlines()


def test_each_call_with_the_first_line_of_its_result(capsys: pytest.CaptureFixture[str]) -> None:
    events: list[Event] = [
        acted(0, SEARCH, NOTE, text="First\nI look."),
        returned(0, NOTE, "", ok=False),
        returned(0, SEARCH, f"\n{'page ' * 60}\ntwo\n\nthree"),
        Retried(chunk=None, reason="ServerBusy: later", waited=1.5),
        acted(1, text="1813"),
        Answered(answer=" 1813\n", form_found=True, truncated=True, usage=ONE),
    ]
    lines = written(events, capsys)
    assert lines[:5] == [
        "step 0  prompt 1,200 tokens",
        "  First  (+1 line)",
        '  note(text="1813")',
        "    (empty)",
        '  search(query="fog", k=5)',
    ]
    assert lines[5].startswith("    page page")
    assert lines[5].endswith("…  (+2 lines)")
    assert len(lines[5]) <= 100
    assert lines[6:] == [
        "sent again after 1.5 s: ServerBusy: later",
        "",
        "answer: 1813",
        "the reply was cut off by its token limit",
    ]


def test_one_step_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    long = "word " * 60 + "\nend"
    lines = written([acted(7, SEARCH), returned(7, SEARCH, long)], capsys, whole=True)
    assert lines[2:] == [f"    {'word ' * 60}".rstrip(), "    end"]
    assert written([acted(8, text="It is 1813.")], capsys, whole=True)[1:] == ["  It is 1813."]


def test_calls_without_a_result_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    events: list[Event] = [
        acted(0, SEARCH, SEARCH),
        returned(0, SEARCH, "one"),  # the model gave both the same id
        Stopped(reason=StopReason.LIMIT, detail="the limit calls=1", usage=ONE),
        acted(1, NOTE),
        ToolInterrupted(step=1, call=NOTE),
        returned(1, NOTE, "note was under way", ok=False),
        acted(2, NOTE),
    ]
    assert [line.strip() for line in written(events, capsys)] == [
        "step 0  prompt 1,200 tokens",
        'search(query="fog", k=5)',
        "one",
        'search(query="fog", k=5)',
        "no result was committed",
        "stopped (limit): the limit calls=1",
        "step 1  prompt 1,201 tokens",
        'note(text="1813")',
        "note was under way",
        "step 2  prompt 1,202 tokens",
        'note(text="1813")',
        "no result was committed",
    ]


def test_what_left_the_context_is_told_by_steps(capsys: pytest.CaptureFixture[str]) -> None:
    cheap = Compaction(
        tiers=("stale", "clip"),
        changes=(change(0, "stale", 340, 20, "search"), change(3, "clipped", 1204, 310, "search")),
        tokens_before=3900,
        tokens_after=2600,
        stage=0,
    )
    summary = Compaction(
        tiers=("summary",),
        changes=(
            *(change(turn, "summarised", 650) for turn in (0, 1, 2)),
            change(3, "shown_again", 900, 200),
        ),
        tokens_before=3900,
        tokens_after=1100,
        stage=1,
        summary="Ada was born in 1815.\nNext: her death.",
        cut=True,
        early=True,
        neutralised=1,
        retried=("the summary is empty",),
    )
    events: list[Event] = [
        acted(0, SEARCH),
        returned(0, SEARCH, "page"),
        acted(1, text="<call>{</call>"),  # two turns: this, and what the model was told
        acted(2, SEARCH),
        returned(2, SEARCH, "page"),
        Compacted(step=3, compaction=cheap),
        Compacted(step=3, compaction=summary),
    ]
    full = written(events, capsys, whole=True)
    assert "  step 1  summarised          650 tokens  t2" in full
    assert turns_of(events) == [0, 1, 1, 2]
    lines = written(events, capsys)
    assert lines[3] == "step 1  prompt 1,201 tokens  the call could not be parsed"
    assert lines[lines.index("    page", 4) + 1 :] == [
        "compacted before step 3  3,900 to 2,600 tokens, by dropping stale results and clipping",
        "  step 0  stale search       340 to 20 tokens  t0",
        "  step 2  clipped search  1,204 to 310 tokens  t3",
        "compacted before step 3  3,900 to 1,100 tokens, by a summary",
        "  steps 0-1  summarised        1,950 tokens",
        "  step 2     shown again  900 to 200 tokens  t3",
        "  sent again: the summary is empty",
        "  summary 1, begun early, cut at a sentence end, 1 look-alike of prompt fields neutralised",
        "    Ada was born in 1815.",
        "    Next: her death.",
    ]


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"a": 1, "b": [null, "ß"]}', 'search(a=1, b=[null, "ß"])'),
        ("", "search()"),
        ("{}", "search()"),
        ("[1]", "search([1])"),
        ("{broken", "search({broken)"),
        ("[" * 100_000, f"search({'[' * 100_000})"),
    ],
    ids=["object", "nothing", "empty", "list", "broken", "deep"],
)
def test_calls_as_python_writes_them(arguments: str, shown: str) -> None:
    assert format_call(ToolCall(id="a", name="search", arguments=arguments)) == shown
