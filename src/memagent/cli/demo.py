"""`memagent demo`: the whole runtime on a real book, without a server."""

from __future__ import annotations

import time
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
from memagent.cli.source import expected_chars, open_source

SAMPLE = "samples/war_and_peace.txt.gz"
QUESTION = "When did Natasha marry?"
WHAT = (
    "War and Peace, all of it, read through a memory of about a thousand bytes. The model is `extractive`: no LLM "
    "and no weights, a stand-in that keeps the sentences which share words with the question."
)
NEXT = "with a real model: memagent ask FILE 'QUESTION' --model vllm:NAME"


def demo(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What to ask.")] = QUESTION,
    display: opt.DisplayOption = None,
) -> None:
    """Read War and Peace as you watch, without a server or a model, and answer a question about it."""
    shown = opt.chosen_display(display)
    with reported(Outcome(json=shown is Display.JSON)):
        from memagent.agents.memory import MemoryAgent
        from memagent.runstore import RunStore

        paper = Paper(colour=shown is Display.FULL)
        talks = shown in (Display.FULL, Display.PLAIN)
        if talks:
            paper.line((WHAT, "dim"))
            paper.line("")
        # A temporary store: a demo leaves nothing behind.
        store = RunStore(None)
        agent = MemoryAgent("extractive", gate="update", store=store)
        begun = time.monotonic()
        with resources.as_file(resources.files("memagent").joinpath(SAMPLE)) as path:
            document = open_source(path, name="War and Peace")
            tally = Tally(chars=expected_chars(document))
            stream = agent.stream(document, question)
            results = watch(agent, stream, watcher(shown, tally, changes_only=True))
        seconds = time.monotonic() - begun
        code = report(
            results, store.get(stream.run_id), shown, Outcome(json=False), seconds=seconds
        )
        if talks:
            paper.line((f"Next, {NEXT}", "dim"))
        store.close()
    if code:
        raise typer.Exit(code)
