"""`memagent summarize` and `memagent extract`."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from memagent.cli import options as opt
from memagent.cli.ask import ask, run
from memagent.cli.exits import report_errors
from memagent.cli.options import RUN, argument, option
from memagent.cli.setup import Ask, check_out, chosen_store, open_source

NOT_SUMMARIZED = ("question", "questions", "prompts", "reread")
NOT_LISTED = ("questions", "prompts", "gate", "degenerate", "reread")
"""Options of `ask` that don't apply."""


@dataclass(frozen=True, kw_only=True)
class Summarize(Ask):
    """The options of `summarize`."""

    style: Annotated[
        Literal["summary", "minutes"],
        option("Prose, or minutes: topics, decisions and tasks.", default=True),
    ] = "summary"
    model: opt.LanguageModel = None


@dataclass(frozen=True, kw_only=True)
class Extract(Ask):
    """The options of `extract`."""

    doc: Annotated[str, argument("DOC", opt.DOC_HELP)]
    question: Annotated[str, argument("WHAT", "What a row is: 'every invoice'.")] = field()
    schema: Annotated[
        str,
        option(
            "The pydantic model of a row, also from the current folder, or a file with its JSON schema.",
            "MODULE:CLASS|FILE.json",
        ),
    ]
    out: Annotated[
        Path | None,
        option("File for the rows, a JSON line each. Default: print them.", "FILE", panel=RUN),
    ] = None
    model: opt.LanguageModel = None


def summarize(given: Summarize) -> None:
    """Summarise a document, or write its minutes.

    An interrupted run can be resumed with [b]memagent resume ID[/].
    """
    from memagent.memory.jobs import STYLES

    ask(replace(given, prompts="summary", question=STYLES[given.style]))


def extract(given: Extract) -> None:
    """Find all rows of a type in a document, and count them.

    To resume an interrupted run, repeat the command with its [b]--run-id[/].
    """
    from memagent.named import load_function
    from memagent.schemas import read_schema

    with report_errors(given.outcome(again=(), out=given.out)) as outcome:
        given.list_questions()
        if given.schema.lower().endswith(".json"):
            schema: Any = read_schema(Path(given.schema))
        else:
            schema = load_function(given.schema, "schema", "class")
        document = open_source(given.doc, encoding=given.encoding, errors=given.errors)
        outcome.store = store = chosen_store(given.store, durable=given.durable)
        check_out(given.out, document.path, given.schema, store=store.path)
        agent = given.agent(store)
        stream = agent.extract_stream(document, schema, given.question, run_id=given.run_id)
        run(agent, stream, document, store, outcome)
