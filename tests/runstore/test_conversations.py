import time

from hypothesis import given
from hypothesis import strategies as st

from memagent.messages import Message, TokenIds, Usage
from memagent.runstore import RunStore, Step
from memagent.runstore.conversations import pack, unpack
from memagent.trajectory import Conversation

texts = st.text(alphabet="ab:\u2060\U0001f600 ", max_size=6)


@given(st.lists(texts, min_size=1, max_size=3), texts)
def test_what_was_packed_comes_back_to_the_character(contents: list[str], chunk: str) -> None:
    messages = tuple(Message(role="user", content=content) for content in contents)
    conversation = Conversation(messages=messages, kind="update", chunk=4)
    packed, hole = pack(conversation, chunk)
    assert unpack(packed, hole, chunk) == conversation


def test_the_chunks_text_is_kept_out() -> None:
    text = "a long section of the document " * 20
    message = Message(role="user", content=f"<section>{text}</section>")
    packed, hole = pack(Conversation(messages=(message,)), text)
    assert "long section" not in packed
    assert hole == "0:9"


def test_turns_are_kept_and_their_name_stands_only_where_there_are_some() -> None:
    message = Message(role="user", content="hi")
    ids = TokenIds(prompt=(1,), sampled=(2,), logprobs=(-0.1,))
    turns = Conversation(messages=(message,), tokens=ids, turns=(ids,))
    assert unpack(pack(turns, "")[0], None, None) == turns
    assert "turns" not in pack(Conversation(messages=(message,), tokens=ids), "hi")[0]


def test_walking_a_long_run_is_linear() -> None:
    store = RunStore(None)
    store.create("r", {"questions": ["q"]}, {}, {})
    for chunk in [*range(1500), None]:
        message = Message(role="user", content=f"about {chunk}: " + "x" * 2000)
        conversation = Conversation(messages=(message,), chunk=chunk)
        store.begin("r", chunk, [0], text="x" * 2000, mark=None if chunk is None else {})
        store.commit(
            "r",
            Step(question=0, chunk=chunk, conversation=conversation, usage=Usage(), answer="A"),
            [],
        )
    start = time.perf_counter()
    walked = [conversation.chunk for conversation in store.conversations("r")]
    assert time.perf_counter() - start < 5  # it was minutes when each index sorted all texts
    assert walked == [*range(1500), None]
    assert [c.chunk for c in store.conversations("r")[-3:]] == [1498, 1499, None]
    store.close()
