"""A judge's prompt as data: one TOML file like `judge.toml`."""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, ValidationError

from memagent.errors import ConfigError
from memagent.messages import Leaf, Message
from memagent.prompts.promptset import Tags, Turn

if TYPE_CHECKING:
    from jinja2 import Template

FIELDS = ("question", "references", "answer")
SHIPPED = "judge.toml"
_YES_NO = re.compile(r"(?:verdict: *)?(yes|no)\.?", re.IGNORECASE)
_SCORE = re.compile(r"score: *(\d{1,9}(?:\.\d{1,9})?)", re.IGNORECASE)


class JudgeTags(Leaf):
    """The names of the tags around the fields."""

    question: str = Field(pattern=r"^[A-Za-z][\w-]*$")
    references: str = Field(pattern=r"^[A-Za-z][\w-]*$")
    answer: str = Field(pattern=r"^[A-Za-z][\w-]*$")

    @property
    def guarded(self) -> Tags:
        """The same tags, in the form that `Neutraliser` takes."""
        return Tags(question=self.question, memory=self.references, chunk=self.answer)


class JudgePrompt(Leaf):
    """The prompt, and the form of a verdict. Templates see `FIELDS` and `tags`, in a Jinja sandbox."""

    name: str = Field(min_length=1)
    verdict: Literal["yes_no", "score"]
    """`yes_no`: the reply's last line is yes or no; `score`: it is `score: X`."""
    highest: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """The highest X; the reward is X / highest."""
    again: str = Field(min_length=1)
    """What the judge is told after a reply without a verdict."""
    tags: JudgeTags
    turn: tuple[Turn, ...] = Field(min_length=1)

    @classmethod
    def load(cls, path: Path | None) -> JudgePrompt:
        """Loads a prompt from a file, or the shipped one for None.

        Raises:
            ConfigError: it can't be read, lacks something, or doesn't show each field once.
        """
        name = SHIPPED if path is None else str(path)
        try:
            if path is None:
                raw = resources.files("memagent_train.rewards").joinpath(SHIPPED).read_bytes()
            else:
                raw = path.read_bytes()
            prompt = cls.model_validate(tomllib.loads(raw.decode("utf-8-sig")))
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"the judge's prompt {name!r} is unusable: {_why(error)}") from error
        marks = {field: f"\ue000{field}\ue001" for field in FIELDS}
        rendered = "\n".join(message.content for message in prompt.render(marks))
        for field, mark in marks.items():
            if rendered.count(mark) != 1:
                raise ConfigError(
                    f"the judge's prompt {name!r} shows {field!r} {rendered.count(mark)} times: show each of "
                    f"{', '.join(FIELDS)} once, verbatim"
                )
        return prompt

    def render(self, fields: dict[str, str]) -> tuple[Message, ...]:
        """Renders the messages of a judge's call.

        Args:
            fields: `FIELDS`, neutralised.

        Raises:
            ConfigError: a template fails.
        """
        try:
            return tuple(
                Message(role=turn.role, content=template.render(fields, tags=self.tags))
                for turn, template in zip(self.turn, _compile(self.turn), strict=True)
            )
        except Exception as error:  # jinja2's errors, and those of a template's own code
            raise ConfigError(
                f"the judge's prompt {self.name!r} cannot be rendered: {error}"
            ) from error

    def read(self, reply: str) -> float | None:
        """Parses the reward in [0, 1] from a reply's last line; None if there is none."""
        last = reply.strip().rpartition("\n")[2].strip()
        if self.verdict == "yes_no":
            verdict = _YES_NO.fullmatch(last)
            return None if verdict is None else float(verdict[1].lower() == "yes")
        match = _SCORE.fullmatch(last)
        score = float(match[1]) / self.highest if match else -1.0
        return score if 0 <= score <= 1 else None


@lru_cache(maxsize=8)
def _compile(turns: tuple[Turn, ...]) -> list[Template]:
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(undefined=jinja2.StrictUndefined, autoescape=False)
    return [environment.from_string(turn.template) for turn in turns]


def _why(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return getattr(error, "strerror", None) or str(error)
