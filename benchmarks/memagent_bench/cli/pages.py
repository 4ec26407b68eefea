"""`memagent-bench report`, `diagnose`, `tasks` and `systems`, which run nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from memagent.cli import options as opt
from memagent.cli.exits import Outcome, report_errors
from memagent.cli.options import Display, chosen_display
from memagent.terminal import console, say


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders written by a benchmark.")
    ],
    out: Annotated[
        Path | None,
        opt.option(
            "Where to write the page and its pictures. Default: the folder; required for several.",
            "DIR",
        ),
    ] = None,
    primary: Annotated[
        list[str] | None,
        opt.option(
            "A cell to test, or mean@LENGTH; may be repeated. Default: the mean at the longest shared length.",
            "TASK@LENGTH",
        ),
    ] = None,
    margin: Annotated[
        float, opt.option("Margin of the non-inferiority tests.", "POINTS", default=True)
    ] = 5.0,
    baseline: Annotated[
        str | None, opt.option("The system to compare the others with. Default: memory.", "SYSTEM")
    ] = None,
) -> None:
    """Write a page with tables, charts and tests for one or more folders of records."""
    with report_errors(Outcome()):
        from memagent.errors import ConfigError
        from memagent_bench.report import make_report
        from memagent_bench.sessions.page import make_session_report
        from memagent_bench.sessions.record import SESSIONS

        if out is None and len({folder.resolve() for folder in folders}) > 1:
            raise ConfigError(
                f"{len(folders)} folders share one page: name a folder for it (--out), so that none of their pages "
                f"is overwritten"
            )
        of_sessions = [folder for folder in folders if (folder / SESSIONS).exists()]
        if of_sessions:
            if len(of_sessions) < len(folders) or primary or baseline:
                raise ConfigError(
                    f"{str(of_sessions[0])!r} has sessions, which can't be compared with other records: report only "
                    f"on folders of sessions, without --primary and --baseline"
                )
            result = make_session_report(folders, out or folders[0])
        else:
            result = make_report(
                folders, out or folders[0], primary=primary or (), margin=margin, baseline=baseline
            )
        for caution in result.cautions:
            say("caution:", caution, style="yellow")
        for paragraph in result.summary:
            print(paragraph)
        print(result.page)


def diagnose(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder written by a benchmark.")],
    misses: Annotated[int, opt.option("Show N misses one by one.", "N", low=0, default=True)] = 5,
    display: opt.DisplayOption = None,
) -> None:
    """Explain wrong answers: what the memory held, and at which chunk it lost the answer."""
    chosen = chosen_display(display)
    outcome = Outcome(chosen)
    with report_errors(outcome):
        from memagent_bench.diagnose import diagnose as follow
        from memagent_bench.diagnose import show, to_json

        diagnosis = follow(folder)
        if chosen is Display.JSON:
            outcome.told = True
            print(to_json(diagnosis))
        elif chosen is Display.NONE:
            for trace in diagnosis.misses:
                record = trace.record
                print(
                    record.system, record.task, record.length, record.index, trace.label, sep="\t"
                )
        else:
            show(diagnosis, console(sys.stdout), misses)


def tasks() -> None:
    """List the tasks of each suite."""
    with report_errors(Outcome(chosen_display(None))) as outcome:
        from memagent_bench.suites import ABOUT, SUITES, tasks_of

        every = [(suite, name) for suite in SUITES for name in tasks_of(suite)]
        outcome.paper.table([(f"{suite:<8}  {name}", ABOUT[name]) for suite, name in every])


def systems() -> None:
    """List the systems; package.module:factory names your own."""
    with report_errors(Outcome(chosen_display(None))) as outcome:
        from memagent_bench.systems.registry import SYSTEMS

        outcome.paper.table([(name, system.about) for name, system in SYSTEMS.items()])
