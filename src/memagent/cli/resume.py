"""`memagent resume`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from memagent.cli import options as opt
from memagent.cli.exits import Outcome, reported
from memagent.cli.options import Display
from memagent.cli.reading import read_and_report
from memagent.cli.results import report
from memagent.cli.setup import agent_again, chosen_display, chosen_store, existing_store
from memagent.cli.source import open_source
from memagent.cli.tool_session import cannot_resume, is_tool_session, report_session


def resume(
    run_id: Annotated[str, typer.Argument(metavar="ID", help="As memagent runs lists it.")],
    document: Annotated[
        str | None,
        typer.Option(
            "--document",
            metavar="FILE",
            help="The document again, where it came from standard input or has moved; - is standard input.",
            show_default=False,
        ),
    ] = None,
    base_url: opt.BaseUrl = None,
    max_calls: opt.MaxCalls = None,
    store: opt.Store = None,
    durable: opt.Durable = False,
    display: opt.DisplayOption = None,
) -> None:
    """Go on with a run that was interrupted or stopped; no finished call is sent again.

    A run that has its answers is shown again, without any call. A tool session goes on in the program that has its
    tools.
    """
    shown = chosen_display(display)
    outcome = Outcome(json=shown is Display.JSON, store_flag=store, run_id=run_id)
    with reported(outcome):
        existing_store(store).close()
        outcome.store = opened = chosen_store(store, durable=durable)
        record = opened.get(run_id)
        if is_tool_session(record):
            if record.status != "finished":
                raise cannot_resume(record, store)
            report_session(opened, record, shown, outcome)
            return
        if record.status == "finished":
            from memagent.memory.state import read_results

            report(read_results(opened, run_id), record, shown, outcome)
            return
        agent = agent_again(record, opened, base_url=base_url, max_calls=max_calls)
        source = None
        named = document or record.source.get("path")
        if named is not None:
            options: dict[str, Any] = record.source.get("options") or {}
            source = open_source(named, **options)
        stream = agent.resume_stream(run_id, source)
        read_and_report(agent, stream, source, opened, shown, outcome)
