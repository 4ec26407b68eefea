import pytest

from memagent import ScriptedModel
from memagent.errors import BadResponse, ConfigError
from memagent.messages import ChatRequest, Completion, FinishReason, Message, TokenIds
from memagent_train.agents import Read
from memagent_train.roles import role
from memagent_train.rollout.rows import RolloutRecorder, with_reads
from memagent_train.rollouts import Row, Span


def completion(
    prompt: tuple[int, ...], sampled: tuple[int, ...], *, cut_off: bool = False, text: str = ""
) -> Completion:
    return Completion(
        text=text or f"said {sampled}",
        finish_reason=FinishReason.LENGTH if cut_off else FinishReason.STOP,
        tokens=TokenIds(prompt=prompt, sampled=sampled, logprobs=tuple(-i / 10 for i in sampled)),
    )


def request(*texts: str, kind: str = "other") -> ChatRequest:
    roles = ("user", "assistant") * len(texts)
    messages = tuple(Message(role=r, content=t) for r, t in zip(roles, texts, strict=False))
    return ChatRequest.model_validate({"messages": messages, "max_tokens": 5, "kind": kind})


async def test_a_call_is_a_row() -> None:
    recorder = RolloutRecorder(ScriptedModel([completion((1, 2), (3, 4), cut_off=True)]))
    await recorder.complete(request("q", kind="update"))
    assert recorder.rows() == (
        Row(
            prompt_ids=(1, 2),
            response_ids=(3, 4),
            loss_mask=(1, 1),
            logprobs=(-0.3, -0.4),
            kind="update",
            final=True,
            truncated=True,
            spans=(Span(0, 2, "update"),),
        ),
    )
    assert recorder.rows()[0].sampled == 2


async def test_turns_are_one_row_with_gaps_that_are_masked() -> None:
    replies = [
        completion((1, 2), (3, 4), text="a"),
        completion((1, 2, 3, 4, 5, 6), (7,), text="b", cut_off=True),
        completion((1, 2, 3, 4, 5, 6, 7, 8), (9,), text="c"),
    ]
    recorder = RolloutRecorder(ScriptedModel(replies))
    await recorder.complete(request("q", kind="update"))
    await recorder.complete(request("q", "a", "r"))
    await recorder.complete(request("q", "a", "r", "b", "s"))
    (row,) = recorder.rows()
    assert row.prompt_ids == (1, 2)
    assert row.response_ids == (3, 4, 5, 6, 7, 8, 9)
    assert row.loss_mask == (1, 1, 0, 0, 1, 0, 1)
    assert row.logprobs == (-0.3, -0.4, 0.0, 0.0, -0.7, 0.0, -0.9)
    assert (row.kind, row.truncated, row.final) == ("update", True, True)


async def test_spans_say_which_call_sampled_what() -> None:
    replies = [
        completion((1, 2), (3, 4), text="a"),
        completion((1, 2, 3, 4, 5, 6), (7,), text="b"),
        completion((9,), (8, 8), text="c"),
    ]
    recorder = RolloutRecorder(ScriptedModel(replies))
    await role(recorder, "player").complete(request("q", kind="act"))
    await recorder.complete(request("q", "a", "r", kind="summary"))
    await recorder.complete(request("other", kind="act"))
    first, second = recorder.rows()
    assert first.spans == (Span(0, 2, "act", "player"), Span(4, 5, "summary"))
    assert second.spans == (Span(0, 2, "act"),)


async def test_replies_that_were_asked_for_again_are_rejected() -> None:
    replies = [
        completion((1, 2), (3,), text="a"),
        completion((1, 2, 3, 4), (5, 5), text="unusable"),
        completion((1, 2, 3, 4), (6,), text="usable"),
        completion((1, 2, 3, 4), (7,), text="drawn once more"),
    ]
    recorder = RolloutRecorder(ScriptedModel(replies))
    asked = request("q", "a", "sum up", kind="summary")
    await recorder.complete(request("q", kind="act"))
    await recorder.complete(asked)
    await recorder.complete(asked.model_copy(update={"thinking": False}))
    await recorder.complete(asked)  # nobody asks again for what was usable
    found = [[(span.kind, span.rejected) for span in row.spans] for row in recorder.rows()]
    assert found == [
        [("act", False), ("summary", True)],
        [("summary", False)],
        [("summary", False)],
    ]


@pytest.mark.parametrize("again", [False, True])
async def test_only_an_act_that_was_asked_for_again_is_rejected_before_a_summary(
    again: bool,
) -> None:
    """One that was cut off behind its call was used, and may leave the context before the next request."""
    replies = [completion((n,), (n,), cut_off=n == 2) for n in range(1, 5)]
    recorder = RolloutRecorder(ScriptedModel(replies))

    async def act(task: str, *, again: bool = False) -> None:
        parts = {"task": task} | ({"again": "yes"} if again else {})
        asked = request(task, kind="act").model_copy(update={"parts": parts})
        await recorder.complete(asked)

    await act("another session's")
    await act("t")
    await recorder.complete(request("t", "sum up", kind="summary"))
    await act("t", again=again)
    spans = [span for row in recorder.rows() for span in row.spans]
    assert [(span.kind, span.rejected) for span in spans] == [
        ("act", False),
        ("act", again),
        ("summary", False),
        ("act", False),
    ]


async def test_asking_again_without_reasoning_is_no_rejection_by_an_agent_of_your_own() -> None:
    recorder = RolloutRecorder(ScriptedModel([completion((1,), (2,)), completion((1,), (3,))]))
    for _ in range(2):
        await recorder.complete(request("q").model_copy(update={"thinking": False}))
    assert [span.rejected for row in recorder.rows() for span in row.spans] == [False, False]


async def test_roles_mask_what_is_not_trained_call_by_call() -> None:
    replies = [
        completion((1,), (3,), text="a"),
        completion((2,), (4,), text="b"),
        completion((1, 3, 5), (6,), text="c"),
    ]
    recorder = RolloutRecorder(ScriptedModel(replies))
    planner, critic = role(recorder, "planner"), role(recorder, "critic", train=False)
    await planner.complete(request("p"))
    await critic.complete(request("c"))
    await critic.complete(request("p", "a", "r"))
    first, second = recorder.rows()
    assert [span.role for span in first.spans] == ["planner", "critic"]
    assert [span.role for span in second.spans] == ["critic"]
    assert (first.loss_mask, first.final) == ((1, 0, 0), True)
    assert (second.loss_mask, second.final) == ((0,), False)
    assert first.logprobs == (-0.3, 0.0, -0.6)


async def test_a_conversation_in_which_nothing_was_sampled_is_no_row() -> None:
    recorder = RolloutRecorder(ScriptedModel([completion((1,), ()), completion((2,), (3,))]))
    await recorder.complete(request("a"))
    await recorder.complete(request("b"))
    assert [row.prompt_ids for row in recorder.rows()] == [(2,)]


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (None, "no token ids"),
        (TokenIds(prompt=(1,), sampled=(2,)), "no log-probabilities"),
    ],
)
async def test_an_engine_that_gives_too_little_is_named(
    tokens: TokenIds | None, words: str
) -> None:
    model = ScriptedModel([Completion(text="a", tokens=tokens)], name="openai:gpt")
    recorder = RolloutRecorder(model)
    await recorder.complete(request("q"))
    with pytest.raises(BadResponse, match=f"openai:gpt: replies have {words}"):
        recorder.rows()


async def test_an_agent_that_calls_nothing_has_no_rows() -> None:
    recorder = RolloutRecorder(ScriptedModel([completion((1,), (2,))]))
    with pytest.raises(ConfigError, match="made no call"):
        recorder.rows()
    await recorder.complete(request("q"))
    assert len(recorder.rows()) == 1
    recorder.clear()
    with pytest.raises(ConfigError, match="made no call"):
        recorder.rows()


def test_reads_go_to_the_rows_of_their_calls() -> None:
    rows = [Row((1,), (2, 3), (1, 1), (-1.0, -1.0)), Row((4,), (5,), (1,), (-1.0,))]
    found = with_reads(rows, [Read(ids=(1, 2, 3), span=(0, 9), kept=True)])
    assert [(row.span, row.kept) for row in found] == [((0, 9), True), (None, None)]
    assert with_reads(rows, []) == tuple(rows)
