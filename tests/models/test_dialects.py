"""Dialects in general: who speaks which, and what all of them send."""

from typing import Any

import pytest

from memagent.messages import ChatRequest, Message
from memagent.models.dialects import DIALECTS, Dialect, DialectName

ASK = ChatRequest(messages=(Message(role="user", content="hi"),), max_tokens=9)
IDS = {"return_token_ids": True, "logprobs": True}
DRAWN = {"temperature": 0.7, "top_p": 0.95}


def test_names_are_unambiguous() -> None:
    assert {name: dialect.name for name, dialect in DIALECTS.items()} == {n: n for n in DIALECTS}


@pytest.mark.parametrize("name", list(DIALECTS))
def test_a_bare_request_asks_for_its_limit_alone(name: DialectName) -> None:
    dialect = DIALECTS[name]
    assert dialect.fields(ASK, tokens=False) == DRAWN | {dialect.limit: 9}
    seeded = ASK.model_copy(update={"seed": 0})
    assert dialect.fields(seeded, tokens=False) == DRAWN | {dialect.limit: 9, "seed": 0}


def test_an_assistants_last_message_is_to_be_continued() -> None:
    begun = ASK.model_copy(
        update={"messages": (*ASK.messages, Message(role="assistant", content="It"))}
    )
    able = Dialect("plain", continues={"go_on": True})
    assert able.fields(begun, tokens=False) == DRAWN | {"max_tokens": 9, "go_on": True}
    assert able.fields(ASK, tokens=False) == DRAWN | {"max_tokens": 9}
    assert Dialect("plain").fields(begun, tokens=False) == DRAWN | {"max_tokens": 9}


def test_what_a_dialect_cannot_say_is_left_out() -> None:
    ask = ASK.model_copy(update={"thinking": False, "pattern": "a+"})
    mute = Dialect("plain")
    assert mute.fields(ask, tokens=True) == DRAWN | {"max_tokens": 9}
    able = Dialect("plain", engine=True, token_ids=True, pattern=lambda regex: {"held_to": regex})
    assert able.fields(ask, tokens=True) == DRAWN | {
        "max_tokens": 9,
        "chat_template_kwargs": {"enable_thinking": False},
        "held_to": "a+",
        **IDS,
    }
    assert not set(IDS) & set(able.fields(ask, tokens=False))


FULL = ASK.model_copy(update={"seed": 3, "thinking": False, "pattern": r"\S[\s\S]*"})
SWITCH = {"chat_template_kwargs": {"enable_thinking": False}}


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("plain", {"max_tokens": 9}),
        ("openai", {"max_completion_tokens": 9}),
        ("vllm", {"max_tokens": 9, "structured_outputs": {"regex": r"\S[\s\S]*"}, **SWITCH, **IDS}),
        ("sglang", {"max_tokens": 9, "regex": r"\S[\s\S]*", **SWITCH, **IDS}),
        ("llamacpp", {"max_tokens": 9, **SWITCH}),
        ("ollama", {"max_tokens": 9}),
    ],
)
def test_what_is_asked_of_each(name: DialectName, fields: dict[str, Any]) -> None:
    assert DIALECTS[name].fields(FULL, tokens=True) == DRAWN | fields | {"seed": 3}


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_reasoning_is_switched_on_in_the_template(name: DialectName) -> None:
    on = DIALECTS[name].fields(ASK.model_copy(update={"thinking": True}), tokens=False)
    assert on == DRAWN | {"max_tokens": 9, "chat_template_kwargs": {"enable_thinking": True}}


def test_who_gives_itself_away_and_counts() -> None:
    said = {n: (d.engine, d.version) for n, d in DIALECTS.items()}
    assert said == {
        "plain": (False, None),
        "llamacpp": (True, None),
        "ollama": (False, ("/api/version", "version")),
        "openai": (False, None),
        "vllm": (True, ("/version", "version")),
        "sglang": (True, ("/server_info", "version")),
    }
