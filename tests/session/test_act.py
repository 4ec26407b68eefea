import pytest

from memagent.messages import Completion, FinishReason, ToolCall
from memagent.prompts.reply import UnusableReply
from memagent.session.step import read_act

LOOK = ToolCall(id="a", name="look", arguments='{"item": 1}')


def test_a_reply_without_calls_is_the_answer() -> None:
    for native in (True, False):
        act = read_act(Completion(text="  42\n"), native=native, step=0)
        assert act.answers
        assert (act.said, act.content, act.calls) == ("42", "42", ())


@pytest.mark.parametrize(
    "thinking", [Completion(text="<think>7 or 42?</think>42"), Completion(text="42", reasoning="7 or 42?")]
)  # fmt: skip
@pytest.mark.parametrize("native", [True, False])
def test_reasoning_is_no_part_of_it(thinking: Completion, native: bool) -> None:
    assert read_act(thinking, native=native, step=0).said == "42"
    calls = thinking.model_copy(update={"tool_calls": (LOOK,)})
    assert read_act(calls, native=True, step=0).content == "42"


def test_native_calls_are_taken_as_they_are() -> None:
    act = read_act(Completion(text="", tool_calls=(LOOK,)), native=True, step=3)
    assert not act.answers
    assert (act.calls, act.content) == ((LOOK,), "")
    only_thoughts = Completion(text="<think>hm</think>", tool_calls=(LOOK,))
    assert read_act(only_thoughts, native=True, step=3).content == ""


def test_calls_in_the_text_get_ids_by_the_step() -> None:
    text = '<think>x</think>So: <call>{"name": "look", "arguments": {}}</call><call>{"name": "do"}</call>'
    act = read_act(Completion(text=text), native=False, step=7)
    assert [(call.id, call.name) for call in act.calls] == [("call-7-0", "look"), ("call-7-1", "do")]  # fmt: skip
    assert act.said == "So:"
    assert act.content == text.removeprefix("<think>x</think>")


def test_a_call_that_cannot_be_read_is_no_answer() -> None:
    act = read_act(Completion(text="<call>{oops</call>"), native=False, step=0, tools=["look"])
    assert not act.answers
    assert act.problem is not None
    assert "look" in act.problem


def test_a_reply_that_was_cut_off_says_so() -> None:
    cut = Completion(text="It is 4", finish_reason=FinishReason.LENGTH)
    for native in (True, False):
        act = read_act(cut, native=native, step=0)
        assert (act.truncated, act.is_cut_off) == (True, True)
        whole = read_act(Completion(text="It is 4."), native=native, step=0)
        assert (whole.truncated, whole.is_cut_off) == (False, False)


def test_a_call_that_is_whole_is_not_cut_off() -> None:
    call = '<call>{"name": "look"}'
    for text, cut_off in ((call, False), (call[:-1], True)):
        reply = Completion(text=text, finish_reason=FinishReason.LENGTH)
        assert read_act(reply, native=False, step=0).is_cut_off is cut_off
    native = Completion(text="", tool_calls=(LOOK,), finish_reason=FinishReason.LENGTH)
    assert not read_act(native, native=True, step=0).is_cut_off


@pytest.mark.parametrize("arguments", ["", "{}", '{"item": '])
def test_a_native_call_that_may_lack_arguments_is_cut_off(arguments: str) -> None:
    half = LOOK.model_copy(update={"id": "b", "arguments": arguments})
    cut = Completion(text="So:", tool_calls=(half,), finish_reason=FinishReason.LENGTH)
    act = read_act(cut, native=True, step=0)
    assert (act.is_cut_off, act.answers) == (True, False)
    assert read_act(
        cut.model_copy(update={"tool_calls": (LOOK, half)}), native=True, step=0
    ).calls == (LOOK,)
    with pytest.raises(UnusableReply):
        read_act(cut.model_copy(update={"text": ""}), native=True, step=0)
    whole = cut.model_copy(update={"finish_reason": FinishReason.STOP})
    assert read_act(whole, native=True, step=0).calls == (half,)


@pytest.mark.parametrize(
    "reply",
    [
        Completion(text=""),
        Completion(text="<think>I wonder"),
        Completion(text="4", finish_reason=FinishReason.OTHER),
        Completion(text="", tool_calls=(LOOK,), finish_reason=FinishReason.OTHER),
    ],
)
def test_what_says_nothing_is_unusable(reply: Completion) -> None:
    with pytest.raises(UnusableReply):
        read_act(reply, native=True, step=0)
