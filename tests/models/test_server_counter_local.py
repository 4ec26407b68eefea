"""A tokenizer at hand and the server's: compared, and asked in turn."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.engines.tiny_model import chat_settings
from tests.models.chat_server import CHATML, CHATML_TOOLS, THINKING, TOKENIZER, Script, send
from tests.models.test_server_counter import ASK, counting, served

from memagent.errors import TokenizerError
from memagent.messages import Message, ToolSpec
from memagent.models.server_counter import TOOL_TALK, TOOLS
from memagent.tokens import ByteBound, TokenizerFile

LOCAL = TokenizerFile(TOKENIZER)


def test_a_tokenizer_that_agrees_counts_without_the_server(server: Script) -> None:
    server.be_vllm()
    with counting(server) as remote, counting(server, LOCAL) as found:
        server.asked.clear()
        assert found.who == "tokenizer"
        assert found.name == remote.name, "a run goes on whoever counts"
        assert found.control_tokens == LOCAL.control_tokens
        assert found.count("a house") == served("a house")
        assert found.count_messages(ASK) > 0
        assert found.measure("a house").tokens_of_prefix(1) == 1
        assert server.asked == []


@pytest.mark.parametrize("template", [CHATML + ".", THINKING], ids=["longer", "when not thinking"])
def test_another_template_is_asked_for_at_the_server(server: Script, template: str) -> None:
    server.be_vllm(template=template)
    with counting(server) as remote, counting(server, LOCAL) as found:
        assert found.who == "both"
        assert found.name == remote.name
        server.asked.clear()
        found.count("a house")
        found.measure("a house").tokens_of_prefix(3)
        assert server.asked == []
        count = found.count_messages(ASK, thinking=False)
    assert count > LOCAL.count_messages(ASK)
    assert len(server.asked) == 1


@pytest.mark.parametrize("local", [None, ByteBound()], ids=["none", "another"])
def test_another_tokenizer_is_not_used(server: Script, local: ByteBound | None) -> None:
    server.be_vllm()
    with counting(server) as remote, counting(server, local) as found:
        assert found.who == "server"
        assert found.name == remote.name
        assert found.count("naïve house") == served("naïve house")
        assert found.measure("naïve house").tokens == served("naïve house")


def test_the_same_prompt_is_counted_once(server: Script) -> None:
    server.be_vllm()
    half = (Message(role="user", content="\ud800"),)
    with counting(server) as found:
        server.asked.clear()
        counts = [found.count_messages(prompt) for prompt in (ASK, half, ASK, half)]
        assert counts[:2] == counts[2:]
        assert len(server.asked) == 2
        other = (Message(role="assistant", content=ASK[0].content),)
        for prompt, thinking in ((ASK, False), (other, None), ((*ASK, *ASK), None)):
            found.count_messages(prompt, thinking=thinking)
        assert len(server.asked) == 5


def test_a_tokenizer_that_turns_out_to_be_another_is_left(server: Script) -> None:
    server.be_vllm()
    with counting(server, LOCAL) as found:
        name = found.name
        assert found.distrust()
        server.asked.clear()
        assert found.count("a house") == served("a house")
        assert found.count_messages(ASK) > 0
        assert len(server.asked) == 2
        assert (found.who, found.name) == ("server", name)
        assert not found.distrust()


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
    with counting(server) as remote, counting(server, knowing) as found:
        server.asked.clear()
        count = found.count_messages(TOOL_TALK, tools=OTHERS)
        assert count == knowing.count_messages(TOOL_TALK, tools=OTHERS)
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
    with counting(server) as remote, counting(server, TokenizerFile(tmp_path)) as found:
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
    with counting(server) as found:
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
    with counting(server) as found:
        with pytest.raises(TokenizerError, match=r"only user and assistant.*text protocol"):
            found.count_messages(TOOL_TALK)
        assert found.count_messages(ASK) > 0


def test_a_counter_that_is_distrusted_asks_the_server_for_tools_too(
    server: Script, knowing: TokenizerFile
) -> None:
    server.be_vllm(template=CHATML_TOOLS)
    with counting(server, knowing) as found:
        found.count_messages(TOOL_TALK, tools=TOOLS)
        assert found.distrust()
        server.asked.clear()
        found.count_messages(TOOL_TALK, tools=TOOLS)
        assert len(server.asked) == 1


def test_conversations_that_differ_in_calls_alone_are_counted_apart(
    server: Script, knowing: TokenizerFile
) -> None:
    server.be_vllm(template=CHATML_TOOLS)
    with counting(server, knowing) as found:
        said = TOOL_TALK[1]
        longer = said.tool_calls[0].model_copy(update={"arguments": '{"name": "Natásha Rostova"}'})
        others = (
            said.model_copy(update={"tool_calls": ()}),
            said.model_copy(update={"tool_calls": said.tool_calls * 2}),
            said.model_copy(update={"tool_calls": (longer,)}),
        )
        counts = {found.count_messages((ASK[0], m)) for m in (said, *others)}
    assert len(counts) == 4
