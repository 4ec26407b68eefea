"""`memagent resume`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from memagent.cli import options as opt
from memagent.cli.ask import run
from memagent.cli.exits import Outcome, reported
from memagent.cli.options import Display
from memagent.cli.progress import Tally
from memagent.cli.results import is_session, report
from memagent.cli.setup import agent_again, chosen_display, chosen_store, existing_store
from memagent.cli.source import open_source
from memagent.errors import ConfigError

if TYPE_CHECKING:
    from memagent.runstore import RunRecord


def resume(
    run_id: opt.RunArgument,
    document: Annotated[
        str | None,
        opt.option(
            None,
            "The document again, if it came from standard input or has moved; - is standard input.",
            "--document",
            metavar="FILE",
        ),
    ] = None,
    base_url: opt.BaseUrl = None,
    max_calls: opt.MaxCalls = None,
    store: opt.Store = None,
    durable: opt.Durable = False,
    display: opt.DisplayOption = None,
    json: opt.Json = False,
) -> None:
    """Resume an interrupted or stopped run; on a finished one, print the stored answer.

    No finished call is sent again. A tool session can only be resumed by the program that has its tools.
    """
    shown = chosen_display(display, json=json)
    outcome = Outcome(json=shown is Display.JSON, store_flag=store, run_id=run_id, limit=max_calls)
    with reported(outcome):
        existing_store(store).close()
        opened = chosen_store(store, durable=durable)
        outcome.watch_store(opened)
        record = opened.get(run_id)
        if record.status == "finished":
            report(opened, record, Tally.of(opened, record), shown, outcome)
            return
        if is_session(record):
            raise _cannot_resume(record, store)
        agent = agent_again(record, opened, base_url=base_url, max_calls=max_calls)
        source = None
        named = document or record.source.get("path")
        if named is not None:
            options: dict[str, Any] = record.source.get("options") or {}
            source = open_source(named, **options)
        run(agent, agent.resume_stream(run_id, source), source, opened, shown, outcome)


def _cannot_resume(record: RunRecord, store: Path | None) -> ConfigError:
    where = "" if store is None else f", store={str(store)!r}"
    return ConfigError(
        f"run {record.id!r} is a tool session, and its tools are in the program that made it: resume it from Python, "
        f"with ToolAgent(model, tools{where}).resume({record.id!r}) and the settings that it was made with"
    )
