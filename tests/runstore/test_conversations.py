from hypothesis import given
from hypothesis import strategies as st

from memagent.messages import Message
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
