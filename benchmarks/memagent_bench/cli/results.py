"""The output of a benchmark: forecasts before it, means and missing answers after it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from memagent.cli.exits import Outcome
from memagent.cli.options import Display
from memagent.terminal import amount, console, duration, say, shorten
from memagent.texts import plural, show_length

if TYPE_CHECKING:
    from memagent_bench.benchmark import Benchmark
    from memagent_bench.costs import Cost, Share
    from memagent_bench.record import Record
    from memagent_bench.runner import Summary
    from memagent_bench.table import Mean

REASONS = 8
"""Maximum number of failure reasons listed."""
REASON = 160
"""Maximum characters of each reason."""


def show_forecast(
    asked: Sequence[tuple[Benchmark, Sequence[Share]]],
    outcome: Outcome,
    *,
    speed: float | None = None,
) -> None:
    """Shows the planned work and its cost.

    Args:
        asked: benchmarks with the remaining work of each.
        outcome: of the command.
        speed: tokens per second, if known and not 0.
    """
    from memagent_bench.costs import total

    shares = [share for _, of_one in asked for share in of_one]
    cost, records = total(shares), sum(share.samples for share in shares)
    seconds = cost.tokens / speed if speed else None
    if outcome.display is Display.JSON:
        parts = [
            {"suite": b.grid.suite, **_share(share)} for b, of_one in asked for share in of_one
        ]
        totals = {"records": records, **_cost(cost), "seconds": seconds}
        outcome.tell({"forecast": totals | {"shares": parts}})
        return
    if outcome.display is Display.NONE:
        print(records, cost.calls, cost.prompt_tokens, cost.completion_tokens, sep="\t")
        return
    paper = outcome.paper
    rows: list[tuple[str, str]] = []
    for bench, of_one in asked:
        grid = bench.grid
        paper.line((f"{grid.suite}: ", "bold"), ", ".join(grid.tasks))
        rows += [
            (
                f"{grid.suite}, {share.system} at {show_length(share.length)}",
                f"{plural(share.samples, 'record')}, {_words(share.cost)}",
            )
            for share in of_one
        ]
    rows.append(("in all", f"{plural(records, 'record')}, {_words(cost)}"))
    if speed and seconds is not None:
        rows.append(("time", f"at most {duration(seconds)} at {amount(speed)} tokens/s"))
    paper.table(rows)
    paper.line("Assumes memories and replies of maximum length; retries cost extra.")


def _cost(cost: Cost) -> dict[str, int]:
    return {
        "calls": cost.calls,
        "prompt_tokens": cost.prompt_tokens,
        "completion_tokens": cost.completion_tokens,
    }


def _share(share: Share) -> dict[str, str | int]:
    place = {"system": share.system, "length": share.length, "records": share.samples}
    return place | _cost(share.cost)


def _words(cost: Cost) -> str:
    return (
        f"{plural(cost.calls, 'call')}, {amount(cost.prompt_tokens)} prompt and "
        f"{amount(cost.completion_tokens)} completion tokens"
    )


def show_means(bench: Benchmark, outcome: Outcome) -> None:
    """Shows the means: a table for people, or one mean per line."""
    from memagent_bench.table import lines

    rows, display = _means(bench), outcome.display
    if display is Display.NONE:
        for mean in rows:
            print(mean.system, mean.length, mean.score, mean.n, mean.missing, sep="\t")
    else:
        paper, table = outcome.paper, lines(rows)
        if display is Display.FULL and max(map(len, table), default=0) > console(sys.stdout).width:
            paper.table([(f"{m.system} at {show_length(m.length)}", str(m)) for m in rows])
        else:
            for line in table:
                paper.line(line)
        paper.line((f"{'records' if rows else 'no records yet'} in {bench.out}", "dim"))


def _means(bench: Benchmark) -> list[Mean]:
    from memagent_bench.table import means

    grid = bench.grid
    tasks_by_length = {
        length: [
            task
            for task in grid.tasks
            if length <= grid.longest.get(task, length) and grid.counts.get((task, length), 1)
        ]
        for length in grid.lengths
    }
    return means(_records(bench), tasks_by_length)


def _records(bench: Benchmark) -> list[Record]:
    from memagent_bench.records import read_records

    return [r for r in read_records(bench.out) if r.suite == bench.grid.suite]


def show_gaps(summary: Summary, again: str | None) -> None:
    """Prints caveats about the means and the command to resume, on standard error."""
    if summary.impossible:
        cells = [
            f"{task} at {show_length(length)} ({plural(len(reasons), 'sample')} left out)"
            for (task, length), reasons in summary.impossible.items()
        ]
        say("not measured in full:", f"{', '.join(cells)}; see above", style="yellow")
    if summary.missing:
        say(
            "without an answer:",
            f"{plural(len(summary.missing), 'record')} of this session; they count as 0, and repeating the command "
            f"retries them",
            style="yellow",
        )
        reasons = Counter(
            f"{record.system}, {record.status}: {shorten(record.detail, REASON)}"
            for record in summary.missing
        )
        for reason, n in reasons.most_common(REASONS):
            say(f"  {n} x", reason, style="yellow")
        if len(reasons) > REASONS:
            say(f"  and {len(reasons) - REASONS} other reasons", style="yellow")
    if summary.limit is not None:
        begun = (
            f"; {plural(summary.cut, 'sample')} in progress can be resumed" if summary.cut else ""
        )
        say("stopped:", summary.limit.partition(";")[0] + begun, style="yellow")
    if (summary.limit is not None or summary.missing) and again is not None:
        raised = summary.limit is not None and "seconds=" not in summary.limit
        say("resume with a higher limit:" if raised else "resume with:", again, style="dim")


def as_data(bench: Benchmark, summary: Summary) -> dict[str, object]:
    """Returns means over tasks and per task, with gaps, for JSON."""
    from memagent_bench.table import task_means

    return {
        "suite": bench.grid.suite,
        "out": str(bench.out),
        "means": [
            {
                "system": mean.system,
                "length": mean.length,
                "score": mean.score,
                "n": mean.n,
                "missing": mean.missing,
                "tasks": mean.tasks,
                "tasks_asked": mean.asked,
            }
            for mean in _means(bench)
        ],
        "tasks": [asdict(mean) for mean in task_means(_records(bench))],
        "missing": [
            {"task": r.task, "length": r.length, "index": r.index, "system": r.system}
            | {"status": r.status, "detail": r.detail}
            for r in summary.missing
        ],
        "impossible": [
            {"task": task, "length": length, "index": index, "why": why}
            for (task, length), reasons in summary.impossible.items()
            for index, why in reasons.items()
        ],
        "limit": summary.limit,
        "cut": summary.cut,
    }
