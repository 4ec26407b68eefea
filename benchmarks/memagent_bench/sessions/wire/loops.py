"""The loops that work at a server, by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from memagent.errors import ConfigError
from memagent.texts import name_extra
from memagent_bench.sessions.wire.post import Post

if TYPE_CHECKING:
    from memagent_bench.sessions.seat import SessionEnd

Play = Callable[[Post], "Awaitable[SessionEnd]"]
"""Plays until there is an answer.

Raises:
    Exception: the server refused a request, or the framework failed.
"""
_HERE = "memagent_bench.sessions.wire"


class Loop(NamedTuple):
    """One way to work at a server."""

    module: str
    play: str
    about: str


LOOPS: dict[str, Loop] = {
    "tool-agent": Loop("own", "play_tool_agent", "memagent: ToolAgent"),
    "tool-agent-tight": Loop("own", "play_tight", "the same, with 90% of the window"),
    "buffer": Loop("own", "play_buffer", "memagent: SummaryBuffer in an openai loop"),
    "openai": Loop("own", "play_whole", "an openai loop that sends the whole history"),
    "langchain": Loop(
        "langchain", "play_defaults", "SummarizationMiddleware with a trigger, else its defaults"
    ),
    "langchain-tuned": Loop(
        "langchain", "play_tuned", "the same; keeps 30% of the window, as in its documentation"
    ),
    "langchain-tight": Loop("langchain", "play_tight", "the same; keeps 10% of the window"),
    "langchain-clear": Loop("langchain", "play_clearing", "ClearToolUsesEdit"),
    "deepagents": Loop("langchain", "play_deep", "Deep Agents as they come"),
    "agents": Loop("openai_agents", "play_trimmer", "the Agents SDK with its ToolOutputTrimmer"),
    "pydantic-ai": Loop(
        "pydantic_ai", "play_newest", "Pydantic AI; its history processor keeps the newest turns"
    ),
}
"""Loops by the name of the system."""


def load_loop(name: str) -> Play:
    """Returns the function that plays.

    Raises:
        ConfigError: its framework is not installed.
    """
    loop = LOOPS[name]
    try:
        module = import_module(f"{_HERE}.{loop.module}")
    except ImportError as error:
        needed = name_extra(f"the system {name!r}", "peers")
        raise ConfigError(f"{needed}, or leave it out of --systems") from error
    play: Play = getattr(module, loop.play)
    return play
