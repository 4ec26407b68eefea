"""One run from the command line: watched, its results shown, resumable whatever ends it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import typer

from memagent.cli.display import watcher
from memagent.cli.exits import Outcome
from memagent.cli.options import Display
from memagent.cli.progress import Tally
from memagent.cli.results import report
from memagent.cli.session import watch
from memagent.cli.source import expected_chars

if TYPE_CHECKING:
    from memagent.documents import Document
    from memagent.memory.agent import MemoryAgent, RunStream
    from memagent.runstore import RunStore


def read_and_report(
    agent: MemoryAgent,
    stream: RunStream,
    document: Document | None,
    store: RunStore,
    display: Display,
    outcome: Outcome,
) -> None:
    """Runs `stream` to its end and shows what came of it.

    Raises:
        Exit: code 6, where an answer is missing.
        MemagentError: what ended the run early.
    """
    begun = time.monotonic()
    outcome.run_id = stream.run_id
    tally = Tally(
        chars=None if document is None else expected_chars(document),
        replayed=store.last_seq(stream.run_id),
    )
    results = watch(agent, stream, watcher(display, tally))
    seconds = time.monotonic() - begun
    code = report(results, store.get(stream.run_id), display, outcome, seconds=seconds)
    if code:
        raise typer.Exit(code)
