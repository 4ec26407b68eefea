"""A tokenizer at hand and the server's: compared, and asked in turn."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engines.tiny_model import chat_settings
from tests.models.chat_server import CHATML, CHATML_TOOLS, THINKING, TOKENIZER, Script, send
from tests.models.test_server_counter import ASK, counting, served

from memagent.errors import TokenizerError
from memagent.messages import Message, ToolSpec
from memagent.models.checked_counter import TOOL_TALK, TOOLS, CheckedCounter, checked
from memagent.models.server_counter import ServerCounter
from memagent.tokens import ByteBound, TokenizerFile


@pytest.fixture
def counter(server: Script) -> Iterator[ServerCounter]:
    server.be_vllm()
    with counting(server) as counter:
        server.asked.clear()
        yield counter


def test_a_tokenizer_that_agrees_counts_without_the_server(
    server: Script, counter: ServerCounter
) -> None:
    local = TokenizerFile(TOKENIZER)
    found, agrees = checked(local, counter)
    assert agrees
    assert (found.who, found.asks) == ("tokenizer", False)
    assert found.name == counter.name, "a run goes on whoever counts"
    assert found.control_tokens == local.control_tokens
    server.asked.clear()
    assert found.count("a house") == served("a house")
    assert found.count_messages(ASK) > 0
    assert found.measure("a house").tokens_of_prefix(1) == 1
    assert server.asked == []


@pytest.mark.parametrize("template", [CHATML + ".", THINKING], ids=["longer", "when not thinking"])
def test_another_template_is_asked_for_at_the_server(server: Script, template: str) -> None:
    server.be_vllm(template=template)
    local = TokenizerFile(TOKENIZER)
    with counting(server) as remote:
        found, agrees = checked(local, remote)
        assert agrees
        assert (found.who, found.asks) == ("both", True)
        assert found.name == remote.name
        server.asked.clear()
        found.count("a house")
        found.measure("a house").tokens_of_prefix(3)
        assert server.asked == []
        count = found.count_messages(ASK, thinking=False)
    assert count > local.count_messages(ASK)
    assert len(server.asked) == 1


@pytest.mark.parametrize("local", [None, ByteBound()], ids=["none", "another"])
def test_another_tokenizer_is_not_used(counter: ServerCounter, local: ByteBound | None) -> None:
    found, agrees = checked(local, counter)
    assert not agrees
    assert (found.who, found.asks) == ("server", True)
    assert found.name == counter.name
    assert found.count("naïve house") == served("naïve house")
    assert found.measure("naïve house").tokens == served("naïve house")


def test_the_same_prompt_is_counted_once(server: Script, counter: ServerCounter) -> None:
    found = CheckedCounter(counter, counter, counter)
    half = (Message(role="user", content="\ud800"),)
    for prompt in (ASK, half, ASK, half):
        assert found.count_messages(prompt) == counter.count_messages(prompt)
    assert len(server.asked) == 2 + 4
    server.asked.clear()
    other = (Message(role="assistant", content=ASK[0].content),)
    for prompt, thinking in ((ASK, False), (other, None), ((*ASK, *ASK), None)):
        found.count_messages(prompt, thinking=thinking)
    assert len(server.asked) == 3


def test_a_tokenizer_that_turns_out_to_be_another_is_left(counter: ServerCounter) -> None:
    found = CheckedCounter(ByteBound(), ByteBound(), counter)
    assert found.count("a house") == 7
    assert found.distrust()
    assert found.count("a house") == served("a house")
    assert (found.who, found.asks, found.name) == ("server", True, counter.name)
    assert not found.distrust()


def test_the_memo_does_not_grow(server: Script, counter: ServerCounter) -> None:
    found = CheckedCounter(ByteBound(), ByteBound(), counter)
    for n in range(1000):
        found.count_messages((Message(role="user", content=str(n)),))
    assert len(found._memo) <= 256


# --- with tools


@pytest.fixture
def knowing(tmp_path: Path) -> TokenizerFile:
    """A tokenizer whose template knows tools."""
    shutil.copy(TOKENIZER / "tokenizer.json", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(chat_settings()))
    return TokenizerFile(tmp_path)


OTHERS = (ToolSpec(name="look"), *TOOLS)


def test_a_template_that_agrees_counts_tools_without_the_server(
    server: Script, knowing: TokenizerFile
) -> None:
    server.be_vllm(template=CHATML_TOOLS)
    with counting(server) as remote:
        found, _ = checked(knowing, remote)
        server.asked.clear()
        count = found.count_messages(TOOL_TALK, tools=OTHERS)
        assert count == knowing.count_messages(TOOL_TALK, tools=OTHERS)
        assert found.recall(TOOL_TALK, tools=OTHERS) == count
        assert found.recall(TOOL_TALK) is found.recall(TOOL_TALK, tools=TOOLS) is None
        assert len(server.asked) == 3  # the comparison
        server.asked.clear()
        assert found.count_messages(TOOL_TALK) < found.count_messages(ASK * 9, tools=OTHERS)
        assert server.asked == []
        assert remote.count_messages(TOOL_TALK, tools=OTHERS) == count
    assert server.of("/tokenize")[-1]["tools"] == [tool.to_openai() for tool in OTHERS]


@pytest.mark.parametrize(
    "local", [CHATML, CHATML_TOOLS.replace("# Tools", "# All of the tools that there are")]
)
def test_a_template_that_differs_with_tools_leaves_them_to_the_server(
    server: Script, tmp_path: Path, local: str
) -> None:
    server.be_vllm(template=CHATML_TOOLS)
    shutil.copy(TOKENIZER / "tokenizer.json", tmp_path)
    settings = json.dumps(chat_settings() | {"chat_template": local})
    (tmp_path / "tokenizer_config.json").write_text(settings)
    with counting(server) as remote:
        found, _ = checked(TokenizerFile(tmp_path), remote)
        count = found.count_messages(TOOL_TALK, tools=OTHERS)
        assert count == remote.count_messages(TOOL_TALK, tools=OTHERS)
        server.asked.clear()
        found.count_messages(TOOL_TALK[:3])
        assert len(server.asked) == 1
        server.asked.clear()
        found.count("a house")
        assert server.asked == []


def test_a_server_whose_template_shows_no_tools_is_told_of(server: Script) -> None:
    server.be_vllm(template=CHATML)
    with counting(server) as remote:
        found, _ = checked(None, remote)
        for _ in range(2):
            with pytest.raises(TokenizerError, match=r"\['born'\].*text protocol"):
                found.count_messages(ASK, tools=OTHERS)


def test_a_server_whose_template_refuses_tools_is_told_of(server: Script) -> None:
    server.be_vllm(template=CHATML_TOOLS)
    count = server.others["/tokenize"]

    def refuse(handler: Any) -> None:
        said = {"error": {"message": "only user and assistant", "code": 400}}
        (send(400, said) if "tools" in handler.body else count)(handler)

    server.others["/tokenize"] = refuse
    with counting(server) as remote:
        found, _ = checked(None, remote)
        with pytest.raises(TokenizerError, match=r"only user and assistant.*text protocol"):
            found.count_messages(TOOL_TALK)
        assert found.count_messages(ASK) > 0


def test_a_counter_that_is_distrusted_asks_the_server_for_tools_too(
    server: Script, knowing: TokenizerFile
) -> None:
    server.be_vllm(template=CHATML_TOOLS)
    with counting(server) as remote:
        found = CheckedCounter(knowing, knowing, remote)
        found.count_messages(TOOL_TALK, tools=TOOLS)
        assert found.distrust()
        server.asked.clear()
        found.count_messages(TOOL_TALK, tools=TOOLS)
        assert len(server.asked) == 1


def test_conversations_that_differ_in_calls_alone_are_counted_apart(
    server: Script, knowing: TokenizerFile
) -> None:
    server.be_vllm(template=CHATML_TOOLS)
    with counting(server) as remote:
        found = CheckedCounter(knowing, knowing, remote)
        said = TOOL_TALK[1]
        longer = said.tool_calls[0].model_copy(update={"arguments": '{"name": "Natásha Rostova"}'})
        others = (
            said.model_copy(update={"tool_calls": ()}),
            said.model_copy(update={"tool_calls": said.tool_calls * 2}),
            said.model_copy(update={"tool_calls": (longer,)}),
        )
        counts = {found.count_messages((ASK[0], m)) for m in (said, *others)}
    assert len(counts) == 4
