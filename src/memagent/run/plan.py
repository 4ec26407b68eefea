"""What every run resolves before its first call: settings, counter and window."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, Self, TypeVar, cast

from memagent.budget import DEFAULT_WINDOW
from memagent.errors import ConfigError, WindowUnknown
from memagent.messages import Options, Sampling
from memagent.models.base import ChatModel
from memagent.models.retry import count_in_thread
from memagent.texts import quote, repair_surrogates
from memagent.tokens import TokenCounter

P = ParamSpec("P")
T = TypeVar("T")


class Settings(Options, strict=True):
    """An agent's settings as plain data, stored with each run so that the agent can be recreated."""

    sampling: Sampling = Sampling()
    seed: int = 0

    @classmethod
    def choose(cls, policy: dict[str, Any], **given: Any) -> Self:
        """Returns settings: those given if not None, else the policy's, else defaults. A bad one is a `ConfigError`."""
        return cls(**policy | {name: value for name, value in given.items() if value is not None})


@dataclass(frozen=True)
class Plan(ABC):
    """What a run resolved before its first call."""

    model: ChatModel
    counter: TokenCounter
    window: int
    """Maximum tokens of prompt plus output per call."""
    settings: Settings

    @abstractmethod
    def binding(self) -> dict[str, Any]:
        """Returns what a run is bound to besides agent and document: everything that shapes its prompts and replies."""

    async def counting(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Counts tokens in a thread, waiting for a server that is down. Raises a `ModelError` if it can't be asked."""
        return await count_in_thread(self.model, work, *args, **kwargs)


def choose_window(model: str, asked: int | None, reported: int | None, name: str = "window") -> int:
    """Returns the window of a run: the argument `name` if given, else the smaller of the model's and 8192 tokens.

    Raises a `WindowUnknown` if neither is known, a `ConfigError` if the argument exceeds the model's.
    """
    if asked is None and reported is None:
        raise WindowUnknown(
            f"the model {model!r} does not report its window: give it ({name}=, --window)"
        )
    if asked is not None and reported is not None and asked > reported:
        raise ConfigError(f"{name}={asked!r} exceeds the {reported} tokens of {model!r}; lower it")
    return asked or min(reported or DEFAULT_WINDOW, DEFAULT_WINDOW)


def check_text(what: str, text: str) -> str:
    """Returns the question or task. Raises a `ConfigError` if it isn't text, is empty, or can't be encoded."""
    if not isinstance(cast("object", text), str) or not text.strip():
        raise ConfigError(f"{what} must be a non-empty text, got {quote(text)}")
    if repair_surrogates(text) != text:
        raise ConfigError(
            f"{what} {quote(text)} contains a lone surrogate, which cannot be encoded; remove it"
        )
    return text
