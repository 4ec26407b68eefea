from memagent.messages import Message, TokenIds
from memagent.trajectory import Conversation, StopReason, Trajectory


def test_stop_reasons_are_plain_words_and_documented() -> None:
    assert [reason.value for reason in StopReason] == [
        "answered",
        "settled",
        "out_of_steps",
        "out_of_summaries",
        "no_progress",
        "limit",
        "unusable_reply",
    ]


def test_a_conversation_survives_json_with_its_tokens() -> None:
    conversation = Conversation(
        messages=(Message(role="user", content="hi"), Message(role="assistant", content="ho")),
        kind="update",
        chunk=3,
        tokens=TokenIds(prompt=(1, 2), sampled=(3,), logprobs=(-0.5,)),
        turns=(TokenIds(prompt=(1, 2), sampled=(3,), logprobs=(-0.5,)),),
    )
    assert Conversation.model_validate_json(conversation.model_dump_json()) == conversation
    assert Trajectory([conversation], "ho", StopReason.ANSWERED).conversations[0] == conversation


def test_a_conversation_of_a_version_without_turns_is_read() -> None:
    written = '{"messages": [{"role": "user", "content": "hi"}], "kind": "update", "chunk": 0, "tokens": null}'
    assert Conversation.model_validate_json(written).turns == ()
