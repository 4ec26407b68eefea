"""`memagent demo`: the whole runtime on a real book, without a server."""

from contextlib import closing
from importlib import resources
from typing import Annotated

import typer

from memagent.cli import options as opt
from memagent.cli.ask import run
from memagent.cli.chapter import read_chapter
from memagent.cli.exits import NO_ANSWER, WRONG, Outcome, report_errors
from memagent.cli.fetch import ensure_fetched
from memagent.cli.needle import BOOK, BOOK_TOKENS, Length, hide
from memagent.cli.options import Display, chosen_display
from memagent.cli.progress import Tally
from memagent.cli.session import drive
from memagent.cli.setup import open_source
from memagent.cli.show import as_json, report
from memagent.cli.watch import watch
from memagent.documents import open_document
from memagent.errors import ConfigError
from memagent.terminal import amount
from memagent.texts import plural

EXTRACTIVE = "extractive"
NOTE_KEEPERS = ("nano", "transformers")
"""Policies trained on facts like the hidden one, and good for little else."""
QUESTION = "When did Natasha marry?"
WHAT = """\
All of War and Peace, read through a memory of about 1,000 bytes.
The model is `extractive`: no LLM, no weights; it keeps sentences that share words with the question.
"""
NEXT = "Next, with a real model: memagent ask FILE 'QUESTION' --model vllm:NAME"


def demo(
    question: Annotated[
        str | None, opt.argument("QUESTION", f"What to ask extractive. Default: {QUESTION}")
    ] = None,
    model: Annotated[
        str,
        opt.option(
            "extractive answers a question about the book; nano, or transformers:FOLDER, has to find a fact that is "
            "hidden in it; smol and others answer three questions about a chapter.",
            "SPEC",
            default=True,
        ),
    ] = EXTRACTIVE,
    tokens: Annotated[
        Length | None,
        typer.Option(
            help="Hide a fact in a text of this length, in GPT-2 tokens. Default for nano: 256k.",
            case_sensitive=False,
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, opt.option("Chooses the fact and its place.", default=True)] = 0,
    display: opt.DisplayOption = None,
    json: opt.Json = False,
) -> None:
    """Watch memagent read War and Peace and answer a question about it, without a server.

    With [b]--model nano[/], a small trained policy looks for a fact hidden in the text.

    With [b]--model smol[/], a small language model answers three questions about a chapter.
    """
    with report_errors(Outcome(chosen_display(display, json=json))) as outcome:
        if model.strip() != EXTRACTIVE:
            if question is not None:
                raise ConfigError(
                    f"the question {question!r} needs --model extractive: for {model!r} the demo has its own questions"
                )
            if tokens is not None or model.partition(":")[0].strip() in NOTE_KEEPERS:
                find_needle(model, tokens or Length.K256, seed, outcome)
            else:
                read_chapter(model, seed, outcome)
        elif tokens is not None:
            raise ConfigError(
                f"--tokens {tokens.value} has no effect with --model extractive, which reads the whole book: leave "
                f"it out, or name another model"
            )
        else:
            _book(question or QUESTION, outcome)


def _book(question: str, outcome: Outcome) -> None:
    from memagent.memory.agent import MemoryAgent
    from memagent.runstore import RunStore

    if outcome.for_people:
        outcome.paper.line((WHAT, "dim"))
    sample = resources.files("memagent").joinpath(BOOK)
    # A temporary store, so the demo leaves nothing behind.
    with resources.as_file(sample) as path, closing(RunStore(None)) as store:
        document = open_source(path, name="War and Peace")
        agent = MemoryAgent(EXTRACTIVE, gate="update", store=store)
        stream = agent.stream(document, question)
        run(agent, stream, document, store, outcome, changes_only=True)
    if outcome.for_people:
        outcome.paper.line((NEXT, "dim"))


def find_needle(model: str, length: Length, seed: int, outcome: Outcome) -> None:
    """Hides a needle, lets the model look for it, and shows the outcome; exits unless the answer is right."""
    from memagent.memory.agent import MemoryAgent
    from memagent.runstore import RunStore

    paper, needle = outcome.paper, hide(length, seed)
    # With the gate off, only the policy itself carries the memory forward.
    with (
        closing(RunStore(None)) as store,
        closing(MemoryAgent(ensure_fetched(model), gate="off", seed=seed, store=store)) as agent,
    ):
        document = open_document(needle.text, name="War and Peace, with a needle")
        chunks = plural(drive(agent.aestimate(document, needle.question)).chunks, "chunk")
        if outcome.for_people:
            share, tokens = needle.place / len(needle.text), amount(length.tokens)
            repeats = f"War and Peace has {amount(BOOK_TOKENS)} tokens, so parts of it repeat.\n"
            paper.line(
                f"{needle.fact!r} is hidden {share:.0%} of the way into about {tokens} GPT-2 tokens of a book.\n"
                f"{agent.model.name} is asked {needle.question!r} and reads {chunks}.\n"
                "The gate is off: after each chunk it rewrites its whole memory, which is all that it keeps of the "
                f"text.\n{repeats if length.tokens > BOOK_TOKENS else ''}"
            )
        tally = Tally(chars=len(needle.text))
        stream = agent.stream(document, needle.question)
        watch(agent, stream, tally, outcome.display, changes_only=True)
        record, seconds, speed = store.get(stream.run_id), tally.elapsed, tally.speed
        answer = tally.notebooks[0].answer
        right = needle.is_right(answer)
        if outcome.display is Display.JSON:
            facts = {
                "fact": needle.fact,
                "place": needle.place,
                "characters": len(needle.text),
                "right": right,
                "seconds": round(seconds, 3),
                "tokens_per_second": round(speed, 1),
            }
            outcome.tell(as_json(store, record, tally) | facts)
        else:
            report(store, record, tally, outcome, seconds)
    if outcome.for_people and answer is not None:
        verdict = ("right", "bold green") if right else ("wrong", "bold red")
        paper.line(verdict, f": it is {needle.count}")
    if outcome.for_people:
        paper.line((f"{amount(speed)} tokens/s", "dim"))
    if not right:
        raise typer.Exit(WRONG if answer is not None else NO_ANSWER)
