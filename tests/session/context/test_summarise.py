"""Summary calls: as many turns as fit, each once; replies that are none are asked for again."""

import re

import pytest
from tests.session.context.strict import (
    SHORT,
    TOOLS,
    acted,
    acts,
    call,
    check_strictly,
    lay_out,
    result,
    turns_of,
)

from memagent.errors import CompactionFailed, LimitReached, ServerBusy
from memagent.messages import ChatRequest, Completion, Failure, FinishReason, Sampling, Usage
from memagent.models.scripted import Reply, ScriptedModel
from memagent.run.caller import Caller, seed_of
from memagent.session.context.layout import Layout, Past
from memagent.session.context.summarise import Summariser, Summary, next_pass

CALL = Completion(text="", tool_calls=(call("do"),), usage=Usage(calls=1, prompt_tokens=5))


def summariser_of(layout: Layout, model: ScriptedModel) -> Summariser:
    sampling = Sampling(temperature=0.3)
    return Summariser(Caller(model, layout.counter, layout.window, sampling=sampling, seed=5))


async def summarised(
    *replies: Reply,
    sizes: tuple[int, ...] = (100,),
    past: Past | None = None,
    layout: Layout | None = None,
    early: bool = False,
) -> tuple[Summary, Summariser, ScriptedModel]:
    model, layout = ScriptedModel(replies), layout or lay_out()
    steps = (acted(n, f"<{n}>".ljust(size, "."), "do") for n, size in enumerate(sizes))
    turns = turns_of(layout, *(message for step in steps for message in step))
    summariser = summariser_of(layout, model)
    summary = await summariser.summary(layout, past or Past(), turns, early=early)
    return summary, summariser, model


async def test_one_call_where_the_turns_fit() -> None:
    summary, spent, model = await summarised("ab. <summary>Found it.</summary> yes")
    (request,) = model.requests
    assert summary.text == "Found it."
    assert (request.kind, request.thinking, request.sampling.temperature) == ("summary", None, 0.3)
    assert request.max_tokens == 3000 // 8
    assert request.prompt_tokens == lay_out().count(request.messages)
    assert (request.tools, request.tool_choice, request.parts) == ((), None, {})
    assert request.messages[-1].role == "user"
    assert "Summarise" in request.messages[-1].content
    (conversation,) = summary.conversations
    assert conversation.messages[:-1] == request.messages
    assert conversation.messages[-1].content == "ab. <summary>Found it.</summary> yes"
    assert spent.usage.calls == 1


async def test_passes_where_they_do_not_each_turn_once_with_the_summary_so_far() -> None:
    replies = [f"summary {n}" for n in range(9)]
    summary, spent, model = await summarised(*replies, sizes=(900,) * 9, past=Past(1, "old one"))
    passes = len(model.requests)
    assert 3 <= passes < 9
    assert summary.text == f"summary {passes - 1}"
    assert len(summary.conversations) == passes == spent.usage.calls
    for place, request in enumerate(model.requests):
        assert request.seed == seed_of(5, f"summary-{place}", 0)
        check_strictly(request.messages)
        before = "old one" if place == 0 else f"summary {place - 1}"
        assert before in request.messages[1].content
    for number in range(9):
        holds = [any(f"<{number}>" in m.content for m in r.messages) for r in model.requests]
        assert sum(holds) == 1


async def test_what_is_shown_again_is_summarised_once_too() -> None:
    past = Past(1, "old", again="shown " * 100)
    _, _, model = await summarised(*["new"] * 9, sizes=(2500, 900), past=past)
    holds = ["shown shown" in r.messages[1].content for r in model.requests]
    assert holds == [True] + [False] * (len(holds) - 1)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("", "empty"),
        ("<think>", "inside its reasoning"),
        (CALL, "calls a tool"),
        ("<call>{}</call>", "calls a tool"),
        ("<summary>\n</summary>", "summary is empty"),
        (Completion(text="no", finish_reason=FinishReason.OTHER), "stopped by the engine"),
    ],
    ids=["empty", "reasoning", "call", "text-call", "tags", "filtered"],
)  # fmt: skip
async def test_what_is_no_summary_is_asked_for_again(bad: Reply, why: str) -> None:
    summary, spent, model = await summarised(bad, bad, "fine")
    assert summary.text == "fine"
    assert [r.thinking for r in model.requests] == [None, False, False]
    assert [r.seed for r in model.requests] == [seed_of(5, "summary-0", n) for n in range(3)]
    assert spent.usage.calls == 1
    assert spent.usage.retries == 2
    assert len(spent.retried) == 2
    assert why in spent.retried[0]
    with pytest.raises(CompactionFailed, match=f"{why}.*3 times.*unchanged"):
        await summarised(bad, bad, bad)


async def test_an_early_one_says_so_and_has_a_key_of_its_own() -> None:
    _, _, model = await summarised("fine", early=True)
    assert model.requests[0].parts == {"early": "yes"}
    assert model.requests[0].seed == seed_of(5, "early-0", 0)


async def test_tools_stand_in_the_prompt_until_a_reply_calls_one() -> None:
    """The prompt continues behind what the server has cached; not every server knows tool_choice."""
    layout = lay_out(tools=TOOLS[:2])
    _, _, model = await summarised("", CALL, "fine", layout=layout)
    assert [r.tools for r in model.requests] == [TOOLS[:2], TOOLS[:2], ()]
    assert [r.tool_choice for r in model.requests] == ["none", "none", None]


async def test_a_summary_that_failed_is_asked_for_again_under_its_key() -> None:
    layout = lay_out()
    model = ScriptedModel([ServerBusy("later", attempts=3), "", "", "", "fine", "next"])
    spent, turns = summariser_of(layout, model), turns_of(layout, *acted(0, "a"))
    with pytest.raises(ServerBusy):
        await spent.summary(layout, Past(), turns)
    assert (spent.usage.calls, spent.usage.retries) == (0, 3)
    with pytest.raises(CompactionFailed):
        await spent.summary(layout, Past(), turns)
    assert (spent.usage.calls, spent.usage.retries) == (0, 6)
    for _ in range(2):
        await spent.summary(layout, Past(), turns)
    assert spent.usage.calls == 2
    keys = [("summary-0", n) for n in (0, 0, 1, 2, 0)] + [("summary-1", 0)]
    assert [request.seed for request in model.requests] == [seed_of(5, *key) for key in keys]


async def test_a_summary_beside_a_call_is_a_summary() -> None:
    both = CALL.model_copy(update={"text": "<summary>here</summary>"})
    assert (await summarised(both))[0].text == "here"


async def test_a_summary_over_its_tokens_is_cut_where_a_sentence_ends() -> None:
    long = "One sentence. " * 40 + "And a half"
    summary, _, _ = await summarised(long)
    assert summary.cut
    assert len(summary.text) <= 375
    assert summary.text.endswith("sentence.")
    half = Completion(text="<summary>A whole sentence. Half of", finish_reason=FinishReason.LENGTH)
    assert (await summarised(half))[0].text == "A whole sentence."


async def test_a_summary_cannot_close_a_field() -> None:
    summary, _, _ = await summarised("a </result> <|im_end|> \ud800")
    assert summary.neutralised == 2
    assert "</result>" not in summary.text
    assert "<|im_end|>" not in summary.text
    assert summary.text.endswith("\ufffd")


async def test_errors_of_the_model_are_raised_and_counted() -> None:
    with pytest.raises(ServerBusy):
        await summarised(ServerBusy("later", attempts=3))
    with pytest.raises(LimitReached):
        await summarised(LimitReached("enough"))
    failed = Completion(text="ok", failures=(Failure(error="ServerBusy: x", waited=1),))
    assert (await summarised(failed))[1].retried == ["ServerBusy: x"]


async def test_the_same_turns_make_the_same_requests() -> None:
    first, second = [(await summarised(*["s"] * 9, sizes=(900,) * 5))[2].requests for _ in "ab"]
    assert first == second


async def test_a_pass_never_leaves_a_call_without_a_result() -> None:
    layout = lay_out()
    open_call = (acts(call("do", id="a"), call("do", id="b")), result("x" * 900, "b"))
    steps = (message for number in range(5) for message in acted(number, "y" * 900))
    requests: list[ChatRequest] = []

    def reply(request: ChatRequest) -> str:
        requests.append(request)
        check_strictly(request.messages)
        return "summary"

    summariser = summariser_of(layout, ScriptedModel(reply))
    await summariser.summary(layout, Past(), turns_of(layout, *open_call, *steps))
    assert len(requests) > 2


async def test_a_turn_over_the_window_is_summarised_whole_in_parts() -> None:
    words = [f"word{number}" for number in range(2_000)]
    layout, model = lay_out(), ScriptedModel(lambda request: "s" * 375)
    long = (acts(call("do"), text=" ".join(words)), result("its result"))
    turns = turns_of(layout, *long, *acted(1, "another result", "do"))
    await summariser_of(layout, model).summary(layout, Past(said=("please " * 20,)), turns)
    head = SHORT.render("step")
    parts = [
        m.content.split(head)[1] for r in model.requests for m in r.messages if head in m.content
    ]
    assert len(parts) == len(model.requests) - 1 > 10
    assert [word for part in parts for word in re.findall(r"word\d+", part)] == words
    assert "do({}) -> its result" in parts[-1]
    assert any("another result" in m.content for m in model.requests[-1].messages)
    assert all(layout.count(r.messages) + layout.summary <= layout.window for r in model.requests)


def test_a_pass_takes_at_least_one_turn_or_makes_room() -> None:
    layout = lay_out()
    said = turns_of(layout, acts(text="x" * 9000))
    assert len(next_pass(layout, Past(), said)[1]) == 4
    asked = layout.count(layout.add_instruction(layout.render(Past(1, "s", again="r"), ())))
    full = Past(1, "s", again="r" * (layout.window - layout.summary - layout.line - asked))
    messages, rest = next_pass(layout, full, said)
    assert rest == said
    assert layout.count(messages) + layout.summary <= layout.window


async def test_passes_that_are_through_are_not_made_again_until_the_turns_change() -> None:
    model = ScriptedModel(["one", ServerBusy("later"), "two", "three", "four", *["new"] * 9])
    layout = lay_out()
    steps = (acted(number, f"<{number}>".ljust(1300, "."), "do") for number in range(5))
    turns = turns_of(layout, *(message for step in steps for message in step))
    summariser = summariser_of(layout, model)
    with pytest.raises(ServerBusy):
        await summariser.summary(layout, Past(), turns)
    summary = await summariser.summary(layout, Past(), turns)
    assert [c.messages[-1].content for c in summary.conversations][:2] == ["one", "two"]
    assert sum(any("<0>" in m.content for m in r.messages) for r in model.requests) == 1
    assert summariser.usage.calls == len(summary.conversations)
    again = await summariser.summary(layout, Past(), turns[:-1])
    assert again.conversations[0].messages[:-1] == model.requests[0].messages
