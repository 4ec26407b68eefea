"""A tool: what the model sees, and how it runs."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from memagent.errors import ConfigError
from memagent.messages import ToolSpec

Run = Callable[..., Coroutine[Any, Any, str]]
"""Runs a tool with arguments that follow its JSON schema (a mapping), then the `ToolContext` if it takes one.

Raises:
    BadArguments: they are invalid; the message says which, and what is expected.
    ToolError: it failed; the model gets the message.
    Exception: anything else that went wrong; the model gets the class and the message.
"""


@dataclass(frozen=True)
class ToolContext:
    """What a tool may know about its call: a parameter with this annotation gets it, and the model doesn't see it.

    An interrupted call is made again if the tool takes one. Pass the key to the service that does the
    work, or look up whether it is done already: then the call takes effect exactly once.
    """

    call_id: str
    """The id that the model's reply gave the call."""
    attempt: int
    """Number of this attempt: 1 at first; more if earlier ones were interrupted, and may have taken effect."""
    idempotency_key: str
    """A key unique to this call, and the same for all attempts at it."""


@dataclass(frozen=True)
class Tool:
    """A function that a model may call.

    `memagent.tools.tool` makes one from a Python function, `memagent.tools.mcp` from an MCP server.

    Raises:
        ConfigError: the timeout is not positive.
    """

    spec: ToolSpec
    run: Run
    idempotent: bool = False
    """Whether running it twice has the same effect as running it once, so it may be rerun after a kill."""
    read_only: bool = False
    """Whether it changes nothing, so it is idempotent too: a reply's calls to such tools run concurrently."""
    timeout: float = 60.0
    """Seconds after which a call is abandoned and the model told so; infinity means no limit."""
    final: bool = False
    """Whether its result is the answer and ends the session."""
    takes_context: bool = False
    """Whether `run` also takes a `ToolContext`, so an interrupted call is made again."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "idempotent", self.idempotent or self.read_only)
        # NaN is not above 0.
        if not self.timeout > 0:
            raise ConfigError(
                f"tool {self.name!r}: timeout must be more than 0 seconds, or math.inf, got {self.timeout!r}"
            )

    @property
    def name(self) -> str:
        """The name that the model uses."""
        return self.spec.name


@dataclass(frozen=True)
class ToolOutput:
    """The outcome of a call, as told to the model."""

    text: str
    ok: bool = True
    """False if the call was malformed or the tool failed; `text` says how."""


class Environment(Protocol):
    """Tools, the hidden state that they act on, and the verdict on an answer (`memagent_bench.games` has 18)."""

    task: str
    """The task for the model."""
    tools: tuple[Tool, ...]
    steps: int
    """Calls made before the answer, including failed ones."""

    @property
    def over(self) -> bool:
        """Whether an answer was submitted. Only the first one counts."""
        ...

    def finish(self, answer: str) -> bool:
        """Submits an answer; returns whether the first one was right."""
        ...

    def verdict(self) -> float:
        """Returns the score of the answer, from 0 to 1; 0 while there is none."""
        ...
