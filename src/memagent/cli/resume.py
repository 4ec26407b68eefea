"""`memagent resume`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from memagent.cli import options as opt
from memagent.cli.ask import run
from memagent.cli.exits import Outcome, reported
from memagent.cli.progress import Tally
from memagent.cli.results import is_session, report
from memagent.cli.setup import Served, agent_again, chosen_display, existing_store
from memagent.cli.source import open_source
from memagent.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Resume(Served):
    """The options of `resume`."""

    run_id: opt.RunArgument
    document: Annotated[
        str | None,
        opt.option(
            "The document again, if it came from standard input or has moved; - is standard input.",
            "FILE",
        ),
    ] = None
    max_calls: opt.MaxCalls = None
    store: opt.Store = None
    durable: opt.Durable = False
    display: opt.DisplayOption = None
    json: opt.Json = False


def resume(given: Resume) -> None:
    """Resume an interrupted or stopped run; on a finished one, print the stored answer.

    No finished call is sent again. A tool session can only be resumed by the program that has its tools.
    """
    display = chosen_display(given.display, json=given.json)
    outcome = Outcome(display, given.store, given.max_calls, given.again(), run_id=given.run_id)
    with reported(outcome):
        outcome.store = store = existing_store(given.store, durable=given.durable)
        record = store.get(given.run_id)
        if record.status == "finished":
            report(store, record, Tally.of(store, record), outcome)
            return
        if is_session(record):
            where = "" if given.store is None else f", store={str(given.store)!r}"
            raise ConfigError(
                f"run {record.id!r} is a tool session, and its tools are in the program that made it: resume it from "
                f"Python, with ToolAgent(model, tools{where}).resume({record.id!r}) and the settings that it was made "
                "with"
            )
        agent = agent_again(record, store, max_calls=given.max_calls, **given.server())
        named, document = given.document or record.source.get("path"), None
        if named is not None:
            document = open_source(named, **(record.source.get("options") or {}))
        run(agent, agent.resume_stream(record.id, document), document, store, outcome)
