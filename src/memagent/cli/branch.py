"""`memagent branch`."""

from dataclasses import dataclass
from typing import Annotated

from memagent.cli import options as opt
from memagent.cli.ask import run
from memagent.cli.exits import report_errors
from memagent.cli.options import MODEL, RUN, option
from memagent.cli.setup import Reading, agent_again, existing_store, open_again


@dataclass(frozen=True, kw_only=True)
class Branch(Reading):
    """The options of `branch`."""

    run_id: opt.RunArgument
    before: Annotated[
        int, option("The first chunk to read, as `show` numbers them; at least 1.", "N", low=1)
    ]
    questions: Annotated[
        list[str] | None,
        option("New wording of the question, of each if there are several.", "QUESTION", "-q", "--question"),
    ] = None  # fmt: skip
    document: opt.DocumentAgain = None
    model: opt.Model = None
    seed: Annotated[int | None, option("Seed of the new run.", panel=MODEL)] = None
    read_ahead: opt.ReadAhead = None
    reread: opt.Reread = None
    new_id: Annotated[str | None, option("Name of the new run.", "ID", panel=RUN)] = None


def branch(given: Branch) -> None:
    """Read on from an earlier point of a run, as a new run: with another model, settings or wording.

    The new run begins with a copy of what the old one did before chunk N, which costs nothing.

    The old run stays as it is, and what isn't given is taken from it.
    """
    with report_errors(given.outcome()) as outcome:
        from memagent.cli.fetch import ensure_fetched
        from memagent.memory.branch import check_origin

        outcome.store = store = existing_store(given.store, durable=given.durable)
        record = store.get(given.run_id, given.new_id)
        check_origin(record)
        model, settings = ensure_fetched(given.model), given.reading()
        agent = agent_again(record, store, model=model, changed=settings, **given.server())
        document = open_again(record, given.document)
        stream = agent.branch_stream(
            given.run_id, given.before, given.questions, document=document, new_id=given.new_id
        )
        run(agent, stream, document, store, outcome)
