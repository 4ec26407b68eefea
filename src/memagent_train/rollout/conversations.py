"""Prompts of one rollout as ids: those that continue a conversation begin with its ids, to the last one."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from memagent.messages import Message, ToolCall
from memagent.models.transformers.template import Template

MOST_IDS = 1_000_000
"""Ids that are remembered at most: 8 MB. A rollout that opens more conversations forgets the oldest."""
MOST_PROMPTS = 64
"""Prompts that are remembered between being counted and being sent."""

_Key = tuple[tuple[str, str, tuple[ToolCall, ...], str | None], ...]
_PromptKey = tuple[_Key, bool | None]


@dataclass(frozen=True)
class Prompt:
    """A prompt that is ready to be sent."""

    ids: tuple[int, ...]
    """P ids."""
    text: str
    """As the template writes it."""


@dataclass(frozen=True)
class _Open:
    """A conversation whose last word is a reply."""

    ids: array[int]
    """Of all of it, as the engine saw and sampled them."""
    before: str
    """The prompt of the last reply, as text."""
    ended: bool
    """Whether the last id is the token with which the reply ended itself."""


class Conversations:
    """What was said in one rollout, by its messages. Thread-safe.

    A conversation is found by its messages, the reply's text among them, and continued by its ids: what
    was sampled is never tokenised again. One that was forgotten, or whose messages were changed, is read afresh.

    Args:
        template: writes and reads prompts.
    """

    def __init__(self, template: Template) -> None:
        self._template = template
        self._lock = threading.Lock()
        self._open: dict[_Key, _Open] = {}
        self._ids = 0
        self._prompts: dict[_PromptKey, Prompt] = {}

    def prompt(self, messages: Sequence[Message], *, thinking: bool | None = None) -> Prompt:
        """The prompt that the messages make. Blocks where it is long and was not asked for before.

        Raises:
            TokenizerError: the template refuses the messages.
        """
        key = (_key(messages), thinking)
        known = self._prompts.get(key)
        if known is None:
            known = self._make(key[0], messages, thinking)
            with self._lock:
                if len(self._prompts) >= MOST_PROMPTS:
                    self._prompts.pop(next(iter(self._prompts)))
                self._prompts[key] = known
        return known

    def known(self, messages: Sequence[Message], *, thinking: bool | None = None) -> bool:
        """Whether `prompt` has the answer at hand."""
        return (_key(messages), thinking) in self._prompts

    def replied(
        self,
        messages: Sequence[Message],
        prompt: Prompt,
        text: str,
        sampled: Sequence[int],
        *,
        ended: bool,
        thinking: bool | None = None,
    ) -> None:
        """Remembers a reply, so that the conversation can go on behind it.

        Args:
            messages: what was sent.
            prompt: the same, as `prompt` gave it.
            text: the reply.
            sampled: T ids of the reply.
            ended: whether the last of them is an end token.
            thinking: as in the request.
        """
        asked = _key(messages)
        key = (*asked, ("assistant", text, (), None))
        entry = _Open(array("q", (*prompt.ids, *sampled)), prompt.text, ended)
        with self._lock:
            # A prompt that was sent is seldom sent again, and it is as long as what is kept in its place.
            self._prompts.pop((asked, thinking), None)
            self._forget(key)
            self._open[key] = entry
            self._ids += len(entry.ids)
            while self._ids > MOST_IDS and len(self._open) > 1:
                self._forget(next(iter(self._open)))

    def _forget(self, key: _Key) -> None:
        gone = self._open.pop(key, None)
        if gone is not None:
            self._ids -= len(gone.ids)

    def _make(self, key: _Key, messages: Sequence[Message], thinking: bool | None) -> Prompt:
        for place in range(len(messages) - 2, 0, -1):
            earlier = (
                self._open.get(key[: place + 1]) if messages[place].role == "assistant" else None
            )
            if earlier is not None:
                return self._continue(earlier, messages, place, thinking)
        text = self._template.render(messages, thinking=thinking)
        return Prompt(self._template.encode(text), text)

    def _continue(
        self, earlier: _Open, messages: Sequence[Message], place: int, thinking: bool | None
    ) -> Prompt:
        rendered = self._template.continued(earlier.before, messages, place, thinking=thinking)
        if rendered.tail is None:
            return Prompt(self._template.encode(rendered.text), rendered.text)
        tail = self._template.encode(rendered.tail)
        # The template ends a turn with the token that the reply, if it was not cut off, ended itself with.
        doubled = earlier.ended and tail[:1] == (earlier.ids[-1],)
        return Prompt((*earlier.ids, *tail[doubled:]), rendered.text)


def _key(messages: Sequence[Message]) -> _Key:
    # Strings keep their hash, so a long prompt is hashed once however often it is looked up.
    return tuple((m.role, m.content, m.tool_calls, m.tool_call_id) for m in messages)
