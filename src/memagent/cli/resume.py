"""`memagent resume`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from memagent.cli import options as opt
from memagent.cli.ask import run
from memagent.cli.exits import Outcome, reported
from memagent.cli.options import Display
from memagent.cli.progress import Tally
from memagent.cli.results import is_session, report
from memagent.cli.setup import Served, agent_again, chosen_display, existing_store
from memagent.cli.source import open_source
from memagent.errors import ConfigError

if TYPE_CHECKING:
    from memagent.runstore import RunRecord


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
    shown = chosen_display(given.display, json=given.json)
    outcome = Outcome(
        json=shown is Display.JSON,
        store_flag=given.store,
        run_id=given.run_id,
        limit=given.max_calls,
        again=given.again(),
    )
    with reported(outcome):
        outcome.store = opened = existing_store(given.store, durable=given.durable)
        record = opened.get(given.run_id)
        if record.status == "finished":
            report(opened, record, Tally.of(opened, record), shown, outcome)
            return
        if is_session(record):
            raise _cannot_resume(record, given.store)
        agent = agent_again(record, opened, max_calls=given.max_calls, **given.server())
        source = None
        named = given.document or record.source.get("path")
        if named is not None:
            options: dict[str, Any] = record.source.get("options") or {}
            source = open_source(named, **options)
        run(agent, agent.resume_stream(record.id, source), source, opened, shown, outcome)


def _cannot_resume(record: RunRecord, store: Path | None) -> ConfigError:
    where = "" if store is None else f", store={str(store)!r}"
    return ConfigError(
        f"run {record.id!r} is a tool session, and its tools are in the program that made it: resume it from Python, "
        f"with ToolAgent(model, tools{where}).resume({record.id!r}) and the settings that it was made with"
    )
