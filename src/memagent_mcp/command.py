"""`memagent mcp`: reading as tools for any MCP client, over standard input and output."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from memagent.cli.exits import Outcome, report_errors
from memagent.cli.options import RUN, Display, option
from memagent.cli.session import drive
from memagent.cli.setup import Ask, chosen_store
from memagent.errors import ConfigError
from memagent.texts import name_extra

if TYPE_CHECKING:
    from memagent.memory.agent import MemoryAgent
    from memagent.runstore import RunStore
    from memagent_mcp.roots import Roots

NOT_SERVED = ("doc", "question", "questions", "encoding", "errors", "run_id", "display", "json")
"""Options of `ask` that the client gives, or that a server doesn't use."""


@dataclass(frozen=True, kw_only=True)
class Mcp(Ask):
    """The options of `mcp`: those of `ask` for the model and the budget, and the folders."""

    root: Annotated[
        list[Path],
        option("A folder whose files clients may ask about; may be repeated.", "DIR", panel=RUN),
    ]
    doc: str = ""


def serve_mcp(given: Mcp) -> None:
    """Run an MCP server that reads documents: ask_document, summarize_document, extract, read_more, list_runs.

    MCP clients start this command themselves and talk to it over standard input and output.
    """
    with report_errors(Outcome(Display.NONE)) as outcome:
        if find_spec("mcp") is None:
            raise ConfigError(name_extra("memagent mcp", "mcp"))
        from memagent_mcp.roots import Roots

        roots = Roots(given.root)
        outcome.store = store = chosen_store(given.store, durable=given.durable)
        drive(_serve(given.agent(store), store, roots))


async def _serve(agent: MemoryAgent, store: RunStore, roots: Roots) -> None:
    from memagent_mcp.server import Reader

    async with aclosing(agent):
        await Reader(agent, store, roots).server().run_stdio_async()
