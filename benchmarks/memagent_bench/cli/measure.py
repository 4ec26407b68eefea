"""`memagent-bench ruler`, `qa`, `tracking`, `notes` and `samples`."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import typer

from memagent.cli.exits import NO_ANSWER, Outcome, report_errors
from memagent.cli.options import Display, chosen_display, screen_of
from memagent.cli.session import drive
from memagent_bench.cli.options import Measure, MeasureFile
from memagent_bench.cli.results import as_data, show_forecast, show_gaps, show_means

if TYPE_CHECKING:
    from memagent.memory.plan import MemorySettings
    from memagent.models.policy import Policy
    from memagent_bench.benchmark import Benchmark
    from memagent_bench.costs import Share
    from memagent_bench.grid import Grid
    from memagent_bench.runner import Summary
    from memagent_bench.watch import Board, SilentWatcher

BAD_SETTING = 2


@dataclass
class Going(Outcome):
    """What a command knows if a benchmark ends early."""

    begun: bool = False
    """Whether there is a folder to resume from."""

    def resume_command(self, run_id: str | None) -> str | None:
        """Returns the command line that resumes the run, without passwords in URLs or header values."""
        words = map(_mask_header, sys.argv, sys.argv[1:])
        line = shlex.join(["memagent-bench", *words])
        return re.sub(r"//[^/@\s]+@", "//…@", line) if self.begun else None


def _mask_header(flag: str, word: str) -> str:
    """Masks a word of the command line: of a header only the name remains."""
    if flag == "--header" or word.startswith("--header="):
        return f"{word.partition(':')[0]}: …"
    return word


def measure(suite: str, doc: str) -> Callable[[Measure], None]:
    """Returns the command of a suite.

    Args:
        suite: its name.
        doc: its help.
    """

    def command(given: Measure) -> None:
        going = Going(chosen_display(given.display))
        with report_errors(going):
            bench = benchmark_of(suite, given)
            if given.dry_run:
                show_forecast([(bench, drive(forecast(bench)))], going)
                return
            summary = drive(run(bench, going))
            if going.display is Display.JSON:
                going.tell(as_data(bench, summary))
            else:
                show_means(bench, going)
            show_gaps(summary, going.resume_command(None))
            leave(summary)

    command.__doc__ = doc
    return command


def watcher(going: Going, title: str, board: Board) -> SilentWatcher:
    """Returns a watcher for a session that is about to begin, as its display option says."""
    from memagent_bench.watch import LiveWatcher, PlainWatcher, SilentWatcher

    going.begun = True
    if stream := screen_of(going.display):
        return LiveWatcher(board, title, stream)
    return PlainWatcher(board) if going.display is Display.PLAIN else SilentWatcher(board)


def leave(*summaries: Summary) -> None:
    """Ends the command according to its summaries.

    Raises:
        Exit: code 6 if samples lack an answer, 2 if some can't be made.
    """
    if any(summary.limit or summary.missing for summary in summaries):
        raise typer.Exit(NO_ANSWER)
    if any(summary.impossible for summary in summaries):
        raise typer.Exit(BAD_SETTING)


async def forecast(bench: Benchmark) -> list[Share]:
    """Returns the remaining work of a benchmark with its cost.

    Raises:
        RunMismatch: its folder was made with different settings.
    """
    from memagent.threads import in_thread

    try:
        plan = await bench.plan()
        costs = await bench.forecast(plan)
        jobs = await in_thread(bench.list_remaining, plan)
        return await plan.counting(costs.shares, [job for several in jobs for job in several])
    finally:
        await bench.model.aclose()


async def run(bench: Benchmark, going: Going) -> Summary:
    """Runs a benchmark and shows its progress.

    Raises:
        MemagentError: what ended it early.
    """
    grid = bench.grid
    title = f"{grid.suite} · {bench.model.name} · {', '.join(grid.systems)} · {bench.out}"
    try:
        async with bench.open() as opened:
            return await opened.run(partial(watcher, going, title))
    finally:
        await bench.model.aclose()


def benchmark_of(suite: str, given: Measure) -> Benchmark:
    """Returns the benchmark that a command line describes.

    Raises:
        ConfigError: an option is wrong.
    """
    from memagent.cli.fetch import ensure_fetched
    from memagent.models.limit import Limits
    from memagent.models.policy import policy_of
    from memagent.models.spec import open_model
    from memagent.prompts import PromptSet
    from memagent_bench.benchmark import Benchmark

    model = open_model(ensure_fetched(given.model), **given.server())
    policy = policy_of(model)
    return Benchmark(
        grid=_grid(suite, given),
        model=model,
        prompts=PromptSet.load(given.prompts or policy.prompts or "plain"),
        settings=_settings(policy, given),
        out=given.out,
        limits=given.limits() or Limits(),
        concurrency=given.concurrency,
    )


def _grid(suite: str, arguments: Measure) -> Grid:
    from memagent_bench.grid import Grid
    from memagent_bench.lengths import parse_lengths
    from memagent_bench.sample_file import grid_of_file
    from memagent_bench.suites import CONTROL, choose_tasks
    from memagent_bench.systems.registry import choose_systems

    systems = choose_systems(arguments.systems)
    if isinstance(arguments, MeasureFile):
        return grid_of_file(
            arguments.file, systems, replace(arguments.data(), sample_file=arguments.file)
        )
    tasks = choose_tasks(suite, arguments.tasks, controls=arguments.no_context)
    lengths = parse_lengths(arguments.lengths)
    return Grid(
        suite=suite,
        tasks=tasks,
        lengths=lengths,
        samples=arguments.samples,
        systems=systems,
        options=arguments.data(),
        longest={name: min(lengths) for name in tasks if name.endswith(CONTROL)},
        first=arguments.first,
    )


def _settings(policy: Policy, arguments: Measure) -> MemorySettings:
    """Returns the given settings, else the model's policy settings, else the benchmarks' defaults.

    Raises:
        ConfigError: a setting has a bad value.
    """
    from memagent.memory.plan import MemorySettings
    from memagent.messages import Sampling

    drawing = {"temperature": arguments.temperature, "top_p": arguments.top_p}
    overrides = {name: value for name, value in drawing.items() if value is not None}
    return MemorySettings.choose(
        policy.reading(arguments.window),
        window=arguments.window,
        chunk_tokens=arguments.chunk_tokens,
        memory_tokens=arguments.memory_tokens,
        cuts=arguments.cuts or policy.reading().get("cuts", "exact"),
        trust=arguments.trust,
        degenerate=arguments.degenerate,
        reread=arguments.reread,
        sampling=dict(policy.sampling or Sampling()) | overrides,
        seed=arguments.seed,
    )
