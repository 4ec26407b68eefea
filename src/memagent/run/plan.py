"""What every run resolves before its first call: settings, the counter, the window, the wording's limits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, Self, TypeVar, cast

from pydantic import ValidationError

from memagent.budget import DEFAULT_WINDOW
from memagent.errors import ConfigError, WindowUnknown
from memagent.messages import Leaf, Sampling
from memagent.models.retry import count_in_thread
from memagent.texts import describe_problem, quote, repair_surrogates
from memagent.tokens import TokenCounter

P = ParamSpec("P")
T = TypeVar("T")


class Settings(Leaf, strict=True):
    """An agent's settings as plain data: kept with each run, so that the same agent can be made again."""

    sampling: Sampling = Sampling()
    seed: int = 0

    @classmethod
    def choose(cls, policy: dict[str, Any], **given: Any) -> Self:
        """What was given and is not None, else what the model's policy wants, else the defaults.

        Raises:
            ConfigError: a setting has a bad value.
        """
        fields = {name: value for name, value in given.items() if value is not None}
        try:
            return cls.model_validate(policy | fields)
        except ValidationError as error:
            raise ConfigError(describe_problem(error)) from error


@dataclass(frozen=True)
class Plan(ABC):
    """What a run resolved before its first call."""

    model: str
    """The model's name."""
    counter: TokenCounter
    window: int
    """Most tokens of prompt plus output of a call."""
    sampling: Sampling
    seed: int
    """Of the run; the seed of each call is derived from it."""

    @abstractmethod
    def binding(self) -> dict[str, Any]:
        """What a run is bound to, besides its document: all that shapes its prompts and replies."""

    async def counting(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs work that counts tokens in a thread. Where a server counts and is away, it is waited for.

        Raises:
            ModelError: the server cannot be asked.
        """
        return await count_in_thread(self.model, work, *args, **kwargs)


def choose_window(model: str, asked: int | None, reported: int | None, name: str = "window") -> int:
    """The window of a run: what was asked for by argument `name`, else the smaller of the model's and 8192 tokens.

    Raises:
        WindowUnknown: neither is known.
        ConfigError: more was asked for than the model has.
    """
    if asked is None and reported is None:
        raise WindowUnknown(
            f"the model {model!r} does not report the size of its window: give it ({name}=, --window)"
        )
    if asked is not None and reported is not None and asked > reported:
        raise ConfigError(f"{name}={asked!r} is over the {reported} tokens that {model!r} reports")
    return asked or min(reported or DEFAULT_WINDOW, DEFAULT_WINDOW)


def check_text(what: str, text: str) -> str:
    """A question or a task: text that is not empty and can be encoded.

    Raises:
        ConfigError: it is something else.
    """
    if not isinstance(cast("object", text), str) or not text.strip():
        raise ConfigError(f"{what} is {quote(text)}: give a text that is not empty")
    if repair_surrogates(text) != text:
        raise ConfigError(
            f"{what} {quote(text)} holds half a surrogate pair, which cannot be encoded"
        )
    return text
