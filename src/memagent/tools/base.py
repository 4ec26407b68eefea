"""A tool: what the model sees of it, and how it is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from memagent.messages import ToolSpec


class Run(Protocol):
    """Does what a tool does."""

    async def __call__(self, arguments: Mapping[str, Any]) -> str:
        """Runs with arguments as the JSON schema wants them.

        Raises:
            Exception: whatever went wrong; the model is told.
        """
        ...


@dataclass(frozen=True)
class Tool:
    """A function that a model may call.

    `memagent.tools.tool` makes one from a Python function, `memagent.tools.mcp` from an MCP server.
    """

    spec: ToolSpec
    run: Run
    idempotent: bool = False
    """Running it twice does no more than running it once: it may be run again after a kill."""
    timeout: float = 60.0
    """Seconds after which a call is given up, and the model told so."""

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
