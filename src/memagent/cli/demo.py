"""`memagent demo`: the whole runtime on a real book, without a server."""

from __future__ import annotations

from contextlib import closing
from importlib import resources
from typing import Annotated

import typer

from memagent.cli import options as opt
from memagent.cli.ask import run
from memagent.cli.demo_needle import find_needle
from memagent.cli.exits import Outcome, reported
from memagent.cli.needle import BOOK, Length
from memagent.cli.setup import chosen_display
from memagent.cli.source import open_source
from memagent.errors import ConfigError

EXTRACTIVE = "extractive"
QUESTION = "When did Natasha marry?"
WHAT = """\
All of War and Peace, read through a memory of about 1,000 bytes.
The model is `extractive`: no LLM, no weights; it keeps sentences that share words with the question.
"""
NEXT = "Next, with a real model: memagent ask FILE 'QUESTION' --model vllm:NAME"


def demo(
    question: Annotated[
        str | None,
        opt.argument("QUESTION", f"What to ask extractive. Default: {QUESTION}"),
    ] = None,
    model: Annotated[
        str,
        opt.option(
            "extractive answers a question about the book; nano, or transformers:FOLDER, has to find a fact that is "
            "hidden in it.",
            "SPEC",
            default=True,
        ),
    ] = EXTRACTIVE,
    tokens: Annotated[
        Length | None,
        typer.Option(
            help="Length of the text that hides the fact, in GPT-2 tokens. Default: 256k.",
            case_sensitive=False,
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, opt.option("Chooses the fact and its place.", default=True)] = 0,
    display: opt.DisplayOption = None,
    json: opt.Json = False,
) -> None:
    """Watch War and Peace being read, without a server, and get a question about it answered.

    With [b]--model nano[/] a small trained policy looks for a fact that is hidden in the text.
    """
    outcome = Outcome(chosen_display(display, json=json))
    with reported(outcome):
        if model.strip() != EXTRACTIVE:
            if question is not None:
                raise ConfigError(
                    f"the question {question!r} needs --model extractive: the demo itself hides what it asks {model!r}"
                )
            code = find_needle(model, tokens or Length.K256, seed, outcome)
            if code:
                raise typer.Exit(code)
        elif tokens is not None:
            raise ConfigError(
                f"--tokens {tokens.value} has no effect with --model extractive, which reads the whole book: leave "
                f"it out, or name another model"
            )
        else:
            _book(question or QUESTION, outcome)


def _book(question: str, outcome: Outcome) -> None:
    """Reads the book with the extractive model."""
    from memagent.memory.agent import MemoryAgent
    from memagent.runstore import RunStore

    if outcome.for_people:
        outcome.paper.line((WHAT, "dim"))
    sample = resources.files("memagent").joinpath(BOOK)
    # A temporary store: a demo leaves nothing behind.
    with resources.as_file(sample) as path, closing(RunStore(None)) as store:
        document = open_source(path, name="War and Peace")
        agent = MemoryAgent(EXTRACTIVE, gate="update", store=store)
        stream = agent.stream(document, question)
        run(agent, stream, document, store, outcome, changes_only=True)
    if outcome.for_people:
        outcome.paper.line((NEXT, "dim"))
