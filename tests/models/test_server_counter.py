"""Counting at the server, exactly."""

import asyncio
import json
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.models.chat_server import (
    CHATML,
    THINKING,
    TOKENIZER,
    Script,
    hang_up,
    running,
    send,
    slow,
)
from tokenizers import Tokenizer, normalizers

from memagent.chunking import Chunker, chunk_text
from memagent.errors import BadResponse, ConnectionFailed, ModelNotFound, RequestTimeout, ServerBusy
from memagent.messages import Message
from memagent.models.dialects import DIALECTS
from memagent.models.openai_client import Clients
from memagent.models.server import Server
from memagent.models.server_counter import _MEMO, PROBES, ServerCounter
from memagent.tokens import TokenCounter, TokenizerFile

SERVED = Tokenizer.from_file(str(TOKENIZER / "tokenizer.json"))
ASK = (Message(role="user", content="Who is Pierre?"),)


def served(text: str) -> int:
    return len(SERVED.encode(text, add_special_tokens=False).ids)


@contextmanager
def counting(
    script: Script,
    local: TokenCounter | None = None,
    *,
    timeout: float = 60.0,
    **template: Any,
) -> Iterator[ServerCounter]:
    clients = Clients("vllm:tiny", script.url, None, {}, timeout)
    server = Server("tiny", clients, DIALECTS["vllm"])
    try:
        yield ServerCounter(server.ask, "tiny", template, local)
    finally:
        asyncio.run(server.aclose())


@pytest.fixture
def counter(server: Script) -> Iterator[ServerCounter]:
    server.be_vllm()
    with counting(server) as counter:
        server.asked.clear()
        yield counter


@pytest.fixture(scope="module")
def shared() -> Iterator[ServerCounter]:
    """One counter for all examples of a property."""
    with running() as script:
        script.be_vllm()
        with counting(script) as counter:
            yield counter


def test_texts_and_conversations_count_as_the_server_counts_them(
    server: Script, counter: ServerCounter
) -> None:
    for text in (*PROBES, "a<|im_end|>b", " "):
        assert counter.count(text) == served(text)
    assert counter.count("") == 0
    talk = (*ASK, Message(role="assistant", content="A count."), *ASK)
    prompt = "".join(f"<|im_start|>{m.role}\n{m.content}<|im_end|>\n" for m in talk)
    assert counter.count_messages(talk) == served(prompt + "<|im_start|>assistant\n")
    assert {path for path, _ in server.asked} == {"/tokenize"}
    assert server.of("/tokenize")[0] == {
        "model": "tiny",
        "prompt": PROBES[0],
        "add_special_tokens": False,
    }
    assert server.of("/tokenize")[-1]["add_generation_prompt"] is True


def test_a_switched_off_reasoning_is_counted(server: Script) -> None:
    server.be_vllm(template=THINKING)
    with counting(server) as counter:
        longer = served("<think>\n\n</think>\n\n")
        assert counter.count_messages(ASK, thinking=False) == counter.count_messages(ASK) + longer
        assert counter.count_messages(ASK, thinking=True) == counter.count_messages(ASK)


def test_what_requests_say_of_the_template_is_said_when_counting(server: Script) -> None:
    server.be_vllm(template=THINKING + "{{ more }}")
    with counting(server, chat_template_kwargs={"more": " and more"}) as counter:
        plain = counter.count_messages(ASK)
        off = counter.count_messages(ASK, thinking=False)
    kwargs = [body.get("chat_template_kwargs") for body in server.of("/tokenize")[-2:]]
    assert kwargs == [{"more": " and more"}, {"more": " and more", "enable_thinking": False}]
    assert off == plain + served("<think>\n\n</think>\n\n")
    with counting(server, chat_template_kwargs={"enable_thinking": True}) as counter:
        assert counter.count_messages(ASK, thinking=False) == counter.count_messages(ASK)


def test_the_name_says_which_tokenizer(server: Script, second: Script, tmp_path: Path) -> None:
    names: list[str] = []
    other = tmp_path / "other"
    other.mkdir()
    changed = Tokenizer.from_file(str(TOKENIZER / "tokenizer.json"))
    changed.normalizer = normalizers.Sequence([])
    changed.save(str(other / "tokenizer.json"))
    changes: list[dict[str, Any]] = [{}, {"template": CHATML + "."}, {"folder": other}]
    for serves in changes:
        server.be_vllm(**serves)
        with counting(server) as counter:
            names.append(counter.name)
    second.be_vllm(window=None)
    with counting(second) as counter:
        assert counter.name == names[0], "the same tokenizer at another server"
    assert names[0] == names[1], "a template may write the date, and a run goes on tomorrow"
    assert names[2] != names[0]
    assert all(name.startswith("server:") for name in names)


CHANGING = ["e\u0301", "\u1100\u1161", "\u0958", "K", "\ufb01", "\u0338", "ſ"]
EMOJI = ["👩‍👩‍👧", "🇩🇪", "👍🏽", "\ufffd", "<|im_end|>", "日本", " the", "\r\n\n", "\u200b"]
TEXTS = st.lists(
    st.sampled_from([*CHANGING, *EMOJI]) | st.text(st.characters(), max_size=5), max_size=12
).map("".join) | st.text(st.characters(categories=["Cs", "Mn", "So", "Lu"]), max_size=12)


@given(text=TEXTS, data=st.data())
def test_prefixes_are_counted_exactly(
    shared: ServerCounter, text: str, data: st.DataObject
) -> None:
    measured = shared.measure(text)
    assert measured.tokens == shared.count(text)
    ends = [data.draw(st.integers(-1, len(text) + 1)), measured.chars_within(measured.tokens // 2)]
    for end in ends:
        assert measured.tokens_of_prefix(end) == shared.count(text[: max(end, 0)])
    guides = [measured.chars_within(limit) for limit in (-1, 0, 1, measured.tokens)]
    assert guides[:2] == [0 if measured.tokens else len(text)] * 2
    assert guides[-1] == len(text)
    assert all(0 <= guide <= len(text) for guide in guides)


def test_guides_end_where_tokens_do(counter: ServerCounter) -> None:
    text = "The old prince's house, 1805; “Yes,” said Natásha 🙂🏽 there. " * 4
    measured = counter.measure(text)
    local = TokenizerFile(TOKENIZER).measure(text)
    for limit in range(0, measured.tokens + 1, 3):
        assert measured.chars_within(limit) == local.chars_within(limit)


@pytest.mark.parametrize(
    "text",
    [
        "It was in July, 1805, and Anna Pávlovna spoke.\n\n" * 40,
        "e\u0301" * 400,
        "\ufffd" * 300,
        chr(0xD800) * 300,
        "👩‍👩‍👧" * 60,
        "日本語と中文，한국어。" * 30,
    ],
    ids=["prose", "combining", "replacements", "surrogates", "families", "cjk"],
)
def test_a_document_is_chunked_as_with_the_tokenizer_itself(
    counter: ServerCounter, text: str
) -> None:
    def cut(tokens: Any) -> list[tuple[int, int, int]]:
        return [(c.start, c.end, c.tokens) for c in chunk_text([text], Chunker(tokens, 64))]

    chunks = cut(counter)
    assert chunks[0][0] == 0
    assert chunks[-1][1] == len(text)
    assert all(tokens <= 64 for *_, tokens in chunks)
    assert all(tokens >= 32 for *_, tokens in chunks[:-1])
    # Where the tokenizer normalises, the guide is a guess, and chunks are less than full.
    if unicodedata.is_normalized("NFC", text):
        assert chunks[0] == cut(TokenizerFile(TOKENIZER))[0]


# --- when the server fails


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        (send(503, {"message": "full"}), ServerBusy),
        (hang_up, ConnectionFailed),
        (send(404, {"detail": "Not Found"}), ModelNotFound),
    ],
    ids=["busy", "gone", "missing"],
)
def test_a_count_is_asked_for_once(
    server: Script, counter: ServerCounter, behaviour: Any, error: type[Exception]
) -> None:
    server.others["/tokenize"] = behaviour
    server.asked.clear()
    with pytest.raises(error):
        counter.count("house")
    assert len(server.asked) == 1, "who counts waits for the server, not the counter"


def test_counts_are_forgotten_one_by_one(server: Script, counter: ServerCounter) -> None:
    prompts = [(Message(role="user", content=str(n)),) for n in range(_MEMO + 1)]
    for prompt in (*prompts, *prompts[1:]):
        counter.count_messages(prompt)
    assert len(server.asked) == len(prompts)


def test_making_the_counter_asks_each_thing_once(server: Script, nobody: str) -> None:
    server.others = {"/tokenize": send(503, {"message": "full"})}
    with pytest.raises(ServerBusy), counting(server):
        pass
    assert len(server.asked) == 1
    with pytest.raises(ConnectionFailed), counting(Script(url=nobody)):
        pass


@pytest.mark.parametrize(
    "said",
    [{}, {"tokens": "abc"}, {"tokens": [1, "a"]}, {"tokens": [True]}, {"count": 3}],
    ids=json.dumps,
)
def test_no_ids_are_no_count(server: Script, counter: ServerCounter, said: Any) -> None:
    server.others["/tokenize"] = send(200, said)
    with pytest.raises(BadResponse, match="no token ids in the reply to /tokenize"):
        counter.count("house")


def test_texts_come_in_either_form(server: Script, counter: ServerCounter) -> None:
    for reply in ({"prompt": "a b"}, {"text": "a b"}):
        server.others["/detokenize"] = send(200, reply)
        assert counter.text([1, 2]) == "a b"
    server.others["/detokenize"] = send(200, {"tokens": [1]})
    with pytest.raises(BadResponse, match="no text in the reply to /detokenize"):
        counter.text([1])


def test_a_hung_server_is_given_up(server: Script) -> None:
    server.others = {"/tokenize": slow(5)}
    given_up = pytest.raises(RequestTimeout, match=r"no answer within 0\.2 s")
    with given_up, counting(server, timeout=0.2):
        pass
    assert server.left.wait(5)


@pytest.mark.parametrize("behind", [send(404, {"detail": "Not Found"}), send(403, {})])
def test_cuts_are_found_without_detokenize(server: Script, behind: Any) -> None:
    server.be_vllm()
    server.others["/detokenize"] = behind
    text = "Natasha Rostova marries Pierre. " * 60
    with counting(server) as counter:
        chunks = list(chunk_text(text, Chunker(counter, 64, cuts="exact")))
    assert "".join(chunk.text for chunk in chunks) == text
    assert all(served(chunk.text) <= 64 for chunk in chunks)
    assert len(chunks) <= served(text) // 64 + 2
    assert len(server.of("/detokenize")) == 1, "it is asked once"
