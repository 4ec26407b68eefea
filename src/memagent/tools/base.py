"""A tool: what the model sees of it, and how it is run."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from memagent.errors import ConfigError
from memagent.messages import ToolSpec

Run = Callable[[Mapping[str, Any]], Coroutine[Any, Any, str]]
"""Does what a tool does, with arguments as its JSON schema wants them.

Raises:
    BadArguments: they do not fit; the message says which, and what is expected.
    ToolError: it failed; the model is told the message.
    Exception: whatever else went wrong; the model is told the class and the message.
"""


@dataclass(frozen=True)
class Tool:
    """A function that a model may call.

    `memagent.tools.tool` makes one from a Python function, `memagent.tools.mcp` from an MCP server.

    Raises:
        ConfigError: the timeout is no time.
    """

    spec: ToolSpec
    run: Run
    idempotent: bool = False
    """Running it twice does no more than running it once: it may be run again after a kill."""
    read_only: bool = False
    """It changes nothing, so it is idempotent too: calls of one reply to such tools run at once."""
    timeout: float = 60.0
    """Seconds after which a call is given up, and the model told so; infinity sets no limit."""
    final: bool = False
    """Its result is the answer, and ends the session."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "idempotent", self.idempotent or self.read_only)
        # NaN is not above 0.
        if not self.timeout > 0:
            raise ConfigError(
                f"tool {self.name!r}: a timeout of {self.timeout!r} seconds; give more than 0, or math.inf"
            )

    @property
    def name(self) -> str:
        """What the model calls it."""
        return self.spec.name


@dataclass(frozen=True)
class ToolOutput:
    """What became of a call, as the model is told."""

    text: str
    ok: bool = True
    """False: the call was malformed, or the tool failed; `text` says how."""


class Environment(Protocol):
    """Tools, the hidden state that they work on, and the verdict on an answer (`memagent_bench.games` has 18)."""

    task: str
    """What the model is asked."""
    tools: tuple[Tool, ...]
    steps: int
    """Calls made before the answer, those that failed too."""

    @property
    def over(self) -> bool:
        """Whether an answer was handed in. Only the first one counts."""
        ...

    def finish(self, answer: str) -> bool:
        """Hands in an answer; whether the first one was right."""
        ...

    def verdict(self) -> float:
        """From 0 to 1, and 0 while there is no answer."""
        ...
