"""`memagent demo`: the whole runtime on a real book, without a server."""

from __future__ import annotations

import time
from contextlib import closing
from importlib import resources
from typing import Annotated

import typer

from memagent.cli import options as opt
from memagent.cli.display import watcher
from memagent.cli.exits import Outcome, reported
from memagent.cli.options import Display
from memagent.cli.output import Paper
from memagent.cli.progress import Tally
from memagent.cli.results import report
from memagent.cli.session import watch
from memagent.cli.setup import chosen_display
from memagent.cli.source import expected_chars, open_source

SAMPLE = "samples/war_and_peace.txt.gz"
QUESTION = "When did Natasha marry?"
WHAT = (
    "War and Peace, all of it, read through a memory of about a thousand bytes.",
    "The model is `extractive`: no LLM, no weights; it keeps sentences that share words with the question.",
)
NEXT = "with a real model: memagent ask FILE 'QUESTION' --model vllm:NAME"


def demo(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What to ask.")] = QUESTION,
    display: opt.DisplayOption = None,
) -> None:
    """Read War and Peace as you watch, without a server or a model, and answer a question about it."""
    shown = chosen_display(display)
    outcome = Outcome(json=shown is Display.JSON)
    with reported(outcome):
        from memagent.agents.memory import MemoryAgent
        from memagent.runstore import RunStore

        paper = Paper(colour=shown is Display.FULL)
        talks = shown in (Display.FULL, Display.PLAIN)
        if talks:
            for line in WHAT:
                paper.line((line, "dim"))
            paper.line("")
        begun = time.monotonic()
        sample = resources.files("memagent").joinpath(SAMPLE)
        # A temporary store: a demo leaves nothing behind.
        with resources.as_file(sample) as path, closing(RunStore(None)) as store:
            document = open_source(path, name="War and Peace")
            tally = Tally(chars=expected_chars(document))
            agent = MemoryAgent("extractive", gate="update", store=store)
            stream = agent.stream(document, question)
            results = watch(agent, stream, watcher(shown, tally, changes_only=True))
            seconds = time.monotonic() - begun
            record = store.get(stream.run_id)
            code = report(results, record, shown, outcome, seconds=seconds)
        if talks:
            paper.line((f"Next, {NEXT}", "dim"))
    if code:
        raise typer.Exit(code)
