"""Turns prompts of one rollout into ids: a prompt that continues a conversation starts with exactly its ids."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from memagent.messages import Message, ToolCall, ToolSpec
from memagent.texts import repair_surrogates
from memagent_train.rollout.template import Template

MOST_IDS = 1_000_000
"""Maximum ids to remember: 8 MB. A rollout that opens more conversations forgets the oldest."""
MOST_PROMPTS = 64
"""Prompts remembered between being counted and being sent."""

STAND_IN = "memagent"
"""Placeholder for a reply, to see what a template adds after one. Any word works that no template looks for."""

_Key = tuple[tuple[str, str, tuple[ToolCall, ...], str | None], ...]
_PromptKey = tuple[_Key, bool | None, tuple[str, ...]]


@dataclass(frozen=True)
class Prompt:
    """A prompt ready to be sent."""

    ids: tuple[int, ...]
    """P ids."""
    text: str
    """The prompt as the template renders it."""


@dataclass(frozen=True)
class _Open:
    """A conversation that ends with a reply."""

    ids: array[int]
    """All ids of the conversation, as the engine saw and sampled them."""
    before: str
    """The prompt of the last reply, as text."""
    ended: bool
    """Whether the last id is an end token that the reply ended with."""


class Conversations:
    """The conversations of one rollout, by their messages. Thread-safe.

    A conversation is found by its messages, including the reply's text, and continued by its ids: sampled
    ids are never retokenised. One that was forgotten, or whose messages changed, is tokenised from scratch.

    Args:
        template: renders and tokenises prompts.
    """

    def __init__(self, template: Template) -> None:
        self._template = template
        self._lock = threading.Lock()
        self._open: dict[_Key, _Open] = {}
        self._ids = 0
        self._prompts: dict[_PromptKey, Prompt] = {}

    def prompt(
        self,
        messages: Sequence[Message],
        *,
        thinking: bool | None = None,
        tools: Sequence[ToolSpec] = (),
    ) -> Prompt:
        """Returns the prompt of messages and tools. Blocks if it is long and not cached.

        Raises:
            TokenizerError: the template rejects the messages, or doesn't show the tools.
        """
        key = _prompt_key(messages, thinking, tools)
        prompt = self._prompts.get(key)
        if prompt is None:
            prompt = self._make(key[0], messages, thinking, tools)
            with self._lock:
                if len(self._prompts) >= MOST_PROMPTS:
                    self._prompts.pop(next(iter(self._prompts)))
                self._prompts[key] = prompt
        return prompt

    def has_prompt(
        self,
        messages: Sequence[Message],
        *,
        thinking: bool | None = None,
        tools: Sequence[ToolSpec] = (),
    ) -> bool:
        """Returns whether `prompt` would find a cached result."""
        return _prompt_key(messages, thinking, tools) in self._prompts

    def add_reply(
        self,
        messages: Sequence[Message],
        prompt: Prompt,
        text: str,
        sampled: Sequence[int],
        *,
        ended: bool,
        thinking: bool | None = None,
        calls: tuple[ToolCall, ...] = (),
        tools: Sequence[ToolSpec] = (),
    ) -> None:
        """Remembers a reply, so that the conversation can continue after it.

        Args:
            messages: what was sent.
            prompt: the same, as returned by `prompt`.
            text: the reply, without its calls.
            sampled: T ids of the reply.
            ended: whether the last of them is an end token.
            thinking: as in the request.
            calls: tool calls of the reply.
            tools: as in the request.
        """
        prompt_key = _prompt_key(messages, thinking, tools)
        key = (*prompt_key[0], ("assistant", text, calls, None))
        entry = _Open(array("q", (*prompt.ids, *sampled)), prompt.text, ended)
        with self._lock:
            # A sent prompt is seldom sent again, and takes as much room as what replaces it.
            self._prompts.pop(prompt_key, None)
            self._forget(key)
            self._open[key] = entry
            self._ids += len(entry.ids)
            while self._ids > MOST_IDS and len(self._open) > 1:
                self._forget(next(iter(self._open)))

    def _forget(self, key: _Key) -> None:
        gone = self._open.pop(key, None)
        if gone is not None:
            self._ids -= len(gone.ids)

    def _make(
        self,
        key: _Key,
        messages: Sequence[Message],
        thinking: bool | None,
        tools: Sequence[ToolSpec],
    ) -> Prompt:
        for place in range(len(messages) - 2, 0, -1):
            earlier = (
                self._open.get(key[: place + 1]) if messages[place].role == "assistant" else None
            )
            if earlier is not None:
                return self._continue(earlier, messages, place, thinking, tools)
        text = self._template.render(messages, thinking=thinking, tools=tools)
        return Prompt(self._template.encode(text), text)

    def _continue(
        self,
        earlier: _Open,
        messages: Sequence[Message],
        place: int,
        thinking: bool | None,
        tools: Sequence[ToolSpec],
    ) -> Prompt:
        rendered = render_continuation(
            self._template, earlier.before, messages, place, thinking=thinking, tools=tools
        )
        if rendered.tail is None:
            return Prompt(self._template.encode(rendered.text), rendered.text)
        tail = self._template.encode(rendered.tail)
        # The template ends a turn with the same token as the reply, unless that was cut off.
        doubled = earlier.ended and tail[:1] == (earlier.ids[-1],)
        return Prompt((*earlier.ids, *tail[doubled:]), rendered.text)


def _key(messages: Sequence[Message]) -> _Key:
    # Strings cache their hash, so a long prompt is hashed only once, however often it is looked up.
    return tuple((m.role, m.content, m.tool_calls, m.tool_call_id) for m in messages)


def _prompt_key(
    messages: Sequence[Message], thinking: bool | None, tools: Sequence[ToolSpec]
) -> _PromptKey:
    return _key(messages), thinking, tuple(tool.model_dump_json() for tool in tools)


@dataclass(frozen=True)
class Rendered:
    """A prompt, and its new part if it continues a conversation."""

    text: str
    """The whole prompt, up to where the model's turn begins."""
    tail: str | None = None
    """What follows the last reply; None for a conversation that must be tokenised from its start."""


def render_continuation(
    template: Template,
    before: str,
    messages: Sequence[Message],
    place: int,
    *,
    thinking: bool | None = None,
    tools: Sequence[ToolSpec] = (),
) -> Rendered:
    """Renders a prompt that continues after a reply.

    The tail is what the template itself adds after a reply, so it does not depend on the reply's
    text. There is none if the template changes earlier text: some drop earlier reasoning.

    Args:
        template: renders messages.
        before: the prompt of the reply, as text.
        messages: all messages, including the reply.
        place: the reply's index.
        thinking: as in `ChatRequest`.
        tools: likewise.
    """
    text = template.render(messages, thinking=thinking, tools=tools)
    reply = messages[place]
    reply_text = repair_surrogates(reply.content)
    head = before + reply_text
    # The reply is there verbatim and ends in a visible character, so nothing after it can be part of it.
    if (
        reply_text != ""
        and reply_text == reply_text.rstrip()
        and not reply.tool_calls
        and text.startswith(head)
    ):
        return Rendered(text, text[len(head) :])
    stand_in = Message(role=reply.role, content=STAND_IN)
    other = template.render(
        (*messages[:place], stand_in, *messages[place + 1 :]), thinking=thinking, tools=tools
    )
    head = before + STAND_IN
    tail = other[len(head) :]
    rendering = text[len(before) : len(text) - len(tail)]
    # Templates strip white space around replies, and write calls in their own way; the ids keep what was sampled.
    if reply.tool_calls:
        same = _says(template, before, rendering, tools) == _content(
            reply.content, reply.tool_calls
        )
    else:
        same = rendering.strip() == reply_text.strip()
    if other.startswith(head) and text.startswith(before) and text.endswith(tail) and same:
        return Rendered(text, tail)
    return Rendered(text)


def _says(template: Template, prompt_text: str, text: str, tools: Sequence[ToolSpec]) -> object:
    """Parses the text and calls of a rendered reply that follows a prompt."""
    ids, prompt = template.encode(text), template.encode(prompt_text)
    return _content(*template.read_calls(ids, tools, prompt=prompt))


def _content(text: str, calls: Sequence[ToolCall]) -> object:
    """Normalises a reply with calls: equal replies compare equal whatever their calls' ids."""
    return repair_surrogates(text).strip(), [(call.name, call.values()) for call in calls]
