"""`memagent-bench reproduce`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import typer

from memagent.cli.exits import report_errors
from memagent.cli.options import Display, chosen_display
from memagent.cli.session import drive
from memagent.errors import ConfigError
from memagent.terminal import say
from memagent.texts import show_length
from memagent_bench.cli.measure import Going, forecast, leave, run
from memagent_bench.cli.options import Reproduce
from memagent_bench.cli.results import as_data, show_forecast, show_gaps

if TYPE_CHECKING:
    from memagent_bench.benchmark import Benchmark
    from memagent_bench.costs import Share
    from memagent_bench.reproduce.protocol import Part
    from memagent_bench.reproduce.verdict import Verdict
    from memagent_bench.runner import Summary


def reproduce(given: Reproduce) -> None:
    """Run the published protocol on a published checkpoint, and compare the figures.

    Serve the checkpoint with vLLM or SGLang, then name it: --base-url URL --model NAME. The command
    prints the cost and asks before it starts. Records go to DIR/results.jsonl; repeat the command to resume.
    """
    going = Going(chosen_display(given.display))
    with report_errors(going):
        benchmarks = [(part, benchmark_of(part, given)) for part in parts_of(given)]
        _say_caveats(given, [part for part, _ in benchmarks])
        _check_data(given, [part for part, _ in benchmarks])
        if given.dry_run:
            counted = given.tokenizer or "GPT-2's tokenizer (give the model's with --tokenizer)"
            say("estimated:", f"tokens are those of {counted}; no server is asked", style="dim")
        foresee = partial(_forecast_unserved, given) if given.dry_run else forecast
        work = [(bench, drive(foresee(bench))) for _, bench in benchmarks]
        speed = given.speed
        if speed is None and not given.dry_run and any(shares for _, shares in work):
            speed = drive(_speed(given, benchmarks[0][0]))
        if given.dry_run or going.for_people:
            show_forecast(work, going, speed=speed)
        if given.dry_run:
            return
        if any(shares for _, shares in work):
            _confirm(given)
        summaries = _run(given, [part for part, _ in benchmarks], going)
        _report(given, benchmarks, summaries, going)
        leave(*summaries)


def parts_of(given: Reproduce) -> list[Part]:
    """Returns the published rows that the options select.

    Raises:
        ConfigError: there is nothing to compare with.
    """
    from memagent_bench.lengths import parse_lengths
    from memagent_bench.reproduce.protocol import parts
    from memagent_bench.suites import several_of

    suites = several_of(given.suites, ("qa", "ruler"), "suite")
    lengths = None if given.lengths is None else parse_lengths(given.lengths)
    return parts(given.checkpoint, suites, lengths)


def benchmark_of(part: Part, given: Reproduce) -> Benchmark:
    """Returns the benchmark of one published row.

    Raises:
        ConfigError: an option is wrong, or no wording is given.
    """
    from memagent.models.limit import Limits
    from memagent.models.spec import SCHEMES, open_model
    from memagent.prompts import PromptSet
    from memagent_bench.benchmark import Benchmark
    from memagent_bench.grid import Grid
    from memagent_bench.reproduce.protocol import SYSTEM, settings
    from memagent_bench.suites import tasks_of

    if given.prompts is None:
        raise ConfigError(
            f"{given.checkpoint} was trained on one exact wording: give it with --prompts FILE (docs/prompts.md says "
            f"how to write it down), or --prompts boxed for memagent's own, with which less is to be expected"
        )
    model = given.model
    if model is not None and model.partition(":")[0] not in SCHEMES:
        model = f"vllm:{model}"
    tasks = tasks_of(part.suite)
    return Benchmark(
        grid=Grid(
            suite=part.suite,
            tasks={name: tasks[name] for name in part.tasks},
            lengths=part.lengths,
            samples=part.table.samples,
            systems=[SYSTEM],
            options=given.data(),
            longest=part.table.until,
        ),
        model=open_model(model, **given.server()),
        prompts=PromptSet.load(given.prompts),
        settings=settings(given.seed),
        out=given.out,
        limits=given.limits() or Limits(),
        concurrency=given.concurrency,
    )


def _say_caveats(arguments: Reproduce, parts: Sequence[Part]) -> None:
    from memagent.prompts import PromptSet

    if arguments.prompts in PromptSet.built_in:
        say(
            "other wording:",
            f"--prompts {arguments.prompts} is memagent's own, but the checkpoint was trained with another: its "
            f"figures will probably be lower, and this is not a reproduction",
            style="yellow",
        )
    for part in parts:
        say("published:", f"{part.table.source}. {part.table.caveat}", style="dim")


def _check_data(arguments: Reproduce, parts: Sequence[Part]) -> None:
    """Looks for the data files; a dry run only says which are missing.

    Raises:
        ConfigError: a file wasn't found.
    """
    from memagent_bench.longqa.sources import hotpotqa_of, squad_of

    find = {"qa": hotpotqa_of, "ruler": squad_of}
    options = arguments.data()
    for part in parts:
        try:
            find[part.suite](options)
        except ConfigError as error:
            if not arguments.dry_run:
                raise
            say("needed:", str(error), style="yellow")


async def _forecast_unserved(arguments: Reproduce, bench: Benchmark) -> list[Share]:
    """Returns the remaining work and its cost, counted with a local tokenizer.

    Raises:
        TokenizerError: there is no tokenizer of that name.
    """
    from memagent.models.scripted import ScriptedModel
    from memagent.threads import in_thread
    from memagent_bench.length_tokens import length_counter

    counter = await in_thread(length_counter, arguments.tokenizer)
    stand_in = ScriptedModel((), window=None, counter=counter, name=bench.model.name)
    plan = await replace(bench, model=stand_in).plan()
    costs = await bench.forecast(plan)
    jobs = await in_thread(bench.list_remaining)
    return await plan.counting(costs.shares, [job for several in jobs for job in several])


async def _speed(arguments: Reproduce, part: Part) -> float:
    from memagent_bench.reproduce.speed import tokens_per_second

    bench = benchmark_of(part, arguments)
    try:
        return await tokens_per_second(bench.model, await bench.plan(), bench.concurrency)
    finally:
        await bench.model.aclose()


def _confirm(arguments: Reproduce) -> None:
    if arguments.yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError("nobody is there to be asked whether it should begin: give --yes")
    if not typer.confirm("Begin?", err=True):
        raise typer.Exit


def _run(arguments: Reproduce, parts: Sequence[Part], going: Going) -> list[Summary]:
    """Runs one suite after another until a limit is reached."""
    summaries: list[Summary] = []
    for part in parts:
        summaries.append(drive(run(benchmark_of(part, arguments), going)))
        if summaries[-1].limit:
            break
    return summaries


def _report(
    arguments: Reproduce,
    benchmarks: Sequence[tuple[Part, Benchmark]],
    summaries: Sequence[Summary],
    going: Going,
) -> None:
    from memagent_bench.records import read_records
    from memagent_bench.reproduce.verdict import verdicts

    records = read_records(arguments.out)
    comparisons = [
        verdict
        for part, _ in benchmarks
        for verdict in verdicts(part, [r for r in records if r.suite == part.suite])
    ]
    if going.display is Display.JSON:
        runs = [as_data(bench, s) for (_, bench), s in zip(benchmarks, summaries, strict=False)]
        going.tell({"verdicts": [*map(_to_dict, comparisons)], "runs": runs})
    elif going.display is Display.NONE:
        for verdict in comparisons:
            measured = "" if verdict.measured is None else verdict.measured.mean
            cells = (verdict.suite, verdict.length, measured, verdict.published.mean)
            print(*cells, verdict.agreement, sep="\t")
    else:
        going.paper.table(
            [(f"{v.suite} at {show_length(v.length)}", _words(v)) for v in comparisons]
        )
    for summary in summaries:
        show_gaps(summary, going.resume_command(None))


def _words(verdict: Verdict) -> str:
    published = f"published {verdict.published.mean:.1%}"
    if verdict.measured is None or verdict.difference is None:
        return f"not measured yet, {published}"
    m, d = verdict.measured, verdict.difference
    missing = f", {m.unscored} without an answer" if m.unscored else ""
    return (
        f"measured {m.mean:.1%} ({m.low:.1%} to {m.high:.1%}, n={m.n}{missing}), {published}: {verdict.agreement} "
        f"(difference {100 * d.low:+.1f} to {100 * d.high:+.1f} points)"
    )


def _to_dict(verdict: Verdict) -> dict[str, object]:
    measured, difference = verdict.measured, verdict.difference
    return {
        "suite": verdict.suite,
        "length": verdict.length,
        "published": verdict.published.mean,
        "measured": None if measured is None else measured.mean,
        "interval": None if measured is None else [measured.low, measured.high],
        "n": 0 if measured is None else measured.n,
        "unscored": 0 if measured is None else measured.unscored,
        "difference": None if difference is None else [difference.low, difference.high],
        "agreement": verdict.agreement,
    }
