"""A prompt set: one TOML file that turns state into messages."""

from functools import partial
from itertools import product
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from memagent.errors import PromptSetError
from memagent.messages import CallKind, Leaf, Message, Role
from memagent.prompts.loading import TagName, Wording, check_shown, compile_template

Gate = Literal["off", "update", "exit", "both"]
"""Which literals the model may reply with: keep (update gate), done (exit gate), both, or none."""
AnswerForm = Literal["plain", "boxed", "sentence"]
WIDEST_WORDS = 99999
"""Stands for `memory_words` when frames are measured: no real number takes more tokens."""
WORDS_PER_TOKEN = 0.7
"""English takes 1.3-1.4 tokens per word; the prompt limits words because models cannot count tokens."""


class Tags(Leaf):
    """The names of the tags around the fields of a reading's prompts."""

    question: TagName
    memory: TagName
    chunk: TagName


class Stop(Leaf):
    """Strings that end a reply; everything after the first of them is dropped. OpenAI accepts at most four."""

    update: tuple[Annotated[str, Field(min_length=1)], ...] = Field(default=(), max_length=4)
    answer: tuple[Annotated[str, Field(min_length=1)], ...] = Field(default=(), max_length=4)


class Turn(Leaf):
    """One message of a prompt: a role and a Jinja template."""

    role: Role
    template: str


class PromptSet(Wording):
    """Wording, as data.

    Templates see `question`, `memory`, `chunk` (update only), `tags`, `keep`, `done`, `can_keep`,
    `can_done` and `memory_words`, in a Jinja sandbox; each of the first three must be shown exactly once,
    verbatim, and nothing else may depend on their contents.
    """

    built_in: ClassVar[tuple[str, ...]] = ("plain", "boxed", "shared", "small", "summary")
    tags: Tags
    update: tuple[Turn, ...] = Field(min_length=1)
    answer: tuple[Turn, ...] = Field(min_length=1)
    empty_memory: str = Field(min_length=1)
    """Shown while the memory is empty."""
    keep: str = Field(default="[keep]", min_length=1)
    """A reply of exactly this keeps the memory unchanged (update gate)."""
    done: str = Field(default="[done]", min_length=1)
    """If the last line is exactly this, the reading ends (exit gate)."""
    unsettled: str = Field(default="[unsettled]", min_length=1)
    """A first answer of exactly this makes the agent read chunks again (`reread`)."""
    unsettled_note: str = "If the memory does not settle this, reply with [unsettled] alone."
    """Follows the question with `reread`, and shows `unsettled`; empty for a model that needn't be told."""
    answer_form: AnswerForm = "plain"
    stop: Stop = Stop()

    @field_validator("keep", "done", "empty_memory", "unsettled")
    @classmethod
    def _one_line(cls, value: str) -> str:
        if value != value.strip() or "\n" in value:
            raise ValueError("must be one line without leading or trailing white space")
        return value

    def render(
        self,
        kind: CallKind,
        *,
        question: str,
        memory: str,
        chunk: str = "",
        gate: Gate = "off",
        memory_words: int = WIDEST_WORDS,
    ) -> tuple[Message, ...]:
        """Renders the state of a reading as the messages of its next call.

        Args:
            kind: "update" or "answer".
            question: neutralised question.
            memory: neutralised memory; callers pass `empty_memory` if there is none.
            chunk: neutralised chunk (update only).
            gate: which literals the prompt offers.
            memory_words: the memory's size limit in words, as told to the model.

        Raises:
            PromptSetError: a template fails.
        """
        fields: dict[str, Any] = {
            "question": question,
            "memory": memory,
            "chunk": chunk,
            "tags": self.tags,
            "keep": self.keep,
            "done": self.done,
            "can_keep": gate in ("update", "both"),
            "can_done": gate in ("exit", "both"),
            "memory_words": memory_words,
        }
        try:
            messages: list[Message] = []
            for turn in self.update if kind == "update" else self.answer:
                content = compile_template(turn.template).render(fields)
                messages.append(Message(role=turn.role, content=content))
            return tuple(messages)
        except Exception as error:  # a template can do whatever an expression can
            raise PromptSetError(f"prompt set {self.name!r}, {kind}: {error}") from error

    def check(self, name: str) -> None:
        """See `Wording.check`."""
        times: dict[CallKind, dict[str, int]] = {
            "update": {"question": 1, "memory": 1, "chunk": 1},
            "answer": {"question": 1, "memory": 1, "chunk": 0},
        }
        if self.unsettled not in (self.unsettled_note or self.unsettled):
            raise PromptSetError(
                f"{name!r}: unsettled_note must show the phrase {self.unsettled!r}, or be empty"
            )
        gates: tuple[Gate, ...] = ("off", "both")
        for kind, gate in product(times, gates):
            render = partial(self._render_marked, kind, gate)
            check_shown(f"{name!r}: {kind!r}", render, times[kind])

    def _render_marked(self, kind: CallKind, gate: Gate, **fields: Any) -> str:
        return "\n".join(message.content for message in self.render(kind, gate=gate, **fields))
