"""A judge's prompt as data: one TOML file like `judge.toml`."""

import re
from typing import ClassVar, Literal

from pydantic import Field

from memagent.errors import PromptSetError
from memagent.messages import Leaf, Message
from memagent.prompts.loading import TagName, Wording, check_shown, compile_template
from memagent.prompts.promptset import Turn

FIELDS = ("question", "references", "answer")
_YES_NO = re.compile(r"(?:verdict: *)?(yes|no)\.?", re.IGNORECASE)
_SCORE = re.compile(r"score: *(\d{1,9}(?:\.\d{1,9})?)", re.IGNORECASE)


class JudgeTags(Leaf):
    """The names of the tags around the fields."""

    question: TagName
    references: TagName
    answer: TagName


class JudgePrompt(Wording):
    """The prompt, and the form of a verdict. Templates see `FIELDS` and `tags`, in a Jinja sandbox."""

    built_in: ClassVar[tuple[str, ...]] = ("judge",)
    package: ClassVar[str] = "memagent_train.rewards"
    called: ClassVar[str] = "judge's prompt"
    verdict: Literal["yes_no", "score"]
    """`yes_no`: the reply's last line is yes or no; `score`: it is `score: X`."""
    highest: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """The highest X; the reward is X / highest."""
    again: str = Field(min_length=1)
    """What the judge is told after a reply without a verdict."""
    tags: JudgeTags
    turn: tuple[Turn, ...] = Field(min_length=1)

    def check(self, name: str) -> None:
        """See `Wording.check`."""
        who = f"the judge's prompt {name!r}"
        check_shown(who, self._render_marked, dict.fromkeys(FIELDS, 1))

    def _render_marked(self, **fields: str) -> str:
        return "\n".join(message.content for message in self.render(fields))

    def render(self, fields: dict[str, str]) -> tuple[Message, ...]:
        """Renders the messages of a judge's call.

        Args:
            fields: `FIELDS`, neutralised.

        Raises:
            PromptSetError: a template fails.
        """
        try:
            return tuple(
                Message(
                    role=turn.role,
                    content=compile_template(turn.template).render(fields, tags=self.tags),
                )
                for turn in self.turn
            )
        except Exception as error:  # jinja2's errors, and those of a template's own code
            raise PromptSetError(
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
