"""JSON lines from a user's file: samples to measure, and predictions to score."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, field_validator

from memagent.errors import ConfigError
from memagent.tasks import SCORERS
from memagent.texts import describe_problem
from memagent_bench.judge import QA_TASKS
from memagent_bench.published import RULER_TASKS
from memagent_bench.suites import one_of


class Line(BaseModel):
    """Fields that both kinds of lines have. Other fields are ignored."""

    model_config = ConfigDict(frozen=True)

    task: str | None = None
    """Task; None: the file's name without its suffix, as RULER names files of predictions."""
    outputs: tuple[str, ...] = Field(
        min_length=1, validation_alias=AliasChoices("outputs", "references", "answers", "answer")
    )
    """References; a single one may be a string."""
    scorer: str | None = Field(None, validation_alias=AliasChoices("scorer", "metric"))
    """One of `memagent.tasks.SCORERS`; None: RULER's for its tasks, else any scorer of one reference."""
    max_length: int | None = Field(None, gt=0)
    """Tokens of the task's length, as `memagent-bench generate` writes it."""

    @field_validator("outputs", mode="before")
    @classmethod
    def _to_tuple(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value


class SampleLine(Line):
    """A sample: `context` and `question`, or a line of `memagent-bench generate`."""

    question: str
    context: str | None = Field(None, repr=False)
    input: str | None = Field(None, repr=False)
    """One-shot prompt."""
    context_span: tuple[int, int] | None = None
    """Span of the document in `input`, in characters."""
    answer_prefix: str = ""
    """Beginning of the reply."""
    tokens_to_generate: int = Field(128, gt=0)

    def model_post_init(self, _: object) -> None:
        """Checks the span, the question and the document; pydantic reports errors as validation errors."""
        (start, end), text = self.context_span or (0, 0), self.input
        if self.context_span and text is not None and not 0 <= start < end <= len(text):
            raise ValueError(
                f"context_span must be a part of the {len(text):,} characters, got {[start, end]}"
            )
        for what, part in (("question", self.question), ("document", self.parts and self.parts[1])):
            if part is not None and not part.strip():
                raise ValueError(f"the {what} is blank; complete the line, or leave it out")

    @property
    def parts(self) -> tuple[str, str, str] | None:
        """One-shot prompt as the text before the document, the document, and the text after it; None without one."""
        if self.context is not None:
            return "", self.context, f"\n\n{self.question}\nAnswer:"
        if self.input is None or self.context_span is None:
            return None
        start, end = self.context_span
        return self.input[:start], self.input[start:end], self.input[end:]


class PredictionLine(Line):
    """An answer made elsewhere."""

    prediction: str | None = Field(validation_alias=AliasChoices("prediction", "pred"))
    """None if there is no answer: it counts as 0, and is reported separately."""


L = TypeVar("L", bound=Line)


def read_lines(
    path: Path, kind: type[L], scorer: str | None = None
) -> Iterator[tuple[int, L, str, str]]:
    """Yields the lines of a file, each with its byte offset, its task and its scorer. Skips empty lines.

    Args:
        path: a file of JSON lines in UTF-8.
        kind: model of the lines.
        scorer: scorer of all lines; None: each line's own, else its task's.

    Raises:
        ConfigError: the file cannot be read, a line isn't such an object, or its scorer is unknown or can't use its
            references; the message has its number.
    """
    at = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                mark = len(BOM_UTF8) if number == 1 and line.startswith(BOM_UTF8) else 0
                if line[mark:].strip():
                    yield at + mark, *_parse(line[mark:], kind, scorer, path, number)
                at += len(line)
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from error


def _scorer_of(line: Line, task: str) -> str:
    if task in RULER_TASKS:
        return "string_match_part" if task.startswith(QA_TASKS) else "string_match_all"
    if len(line.outputs) == 1:
        return "string_match_all"
    raise ConfigError(
        f"task {task!r} has several references, but it isn't clear whether all are required: name a scorer in its "
        f"lines, "
        f'such as "scorer": "string_match_all" (all) or "string_match_part" (any)'
    )


def _parse(
    text: bytes, kind: type[L], scorer: str | None, path: Path, number: int
) -> tuple[L, str, str]:
    try:
        line = kind.model_validate_json(text)
        task = line.task or path.stem
        name = scorer or line.scorer or _scorer_of(line, task)
        # Now, not after a model has answered: the scorer may be unable to use a reference.
        SCORERS[one_of(name, SCORERS, "scorer")]("", line.outputs)
    except (ValidationError, ConfigError) as error:
        why = describe_problem(error) if isinstance(error, ValidationError) else error
        raise ConfigError(f"{str(path)!r}, line {number}: {why}") from error
    return line, task, name
