"""A prompt set: one TOML file that turns state into messages."""

from __future__ import annotations

import hashlib
import tomllib
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, ValidationError, field_validator

from memagent.errors import PromptSetError
from memagent.messages import CallKind, Leaf, Message, Role

if TYPE_CHECKING:
    from jinja2 import Template

Gate = Literal["off", "update", "exit", "both"]
"""Which literals the model may answer with: keep (update gate), done (exit gate), both, or none."""
AnswerForm = Literal["plain", "boxed", "sentence"]
BUILT_IN = ("plain", "boxed")
WIDEST_WORDS = 99999
"""Stands for `memory_words` when frames are measured: no real number takes more tokens."""
WORDS_PER_TOKEN = 0.7
"""English takes 1.3-1.4 tokens a word; the prompt names words because models cannot count tokens."""


class Tags(Leaf):
    """The names of the tags around the fields of a prompt."""

    question: str = Field(pattern=r"^[A-Za-z][\w-]*$")
    memory: str = Field(pattern=r"^[A-Za-z][\w-]*$")
    chunk: str = Field(pattern=r"^[A-Za-z][\w-]*$")


class Turn(Leaf):
    """One message of a prompt: a role and a Jinja template."""

    role: Role
    template: str


class PromptSet(Leaf):
    """Wording, as data.

    Templates see `question`, `memory`, `chunk` (update only), `tags`, `keep`, `done`, `can_keep`,
    `can_done` and `memory_words`, in a Jinja sandbox; each of the first three must be shown exactly once,
    as it is.
    """

    name: str = Field(min_length=1)
    tags: Tags
    update: tuple[Turn, ...] = Field(min_length=1)
    answer: tuple[Turn, ...] = Field(min_length=1)
    empty_memory: str = Field(min_length=1)
    """Shown where the memory is still empty."""
    keep: str = Field(default="[keep]", min_length=1)
    """A whole reply equal to this carries the memory verbatim (update gate)."""
    done: str = Field(default="[done]", min_length=1)
    """Alone on the last line, this ends the reading (exit gate)."""
    answer_form: AnswerForm = "plain"
    source: str = Field(default="", repr=False)
    """The TOML text that this set was read from, normalised."""

    @field_validator("keep", "done", "empty_memory")
    @classmethod
    def _one_line(cls, value: str) -> str:
        if value != value.strip() or "\n" in value:
            raise ValueError("must be one line without white space around it")
        return value

    @property
    def hash(self) -> str:
        """First 16 hex digits of the SHA-256 of the normalised TOML bytes."""
        return hashlib.sha256(self.source.encode()).hexdigest()[:16]

    @classmethod
    def load(cls, spec: str | Path | PromptSet) -> PromptSet:
        """Loads a shipped set by name (`plain`, `boxed`) or any set by path.

        Raises:
            PromptSetError: no such set, broken TOML, missing fields, or a template that does not show
                each field exactly once.
        """
        if isinstance(spec, PromptSet):
            return spec
        if isinstance(spec, str) and spec in BUILT_IN:
            raw = resources.files("memagent.prompts").joinpath(f"{spec}.toml").read_bytes()
            return cls.parse(raw, name=spec)
        try:
            raw = Path(spec).read_bytes()
        except OSError as error:
            raise PromptSetError(
                f"no prompt set {str(spec)!r}: give a TOML file that can be read, "
                f"or one of {', '.join(BUILT_IN)} ({error.strerror})"
            ) from error
        return cls.parse(raw, name=str(spec))

    @classmethod
    def parse(cls, raw: bytes, *, name: str = "prompt set") -> PromptSet:
        """Reads a set from TOML bytes (UTF-8; a BOM and CRLF are normalised away).

        Raises:
            PromptSetError: as `load`.
        """
        try:
            text = raw.decode("utf-8-sig").replace("\r\n", "\n").rstrip("\n") + "\n"
            prompts = cls.model_validate({**tomllib.loads(text), "source": text})
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise PromptSetError(f"{name!r} is not TOML in UTF-8: {error}") from error
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "the file"
            raise PromptSetError(
                f"{name!r}, {where}: {first['msg']} (see docs/prompts.md)"
            ) from error
        prompts._check_fields(name)
        return prompts

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
        """Turns the state of a reading into the messages of its next call.

        Args:
            kind: "update" or "answer".
            question: neutralised question.
            memory: neutralised memory; the caller gives `empty_memory` where there is none.
            chunk: neutralised chunk (update only).
            gate: which literals the prompt offers.
            memory_words: how many words the memory may take, as told to the model.

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
        import jinja2

        try:
            return tuple(
                Message(role=role, content=template.render(fields))
                for role, template in self._templates[kind]
            )
        except jinja2.TemplateError as error:
            raise PromptSetError(f"prompt set {self.name!r}, {kind}: {error}") from error

    @cached_property
    def _templates(self) -> dict[str, list[tuple[Role, Template]]]:
        import jinja2
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(
            undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False
        )
        try:
            return {
                kind: [(turn.role, environment.from_string(turn.template)) for turn in turns]
                for kind, turns in (("update", self.update), ("answer", self.answer))
            }
        except jinja2.TemplateError as error:
            raise PromptSetError(f"prompt set {self.name!r}: {error}") from error

    def _check_fields(self, name: str) -> None:
        # Budgets count each field once, so a template that shows one twice (or changes it) would overflow.
        question, memory, chunk = marks = ("\ue000q\ue001", "\ue000m\ue001", "\ue000c\ue001")
        wanted: dict[CallKind, tuple[int, int, int]] = {"update": (1, 1, 1), "answer": (1, 1, 0)}
        gates: tuple[Gate, ...] = ("off", "both")
        for kind, times in wanted.items():
            for gate in gates:
                messages = self.render(
                    kind, question=question, memory=memory, chunk=chunk, gate=gate
                )
                shown = "\n".join(message.content for message in messages)
                for field, mark, right in zip(
                    ("question", "memory", "chunk"), marks, times, strict=True
                ):
                    if shown.count(mark) != right:
                        raise PromptSetError(
                            f"{name!r}: the {kind} templates show {field!r} {shown.count(mark)} times, not {right}"
                        )
