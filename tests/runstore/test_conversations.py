import time

from hypothesis import given
from hypothesis import strategies as st

from memagent.messages import Message, TokenIds
from memagent.runstore import RunStore
from memagent.runstore.conversations import without_text
from memagent.trajectory import Conversation

texts = st.text(alphabet="ab:\u2060\U0001f600 ", max_size=6)
ids = TokenIds(prompt=(1,), sampled=(2,), logprobs=(-0.1,))


@given(st.lists(texts, min_size=1, max_size=3), texts, st.sampled_from([None, ids]))
def test_what_was_packed_comes_back_to_the_character(
    contents: list[str], chunk: str, tokens: TokenIds | None
) -> None:
    messages = tuple(Message(role="user", content=content) for content in contents)
    turns = () if tokens is None else (tokens,)
    whole = Conversation(messages=messages, kind="update", chunk=0, tokens=tokens, turns=turns)
    store = RunStore(None)
    store.create("r1", {}, {}, {})
    store.commit("r1", "chunk-0", {"text": chunk})
    store.commit("r1", "update-0/q0", without_text({"conversation": whole.model_dump()}, chunk))
    assert store.conversations("r1")[0] == whole
    store.close()


def test_walking_a_long_run_is_linear() -> None:
    store = RunStore(None)
    store.create("r1", {}, {}, {})
    for chunk in range(1500):
        message = Message(role="user", content=f"about {chunk}: " + "x" * 2000)
        whole = Conversation(messages=(message,), chunk=chunk)
        store.commit("r1", f"chunk-{chunk}", {"text": "x" * 2000})
        body = {"conversation": whole.model_dump(mode="json")}
        store.commit("r1", f"update-{chunk}/q0", without_text(body, "x" * 2000))
    start = time.process_time()
    walked = [conversation.chunk for conversation in store.conversations("r1")]
    indexed = store.conversations("r1")
    assert [indexed[place].chunk for place in range(len(indexed))] == walked == [*range(1500)]
    assert time.process_time() - start < 5  # it was minutes when each index sorted all texts
    store.close()
