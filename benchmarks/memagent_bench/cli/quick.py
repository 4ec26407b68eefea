"""`memagent-bench quick`: ten minutes with your own model and server, and a verdict."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memagent.cli import options as opt
from memagent.cli.exits import reported
from memagent.cli.options import Display
from memagent.cli.session import drive
from memagent.cli.setup import chosen_display
from memagent.terminal import Paper, amount, duration, plural, say
from memagent_bench.cli.measure import Going, benchmark_of
from memagent_bench.cli.options import Measure
from memagent_bench.lengths import show_length

if TYPE_CHECKING:
    from memagent_bench.benchmark import Benchmark
    from memagent_bench.quick import Row
    from memagent_bench.record import Record

LEFT_OUT = (
    *("tasks", "systems", "samples", "first", "no_context", "allow_repeats", "nested", "frames"),
    *("hotpotqa", "positions", "max_seconds", "dry_run"),
)
"""Options of the other commands that would change what is compared."""
MOST_ROUNDS = 50
SAMPLE = Path(__file__).parents[1] / "data" / "squad_sample.json"
RESULT = "quick.json"


@dataclass(frozen=True, kw_only=True)
class Quick(Measure):
    """The options of `quick`."""

    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help=f"Where records and {RESULT} go. Repeat the command to add samples.",
            rich_help_panel=opt.RUN,
        ),
    ] = Path("quick")
    lengths: Annotated[
        str, typer.Option(metavar="L,L", help="Lengths of the documents, in tokens.")
    ] = "4k,16k"
    minutes: Annotated[
        float,
        typer.Option(metavar="N", min=0.1, help="Begin no round that would end after this time."),
    ] = 10.0


def quick(given: Quick) -> None:
    """Find out in ten minutes whether a memory pays with your model and server.

    Reads needles and questions at two lengths with memagent (gate on and off), with as much of the document as the
    window holds (direct), and with what BM25 finds; the same samples for all.
    """
    display = chosen_display(given.display)
    going = Going(display)
    with reported(going):
        from memagent_bench.quick import rows, verdict
        from memagent_bench.records import read_records

        rounds = drive(_run(given, going))
        records = read_records(given.out)
        table, said = rows(records, given.limits()), verdict(records)
        _save(given, table, said, records)
        going.told = True
        if display is Display.JSON:
            print((given.out / RESULT).read_text(encoding="utf-8"), end="")
            return
        _show(Paper(colour=display is Display.FULL), table, said, records)
        say("done:", f"{plural(rounds, 'round')}; {given.out / RESULT} can be shared", style="dim")


async def _run(given: Quick, going: Going) -> int:
    """Rounds of one sample of each task and length, until the time is over."""
    from memagent.threads import in_thread
    from memagent_bench.quick import MEMORY, OTHERS, TASKS
    from memagent_bench.watch import Board, SilentWatcher

    def watch(board: Board) -> SilentWatcher:
        going.begun = True
        return SilentWatcher(board)

    started, rounds = time.monotonic(), 0
    given = replace(
        given,
        systems=",".join((*MEMORY, *OTHERS)),
        squad=given.squad or SAMPLE,
        allow_repeats=True,
        samples=1,
    )
    model = None
    try:
        for index in range(MOST_ROUNDS):
            for suite, task in TASKS.items():
                wanted = replace(given, tasks=task, first=index)
                bench: Benchmark = await in_thread(benchmark_of, suite, wanted)
                model = model or bench.model
                async with replace(bench, model=model).open() as session:
                    await session.run(watch)
            rounds += 1
            spent = time.monotonic() - started
            say("round", f"{rounds} took {duration(spent / rounds)} on average", style="dim")
            # The next one is begun only if it should end in time.
            if spent * (rounds + 1) / rounds > 60 * given.minutes:
                break
    finally:
        if model is not None:
            await model.aclose()
    return rounds


def _save(given: Quick, table: list[Row], said: str, records: list[Record]) -> None:
    made = records[-1].provenance.model_dump(mode="json") if records else {}
    result = {
        "verdict": said,
        "rows": [asdict(row) for row in table],
        "concurrency": given.concurrency,
        "made": made,
    }
    text = json.dumps(result, indent=2, ensure_ascii=False)
    (given.out / RESULT).write_text(text + "\n", encoding="utf-8")


def _show(paper: Paper, table: list[Row], said: str, records: list[Record]) -> None:
    found: list[tuple[str, str]] = []
    for row in table:
        score = row.score
        missing = f", {score.unscored} without an answer" if score.unscored else ""
        cost = "" if row.cost is None else f", costs {row.cost:.3g}"
        words = (
            f"{score.mean:.2f} ({score.low:.2f} to {score.high:.2f}, n={score.n}{missing}), saw {row.shown:.0%}; per "
            f"100K tokens {duration(row.seconds)}, {amount(round(row.prompt_tokens))} prompt and "
            f"{amount(round(row.completion_tokens))} completion tokens{cost}"
        )
        found.append((f"{row.system} at {show_length(row.length)}", words))
    paper.table(found)
    tokens = sum(r.usage.prompt_tokens + r.usage.completion_tokens for r in records)
    seconds = sum(record.seconds for record in records)
    paper.line(
        f"{amount(round(tokens / seconds)) if seconds else 0} tokens/s for one sample at a time"
    )
    paper.line(("verdict: ", "bold"), said)
