from memagent.compaction import Compaction, conversation_of
from memagent.messages import Message, Usage
from memagent.trajectory import Conversation

TASK = Message(role="user", content="Add up.")
SAID = Message(role="assistant", content="I look.")
HEARD = Message(role="user", content="item 1 is 1")
SUMMED = Message(role="assistant", content="<summary>1</summary>")


def done(*conversations: Conversation) -> Compaction:
    return Compaction(
        tiers=("summary",),
        changes=(),
        tokens_before=9,
        tokens_after=3,
        stage=1,
        summary="1",
        conversations=conversations,
        usage=Usage(),
    )


def summed(*messages: Message) -> Conversation:
    return Conversation(messages=(*messages, SUMMED), kind="summary")


def test_a_context_ends_with_the_last_words_of_the_model() -> None:
    (conversation,) = conversation_of((TASK, SAID, HEARD))
    assert conversation.messages == (TASK, SAID)
    assert conversation_of((TASK, HEARD)) == ()


def test_a_summary_behind_all_that_was_said_is_the_end_of_the_context() -> None:
    whole = summed(TASK, SAID, HEARD)
    assert done(whole).segments((TASK, SAID, HEARD)) == [whole]


def test_a_context_stands_by_itself_where_its_summary_left_something_out() -> None:
    part = summed(TASK)
    kept = Conversation(messages=(TASK, SAID), kind="act")
    assert done(part).segments((TASK, SAID, HEARD)) == [kept, part]
    assert done().segments((TASK, SAID)) == [kept]
    assert done().segments((TASK,))[0].messages == (TASK,)
