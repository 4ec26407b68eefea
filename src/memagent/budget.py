"""How a model's window is divided among frame, question, memory, chunk and output."""

from __future__ import annotations

from pydantic import computed_field

from memagent.errors import QuestionTooLong, WindowTooSmall
from memagent.messages import Leaf

DEFAULT_WINDOW = 8192
"""The published system's window. A larger one is used only on request: cost per token grows with it."""
JOINT_SLACK = 16
"""Texts counted separately may take more tokens once joined: four fields, two ends each, two tokens per end."""
MEMORY_SHARE = 1024 / 8072
"""The published memory of 1024 tokens, as a share of what the frames leave of an 8192 window."""
CHUNK_SHARE = 5000 / 8192
"""The published chunk of 5000 tokens in a window of 8192."""
MIN_CHUNK = 32
"""A smaller chunk couldn't hold a sentence, and a single character might not fit."""


class ContextBudget(Leaf):
    """Token counts whose sum never exceeds the window."""

    window: int
    frame: int
    """Tokens of the largest prompt with all fields empty."""
    question: int
    """Tokens of the (longest) question."""
    memory: int
    """Maximum tokens of the memory."""
    output: int
    """Maximum tokens that one call may generate."""
    chunk: int
    """Maximum tokens of a chunk."""

    @computed_field
    @property
    def prompt(self) -> int:
        """Upper bound on the tokens of any prompt made within this budget."""
        return self.frame + self.question + self.memory + self.chunk + JOINT_SLACK

    @classmethod
    def divide(
        cls,
        window: int,
        *,
        frame: int,
        question: int,
        empty_memory: int = 0,
        memory: int | None = None,
        chunk: int | None = None,
    ) -> ContextBudget:
        """Divides a window.

        With `U = window - frame - 16`: memory and output each get `U * 1024 / 8072`, the question gets
        what it needs (up to the same share), the chunk gets the rest (up to `5000 * window / 8192`).

        Args:
            window: tokens of prompt plus output.
            frame: tokens of the largest prompt with empty fields.
            question: tokens of the longest question.
            empty_memory: tokens of the text that means "no memory yet".
            memory: memory (and output) tokens, instead of the share above.
            chunk: chunk tokens, instead of the rest.

        Raises:
            WindowTooSmall: there is no room for a chunk of 32 tokens, or for the requested sizes.
            QuestionTooLong: the question exceeds its share.
        """
        usable = window - frame - JOINT_SLACK
        if usable < MIN_CHUNK:
            raise WindowTooSmall(
                f"the window of {window!r} tokens is too small: the prompt's own wording takes "
                f"{frame + JOINT_SLACK} tokens; use a larger window"
            )
        share = int(usable * MEMORY_SHARE)
        memory_tokens = share if memory is None else memory
        room = usable - question - 2 * memory_tokens
        shares = f"question {question}, memory {memory_tokens} and output {memory_tokens}"
        numbers = f"frame {frame}, joints {JOINT_SLACK}, {shares}"
        if memory_tokens < max(empty_memory, 1):
            raise WindowTooSmall(
                f"a memory of {memory_tokens!r} tokens is too small: the text for an empty one takes {empty_memory} "
                f"(of the window of {window}: {numbers}); use a larger window or memory_tokens"
            )
        if question > share and share >= 1 and usable - 2 * memory_tokens >= MIN_CHUNK:
            raise QuestionTooLong(
                f"the question takes {question!r} tokens, but a window of {window} allows {share}: "
                f"shorten it, move its long part into the document, or use a larger window"
            )
        if room < MIN_CHUNK:
            raise WindowTooSmall(
                f"the window of {window!r} tokens has no room for a chunk of at least {MIN_CHUNK}: {numbers} already "
                f"take {window - room}; use a larger window or smaller memory_tokens"
            )
        if chunk is not None and not MIN_CHUNK <= chunk <= room:
            raise WindowTooSmall(
                f"a chunk of {chunk!r} tokens does not fit: it must be {MIN_CHUNK} to {room} tokens "
                f"(of the window of {window}: {numbers}); change chunk_tokens, or use a larger window"
            )
        return cls(
            window=window,
            frame=frame,
            question=question,
            memory=memory_tokens,
            output=memory_tokens,
            chunk=min(room, max(MIN_CHUNK, int(CHUNK_SHARE * window))) if chunk is None else chunk,
        )
