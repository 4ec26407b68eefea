import asyncio
import time

import pytest

from memagent.messages import ChatRequest, Completion, Message, TokenIds, ToolCall
from memagent.models.record import Recorder
from memagent.models.scripted import ScriptedModel


def messages(*contents: str) -> tuple[Message, ...]:
    """User and assistant in turn."""
    roles = ("user", "assistant")
    return tuple(
        Message(role=roles[place % 2], content=content) for place, content in enumerate(contents)
    )


def request(*contents: str) -> ChatRequest:
    return ChatRequest(messages=messages(*contents), max_tokens=5, kind="update")


def with_ids(text: str, prompt: list[int], sampled: list[int]) -> Completion:
    return Completion(text=text, tokens=TokenIds(prompt=tuple(prompt), sampled=tuple(sampled)))


def contents(recorder: Recorder) -> list[list[str]]:
    return [[m.content for m in c.messages] for c in recorder.conversations]


async def play(recorder: Recorder, *calls: tuple[str, ...]) -> None:
    for call in calls:
        await recorder.complete(request(*call))


async def test_one_call_is_a_conversation() -> None:
    recorder = Recorder(ScriptedModel(["a"]))
    await play(recorder, ("q",))
    (conversation,) = recorder.conversations
    assert conversation.messages == messages("q", "a")
    assert conversation.kind == "update"
    assert conversation.tokens is None


async def test_calls_that_extend_a_conversation_continue_it() -> None:
    recorder = Recorder(ScriptedModel(["1", "x", "2", "y"]))
    await play(recorder, ("q",), ("other",), ("q", "1", "r"), ("other", "x", "z"))
    assert contents(recorder) == [["q", "1", "r", "2"], ["other", "x", "z", "y"]]


async def test_the_longest_open_conversation_is_continued() -> None:
    recorder = Recorder(ScriptedModel(["1", "2", "1", "3"]))
    await play(recorder, ("q",), ("q", "1", "r"), ("q",), ("q", "1", "r", "2", "s"))
    assert contents(recorder) == [["q", "1", "r", "2", "s", "3"], ["q", "1"]]


async def test_a_branch_is_a_new_conversation() -> None:
    recorder = Recorder(ScriptedModel(["1", "2", "3"]))
    await play(recorder, ("q",), ("q", "1", "r"), ("q", "1", "other"))
    assert contents(recorder) == [["q", "1", "r", "2"], ["q", "1", "other", "3"]]


async def test_the_same_request_again_is_a_new_conversation() -> None:
    recorder = Recorder(ScriptedModel(["1", "1", "2", "3"]))
    await play(recorder, ("q",), ("q",), ("q", "1", "r"), ("q", "1", "r"))
    assert sorted(contents(recorder)) == [["q", "1", "r", "2"], ["q", "1", "r", "3"]]


async def test_a_changed_reply_or_role_extends_nothing() -> None:
    recorder = Recorder(ScriptedModel(["1", "2", "3"]))
    await play(recorder, ("q",), ("q", "1 edited", "r"))
    swapped = ChatRequest(
        messages=(*messages("q"), Message(role="user", content="1")), max_tokens=5
    )
    await recorder.complete(swapped)
    assert len(recorder.conversations) == 3


async def test_contents_do_not_run_into_each_other() -> None:
    recorder = Recorder(ScriptedModel(["b", "c"]))
    await play(recorder, ("a",), ("ab", "", "x"))
    assert len(recorder.conversations) == 2


async def test_ids_continue_a_conversation() -> None:
    model = ScriptedModel([with_ids("1", [1, 2], [3]), with_ids("2", [1, 2, 3, 4], [5])])
    recorder = Recorder(model)
    await play(recorder, ("q",), ("q", "1", "r"))
    (conversation,) = recorder.conversations
    assert conversation.tokens == TokenIds(prompt=(1, 2, 3, 4), sampled=(5,))
    assert recorder.retokenised == 0


async def test_messages_that_extend_while_ids_do_not() -> None:
    model = ScriptedModel([with_ids("1", [1, 2], [3]), with_ids("2", [1, 2, 9, 4], [5])])
    recorder = Recorder(model)
    await play(recorder, ("q",), ("q", "1", "r"))
    assert contents(recorder) == [["q", "1"], ["q", "1", "r", "2"]]
    assert recorder.retokenised == 1


async def test_ids_decide_against_messages() -> None:
    model = ScriptedModel([with_ids(" 1", [1, 2], [3]), with_ids("2", [1, 2, 3, 4], [5])])
    recorder = Recorder(model)
    await play(recorder, ("q",), ("q", "1", "r"))
    assert contents(recorder) == [["q", "1", "r", "2"]]


async def test_ids_tell_equal_messages_apart() -> None:
    model = ScriptedModel(
        [
            with_ids("1", [1], [2]),
            with_ids("1", [1], [3]),
            with_ids("x", [1, 2, 7], [8]),
            with_ids("y", [1, 3, 7], [8]),
        ]
    )
    recorder = Recorder(model)
    await play(recorder, ("q",), ("q",), ("q", "1", "r"), ("q", "1", "r"))
    assert contents(recorder) == [["q", "1", "r", "x"], ["q", "1", "r", "y"]]
    assert recorder.retokenised == 0


async def test_an_equal_prompt_is_no_continuation_where_nothing_was_sampled() -> None:
    recorder = Recorder(ScriptedModel([with_ids("", [1, 2], []), with_ids("", [1, 2], [])]))
    await play(recorder, ("q",), ("q",))
    assert len(recorder.conversations) == 2


async def test_without_ids_on_one_side_messages_decide() -> None:
    recorder = Recorder(ScriptedModel([with_ids("1", [1], [2]), "2"]))
    await play(recorder, ("q",), ("q", "1", "r"))
    assert contents(recorder) == [["q", "1", "r", "2"]]


async def test_failed_calls_leave_no_trace_and_clear_forgets() -> None:
    recorder = Recorder(ScriptedModel([ValueError("x"), "1", "2"]))
    await asyncio.gather(recorder.complete(request("q")), return_exceptions=True)
    assert recorder.conversations == []
    await play(recorder, ("q",))
    recorder.clear()
    await play(recorder, ("q", "1", "r"))
    assert contents(recorder) == [["q", "1", "r", "2"]]


def joined(turns: tuple[TokenIds, ...]) -> list[int]:
    return [i for turn in turns for i in (*turn.prompt, *turn.sampled)]


async def test_turns_are_the_calls_of_a_conversation_without_what_came_before() -> None:
    first = TokenIds(prompt=(1, 2), sampled=(3,), logprobs=(-1.0,))
    second = TokenIds(prompt=(1, 2, 3, 4, 5), sampled=(6, 7), logprobs=(-2.0, -3.0))
    third = TokenIds(prompt=(1, 2, 3, 4, 5, 6, 7, 8), sampled=())
    replies = [Completion(text=str(n), tokens=t) for n, t in enumerate((first, second, third))]
    recorder = Recorder(ScriptedModel(replies))
    await play(recorder, ("q",), ("q", "0", "r"), ("q", "0", "r", "1", "s"))
    (conversation,) = recorder.conversations
    assert conversation.turns == (
        first,
        TokenIds(prompt=(4, 5), sampled=(6, 7), logprobs=(-2.0, -3.0)),
        TokenIds(prompt=(8,), sampled=()),
    )
    assert joined(conversation.turns) == [*third.prompt, *third.sampled]


async def test_a_call_without_ids_ends_the_turns_of_its_conversation_for_good() -> None:
    model = ScriptedModel(
        [
            with_ids("1", [1], [2]),
            "2",
            with_ids("3", [1, 2, 3], [4]),
            with_ids("4", [1, 2, 3, 4, 5], [6]),
            with_ids("x", [9], [9]),
        ]
    )
    recorder = Recorder(model)
    said = ("q", "1", "r", "2", "s", "3", "t")
    await play(recorder, *(said[:n] for n in (1, 3, 5, 7)), ("other",))
    assert [len(c.turns) for c in recorder.conversations] == [0, 1]


async def test_retokenised_calls_open_turns_of_their_own() -> None:
    recorder = Recorder(
        ScriptedModel([with_ids("1", [1, 2], [3]), with_ids("2", [1, 2, 9, 4], [5])])
    )
    await play(recorder, ("q",), ("q", "1", "r"))
    assert [joined(c.turns) for c in recorder.conversations] == [[1, 2, 3], [1, 2, 9, 4, 5]]


async def test_a_subclass_hears_of_each_call_and_its_place() -> None:
    class Listener(Recorder):
        heard: tuple[tuple[int, str], ...] = ()

        def note_call(self, place: int, request: ChatRequest, completion: Completion) -> None:
            self.heard += ((place, completion.text),)
            assert self._conversations[place].messages[-1].content == completion.text

    recorder = Listener(ScriptedModel(["1", "x", "2", ValueError("no reply, nothing to hear")]))
    await play(recorder, ("q",), ("other",), ("q", "1", "r"))
    await asyncio.gather(recorder.complete(request("q")), return_exceptions=True)
    assert recorder.heard == ((0, "1"), (1, "x"), (0, "2"))


async def test_concurrent_conversations_keep_apart() -> None:
    async def echo(sent: ChatRequest) -> str:
        await asyncio.sleep(0)
        return sent.messages[-1].content + "!"

    recorder = Recorder(ScriptedModel(echo))

    async def talk(who: str) -> None:
        said = [f"{who}0"]
        for turn in range(1, 4):
            reply = await recorder.complete(request(*said))
            said += [reply.text, f"{who}{turn}"]

    await asyncio.gather(*(talk(who) for who in "abcdef"))
    assert sorted(contents(recorder)) == [
        [f"{who}0", f"{who}0!", f"{who}1", f"{who}1!", f"{who}2", f"{who}2!"] for who in "abcdef"
    ]


async def test_many_open_conversations_cost_no_comparisons() -> None:
    calls = 2000
    model = ScriptedModel([with_ids("r", [*range(n % 50 + 1), -n], [n]) for n in range(calls)])
    recorder = Recorder(model)
    start = time.process_time()
    await play(recorder, *((f"chunk {n}",) for n in range(calls)))
    assert len(recorder.conversations) == calls
    assert time.process_time() - start < 5


CALL = ToolCall(id="a", name="look", arguments="{}")
RESULT = Message(role="tool", content="A house.", tool_call_id="a")


def shown(*said: Message) -> ChatRequest:
    return ChatRequest(messages=(*messages("q"), *said), max_tokens=5, kind="act")


async def test_calls_and_results_are_part_of_a_conversation() -> None:
    recorder = Recorder(ScriptedModel([CALL, "done"]))
    await recorder.complete(shown())
    called = Message(role="assistant", content="", tool_calls=(CALL,))
    (conversation,) = recorder.conversations
    assert conversation.messages == (*messages("q"), called)
    await recorder.complete(shown(called, RESULT))
    (conversation,) = recorder.conversations
    done = Message(role="assistant", content="done")
    assert conversation.messages == (*messages("q"), called, RESULT, done)


@pytest.mark.parametrize(
    "changed",
    [
        Message(role="assistant", content=""),
        Message(role="assistant", content="", tool_calls=(CALL.model_copy(update={"id": "b"}),)),
        Message(
            role="assistant", content="", tool_calls=(CALL.model_copy(update={"arguments": "1"}),)
        ),
    ],
    ids=["no call", "id", "arguments"],
)
async def test_another_call_is_another_conversation(changed: Message) -> None:
    recorder = Recorder(ScriptedModel([CALL, "done"]))
    await recorder.complete(shown())
    await recorder.complete(shown(changed, RESULT))
    assert len(recorder.conversations) == 2
