"""`memagent-bench quick`: a verdict on your own model and server in ten minutes."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memagent.cli import options as opt
from memagent.cli.exits import NO_ANSWER, report_errors
from memagent.cli.options import Display, chosen_display
from memagent.cli.session import drive
from memagent.replacing import replacing
from memagent.terminal import Paper, amount, duration, say
from memagent.texts import plural, show_length
from memagent_bench.cli.measure import Going, benchmark_of, watcher
from memagent_bench.cli.options import Measure, of_run
from memagent_bench.cli.results import show_gaps
from memagent_bench.lengths import parse_lengths

if TYPE_CHECKING:
    from memagent_bench.benchmark import Benchmark
    from memagent_bench.grid import Cell, Grid
    from memagent_bench.quick import Row
    from memagent_bench.record import Record
    from memagent_bench.runner import Summary
    from memagent_bench.watch import Board, SilentWatcher

LEFT_OUT = (
    *("tasks", "systems", "samples", "first", "no_context", "allow_repeats", "nested", "frames"),
    *("hotpotqa", "positions", "max_seconds", "dry_run"),
)
"""Options of other commands that would change the comparison."""
MOST_ROUNDS = 50
SAMPLE = Path(__file__).parents[1] / "data" / "squad_sample.json"
RESULT = "quick.json"
NAMES = {"ruler": "needles", "qa": "questions"}
ADDRESS = re.compile(r" at \S+?(?=,|$)")
TELLING = 0.1
"""Share of a round that must be done before its pace is reliable."""


@dataclass(frozen=True, kw_only=True)
class Quick(Measure):
    """The options of `quick`."""

    out: Annotated[
        Path,
        of_run(
            f"Where records and {RESULT} go. Repeat the command to add samples.",
            "DIR",
            default=True,
        ),
    ] = Path("quick")
    lengths: Annotated[
        str,
        opt.option(
            "Lengths of the documents, in tokens. Default: half of the window, and twice the window.",
            "L,L",
        ),
    ] = ""
    minutes: Annotated[
        float,
        opt.option(
            "Time limit: no call starts after it, and no round that would exceed it.",
            "N",
            low=0.1,
            default=True,
        ),
    ] = 10.0


def quick(given: Quick) -> None:
    """Find out in ten minutes whether a memory pays off with your model and server.

    Compares memagent (gate on and off), the document cut to the window (direct), and BM25 retrieval on the same
    samples: needles and questions at two lengths.
    """
    going = Going(chosen_display(given.display))
    with report_errors(going):
        from memagent_bench.quick import keep_comparable, rows, tokens_per_second, verdict
        from memagent_bench.records import RESULTS, read_records

        rounds = Rounds(given, going)
        drive(rounds.run())
        every = read_records(given.out) if (given.out / RESULTS).exists() else []
        records = keep_comparable(every)
        table, conclusion = rows(records, given.limits()), verdict(records)
        speed = tokens_per_second(records)
        _save(given, table, conclusion, speed, records)
        going.told = True
        if going.display is Display.JSON:
            print((given.out / RESULT).read_text(encoding="utf-8"), end="")
        elif going.display is Display.NONE:
            print(conclusion)
        else:
            _show(going.paper, table, conclusion, min(given.concurrency, rounds.jobs), speed)
        if rounds.close() or not records:
            raise typer.Exit(NO_ANSWER)


class Rounds:
    """Rounds of one sample per task and length until time runs out."""

    def __init__(self, given: Quick, going: Going) -> None:
        from memagent_bench.quick import SYSTEMS, TASKS

        self._given, self._going = given, going
        self._started = time.monotonic()
        self.jobs = 0
        """Samples of one suite's part of a round, under all systems."""
        self._rounds = 0
        """Finished rounds that had work to do."""
        self._summaries: list[Summary] = []
        self._begun = 0
        """Suites of rounds that had work to do."""
        self._slow = False
        self._failed_in_a_row = 0
        self._again = "repeat the command for more samples"
        given = replace(
            given,
            systems=",".join(SYSTEMS),
            squad=given.squad or SAMPLE,
            lengths=given.lengths or "1k",  # until the window is known
            allow_repeats=True,
            samples=1,
        )
        self._benches = [
            benchmark_of(suite, replace(given, tasks=task)) for suite, task in TASKS.items()
        ]
        self._model = self._benches[0].model

    @property
    def _spent(self) -> float:
        return time.monotonic() - self._started

    @property
    def _limit(self) -> str | None:
        return self._summaries[-1].limit if self._summaries else None

    async def run(self) -> None:
        """Runs rounds."""
        try:
            say("opening", self._model.name, style="dim")
            plan = await replace(self._benches[0], model=self._model).plan()
            window, chunk, memory = plan.budget.window, plan.budget.chunk, plan.budget.memory
            lengths = parse_lengths(self._given.lengths or f"{window // 2},{window * 2}")
            self.jobs = len(lengths) * len(self._benches[0].grid.systems)
            say(
                "reading",
                f"documents of {' and '.join(map(show_length, lengths))} tokens; window {window:,}, chunk {chunk:,}, "
                f"memory {memory:,}",
                style="dim",
            )
            for index in range(MOST_ROUNDS):
                begun = self._begun
                for bench in self._benches:
                    if self._limit is None:
                        await self._measure(
                            bench, replace(bench.grid, lengths=lengths, first=index)
                        )
                if self._limit is not None:
                    break
                self._rounds += self._begun > begun
                # Start the next one only if it should finish in time.
                each = self._spent / max(1, self._rounds)
                if self._rounds and self._spent + each > 60 * self._given.minutes:
                    break
            else:
                self._again = "there are no more samples"
        finally:
            await self._model.aclose()

    async def _measure(self, bench: Benchmark, grid: Grid) -> None:
        """Runs one suite's part of a round within the remaining time."""
        seconds = max(0.0, 60 * self._given.minutes - self._spent)
        limits = bench.limits.model_copy(update={"seconds": round(seconds, 1)})
        wanted = replace(bench, grid=grid, model=self._model, limits=limits)
        title = f"round {self._rounds + 1}: {NAMES[grid.suite]} · {self._model.name}"

        def watch(board: Board) -> SilentWatcher:
            if not self._begun:
                self._foresee(board)
            self._begun += 1
            return watcher(self._going, title, board)

        async with wanted.open() as opened:
            summary = await opened.run(watch, failed_in_a_row=self._failed_in_a_row)
        self._failed_in_a_row = summary.failed_in_a_row
        self._summaries.append(summary)

    def _foresee(self, board: Board) -> None:
        """Warns that the first round won't finish in time, once its pace is known."""
        seconds = board.left
        if seconds is None or board.fraction < TELLING:
            asyncio.get_running_loop().call_later(1, self._foresee, board)
        elif (total := len(self._benches) * (board.elapsed + seconds)) > 60 * self._given.minutes:
            self._say_slow(f"may take {duration(total)}")

    def _say_slow(self, takes: str) -> None:
        if not self._slow:
            self._slow = True
            say(
                "slow:",
                f"one round {takes}, longer than --minutes {self._given.minutes:g}. Records are kept: repeat "
                f"the command to continue, give more --minutes, or start over with a smaller --window or --lengths",
                style="yellow",
            )

    def close(self) -> bool:
        """Prints what is missing and how to continue. Returns whether answers are missing or a limit was hit."""
        limited = self._limit is not None and "seconds=" not in self._limit
        missing = [record for summary in self._summaries for record in summary.missing]
        impossible: dict[Cell, dict[int, str]] = defaultdict(dict)
        for summary in self._summaries:
            for cell, reasons in summary.impossible.items():
                impossible[cell] |= reasons
        if self._limit is not None and not limited and not self._rounds:
            self._say_slow("takes longer")
        if self._summaries:
            last = replace(self._summaries[-1], missing=missing, impossible=impossible)
            show_gaps(last, self._going.resume_command(None))
        say(
            "done:",
            f"{plural(self._rounds, 'round')} in {duration(self._spent)}; {self._given.out / RESULT} can be shared; "
            f"{self._again}",
            style="dim",
        )
        return bool(missing) or limited


def _save(
    arguments: Quick, table: list[Row], conclusion: str, speed: float, records: Sequence[Record]
) -> None:
    provenance = records[-1].provenance.model_dump(mode="json") if records else {}
    if provenance.get("server"):  # don't publish the server's address
        provenance["server"] = ADDRESS.sub("", provenance["server"])
    result = {
        "verdict": conclusion,
        "rows": [asdict(row) for row in table],
        "tokens_per_second": speed,
        "concurrency": arguments.concurrency,
        "made": provenance,
    }
    text = json.dumps(result, indent=2, ensure_ascii=False)
    with replacing(arguments.out / RESULT) as new:
        new.write_text(text + "\n", encoding="utf-8")


def _show(paper: Paper, table: list[Row], conclusion: str, at_once: int, speed: float) -> None:
    from memagent_bench.quick import PER, TASKS
    from memagent_bench.table import align

    paper.line("")
    head = [
        "system",
        "at",
        "right (95%)",
        *(["no answer"] if any(row.score.unscored for row in table) else []),
        *NAMES.values(),
        "saw",
        "time",
        "per 100K: time",
        "tokens",
    ]
    lines = [[*head, "cost"] if any(row.cost is not None for row in table) else head]
    for row in table:
        score, parts = row.score, [row.tasks.get(task) for task in TASKS.values()]
        lines.append(
            [
                row.system,
                show_length(row.length),
                f"{score.mean:.2f} ({score.low:.2f} to {score.high:.2f})",
                *([f"{score.unscored} of {score.n}"] if "no answer" in head else []),
                *("-" if part is None else f"{part.mean * part.n:g} of {part.n}" for part in parts),
                "-" if row.shown is None else f"{row.shown:.0%}",
                *(
                    "-" if row.seconds is None else duration(row.seconds * n / PER)
                    for n in (row.length, PER)
                ),
                amount(row.prompt_tokens + row.completion_tokens),
                *([] if row.cost is None else [f"{row.cost:.3g}"]),
            ]
        )
    if table:
        for line in align(lines):
            paper.line(line)
        note = f"time: per document, with up to {plural(at_once, 'sample')} at once; per 100K: per 100K document tokens"
        paper.line((f"{note}; {amount(speed)} tokens/s in all", "dim"))
    paper.line(("verdict: ", "bold"), conclusion)
