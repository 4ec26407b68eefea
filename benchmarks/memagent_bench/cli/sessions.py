"""`memagent-bench sessions`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from memagent.cli.exits import NO_ANSWER, report_errors
from memagent.cli.options import Display, chosen_display
from memagent.cli.session import drive
from memagent.replacing import replacing
from memagent.terminal import amount, console, duration, say, shorten
from memagent.texts import plural
from memagent_bench.cli.measure import Going
from memagent_bench.cli.session_options import Sessions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memagent_bench.outside.grid import TaskGrid
    from memagent_bench.sessions.arms import Arm
    from memagent_bench.sessions.bench import SessionBench
    from memagent_bench.sessions.record import SessionRecord

RULES = "rules"
"""The writer of summaries unless a model is named."""
DETAIL = 100
"""Maximum characters shown of the reason why a session has no answer."""


def sessions(given: Sessions) -> None:
    """Measure tool sessions: 18 games, played with the whole history, parts of it, or summaries.

    A perfect player that sees only its context plays all games, so every loss is due to the context.
    `--games shifts --systems loops` compares memagent with other frameworks' loops, on the same tickets at a server.

    Without --model the prompts are only counted. Records go to DIR/sessions.jsonl; repeat the command to resume.
    """
    going = Going(chosen_display(given.display))
    with report_errors(going):
        bench = bench_of(given)
        records = drive(_run(bench, going))
        _show(bench, going)
        failed = [record for record in records if record.status == "failed"]
        if failed:
            say(
                "failed:",
                f"{plural(len(failed), 'session')}, the last one with {failed[-1].detail}; repeating the command "
                f"retries them",
                style="yellow",
            )
            raise typer.Exit(NO_ANSWER)


async def _run(bench: SessionBench, going: Going) -> list[SessionRecord]:
    def tell(record: SessionRecord, number: int, total: int) -> None:
        if going.for_people:
            print(f"{number:>{len(str(total))}}/{total} {line_of(record)}", flush=True)

    try:
        for writer in bench.writers.values():
            await writer.window()  # Fail now, not at the first summary, if it can't be opened.
        async with bench.open() as playing:
            going.begun = True
            return await playing.run(tell)
    finally:
        for model in (bench.model, *bench.writers.values()):
            if model is not None:
                await model.aclose()


def line_of(record: SessionRecord) -> str:
    """Formats a record on one line."""
    where = f"{record.difficulty:>6} {record.game:<10} {record.seed:>3}  {record.arm.label:<21}"
    if record.score is None:
        return f"{where} {record.reason.value.upper()}: {shorten(record.detail, DETAIL)}"
    verdict = "right" if record.score == 1 else "WRONG"
    paid = f"{amount(record.usage.prompt_tokens):>8} prompt tokens"
    return f"{where} {verdict}  {record.steps:>6,} steps  {paid}  {duration(record.seconds):>8}"


def _show(bench: SessionBench, going: Going) -> None:
    """Prints the table, and draws the picture if there is anything to show."""
    from memagent_bench.sessions.figures import cells, lines
    from memagent_bench.sessions.plot import PLOT, plot
    from memagent_bench.sessions.record import read_sessions
    from memagent_bench.sessions.wire import figures as wire_figures
    from memagent_bench.sessions.wire.plot import PLOT as STEPS
    from memagent_bench.sessions.wire.plot import plot_steps

    records = read_sessions(bench.out)
    results, rows = cells(records), wire_figures.rows(records)
    pictures = {PLOT: plot(results), STEPS: plot_steps(records)}
    drawn = [name for name, picture in pictures.items() if picture is not None]
    for name in drawn:
        with replacing(bench.out / name) as new:
            new.write_bytes(pictures[name] or b"")
    display = going.display
    if display is Display.JSON:
        data = {"suite": "sessions", "out": str(bench.out), "cells": [c.as_data() for c in results]}
        data |= {"wired": [asdict(row) for row in rows]} if rows else {}
        going.tell(data)
        return
    if display is Display.NONE:
        for cell in results:
            print(
                cell.difficulty,
                cell.arm.label,
                cell.success.mean,
                cell.prompt_tokens.median,
                sep="\t",
            )
        return
    paper, table = going.paper, lines(results)
    if display is Display.FULL and max(map(len, table[:-1]), default=0) > console(sys.stdout).width:
        table = lines(results, spread=False)
    for line in wire_figures.lines(rows) or table:
        paper.line(line)
    also = "".join(f", a picture in {bench.out / name}" for name in drawn)
    paper.line((f"records in {bench.out}{also}", "dim"))


def bench_of(given: Sessions) -> SessionBench:
    """Returns the sessions that a command line describes.

    Raises:
        ConfigError: an option is wrong.
    """
    from memagent.cli.fetch import ensure_fetched
    from memagent.models.spec import open_model
    from memagent_bench.games import names
    from memagent_bench.sessions.arms import ABOUT, arms
    from memagent_bench.sessions.bench import SessionBench
    from memagent_bench.sessions.grid import Grid
    from memagent_bench.sessions.wire.loops import LOOPS
    from memagent_bench.shift.shift import SHIFTS

    writers = list(dict.fromkeys(name.strip() for name in given.writers.split(",")))
    ways = arms(
        _several(given.systems, ABOUT, "system", {"loops": LOOPS}),
        working_contexts=_numbers(given.working_context, "--working-context"),
        summaries=_numbers(given.summaries, "--summaries"),
        kept=given.keep,
        writers=[None if name == RULES else name for name in writers],
    )
    seeds = range(given.seed, given.seed + given.samples)
    grid = _tasks_of(given, ways, seeds) or Grid(
        games=_several(given.games, names(), "game", {"shifts": SHIFTS}),
        difficulties=_numbers(given.difficulty, "--difficulty"),
        seeds=seeds,
        arms=ways,
    )
    model = None
    if given.model is not None:
        model = open_model(ensure_fetched(given.model), **given.server())
    return SessionBench(
        grid,
        given.out,
        model,
        player=given.player.value,
        protocol=given.protocol.value,
        window=given.window,
        tokenizer=given.tokenizer if model is None else None,
        concurrency=given.concurrency or (1 if model is None else 8),
        writers={n: open_model(ensure_fetched(n)) for n in writers if n != RULES},
    )


def _tasks_of(arguments: Sessions, ways: Sequence[Arm], seeds: Sequence[int]) -> TaskGrid | None:
    """Returns the tasks of a third-party suite; None if games are wanted.

    Raises:
        ConfigError: an option is wrong, or the suite's licence isn't accepted.
    """
    from memagent.errors import ConfigError

    if arguments.suite is None:
        if arguments.data is not None:
            raise ConfigError("--data is for --suite: name the suite, or leave it out")
        return None
    if arguments.difficulty != type(arguments).difficulty:
        raise ConfigError("--difficulty is for games: leave it out, --steps limits a suite's tasks")
    from memagent_bench.outside.grid import TaskGrid
    from memagent_bench.outside.suites import suite_of

    suite = suite_of(arguments.suite, accepted=arguments.accept_licence)
    if arguments.data is None:
        raise ConfigError(f"--suite {suite.name} needs --data DIR: the folder with its data")
    if suite.licence:
        say("licence:", suite.licence, style="yellow")
    return TaskGrid(
        suite,
        arguments.data,
        ways,
        seeds,
        arguments.steps,
        arguments.tasks,
        arguments.out,
        arguments.games,
    )


def _several(
    text: str, names: Iterable[str], what: str, group: Mapping[str, Iterable[str]]
) -> list[str]:
    """Parses comma-separated names, `all` for the known ones, or the name of a group.

    Raises:
        ConfigError: a name is unknown, or the list is empty.
    """
    from memagent_bench.suites import ALL, several_of

    names = [*names]
    if text.strip() == ALL:
        return names
    ((name, members),) = group.items()
    if text.strip() == name:
        return [*members]
    return several_of(text, [*names, *members], what)


def _numbers(text: str, option: str) -> tuple[int, ...]:
    """Parses comma-separated numbers.

    Raises:
        ConfigError: one isn't a number, or isn't positive.
    """
    from memagent.errors import ConfigError

    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) for part in parts):
        raise ConfigError(f"{option} {text!r}: give positive whole numbers, separated by commas")
    return tuple(dict.fromkeys(map(int, parts)))
