"""How long samples take: those of this package against generating in the manner of RULER's script, in one run.

Usage: python -m memagent_bench.ruler.speed [--upstream CHECKOUT] [--lengths 128k,1m] [--write PAGE]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from math import inf
from pathlib import Path

from memagent.errors import MemagentError
from memagent.tasks import Task
from memagent.tasks.origin import machine
from memagent.texts import show_length
from memagent_bench.haystacks import essays
from memagent_bench.length_tokens import length_counter
from memagent_bench.lengths import M, parse_lengths
from memagent_bench.options import DataOptions
from memagent_bench.perf.measure import Row, page_parser, publish, split_page, table
from memagent_bench.ruler import upstream
from memagent_bench.ruler.naive import NaiveNiahTask
from memagent_bench.ruler.niah import NiahTask
from memagent_bench.ruler.tasks import TASKS as RULER
from memagent_bench.ruler.words import names

COMMAND = "generate"
TASKS = {"noise": "niah_single_1", "essay": "niah_single_2", "needles": "niah_multikey_2"}
"""The task that stands for each haystack."""
ALONE = ("vt", "cwe", "fwe")
"""Tasks timed without a naive generator for comparison, at shuffled positions, which is slower."""
TARGET = 0.05
"""Maximum CPU seconds for a further sample of a million tokens."""
FIRSTS, FURTHER = 3, 10
"""Repetitions for the first and for further samples."""
UPSTREAM_FURTHER = (2, 8, 32)
"""Further samples of RULER's script, increased until they take longer than `NOISE`."""
NOISE = 0.1
"""Share of its time by which two runs of RULER's script may differ by chance."""


def main() -> int:
    """Measures, prints a Markdown table; returns 1 if a target is missed or something is wrong."""
    parser = page_parser(__doc__)
    parser.add_argument("--upstream", type=Path, help="a checkout of NVIDIA/RULER to measure too")
    parser.add_argument("--upstream-tokenizer", default="openai:gpt2", metavar="TYPE:PATH")
    parser.add_argument("--upstream-python", default=sys.executable, metavar="FILE")
    parser.add_argument("--lengths", default="128k,1m")
    arguments = parser.parse_args()
    rows: list[Row] = []
    failed = False
    try:
        if arguments.write is not None:
            split_page(arguments.write, COMMAND)  # now, not after all measurements
        if arguments.upstream:
            upstream.script_of(arguments.upstream)
        for length in parse_lengths(arguments.lengths):
            for haystack in TASKS:
                measured = list(_compare(haystack, length))
                if arguments.upstream:
                    try:
                        measured += _upstream(haystack, length, arguments, measured)
                    except MemagentError as error:
                        failed = True
                        print(error, file=sys.stderr)
                print(table(measured), file=sys.stderr, flush=True)
                rows += measured
            rows += [_time_alone(name, length) for name in ALONE]
    except MemagentError as error:
        print(error, file=sys.stderr)
        return 1
    where = f"{machine()}; CPU seconds, GPT-2 tokens"
    return publish(rows, COMMAND, arguments.write, where) or int(failed)


def _compare(haystack: str, length: int) -> Iterator[Row]:
    name, options = TASKS[haystack], DataOptions(counter=length_counter(None))
    what = f"{haystack}, {show_length(length)}"

    def make_fresh(make: Callable[[str, int, DataOptions], Task]) -> tuple[Task, float]:
        names.cache_clear()
        essays.cache_clear()
        start = time.process_time()
        task = make(name, length, options)
        task.sample(0)
        return task, time.process_time() - start

    runs = [make_fresh(NiahTask) for _ in range(FIRSTS)]
    first = [seconds for _, seconds in runs]
    further = _time_further(runs[-1][0], FURTHER)
    naive, naive_first = make_fresh(NaiveNiahTask)
    naive_further = _time_further(naive, 2 if length >= M else 4)
    yield Row(f"{what}: first sample", first, "s")
    yield _within_target(what, length, further)
    yield Row(f"{what}: first sample, naive", [naive_first], "s")
    yield Row(f"{what}: further sample, naive", naive_further, "s")
    yield _ratio(f"{what}: first sample, naive / this", [naive_first], first)
    yield _ratio(f"{what}: further sample, naive / this", naive_further, further)


def _time_alone(name: str, length: int) -> Row:
    options = DataOptions(counter=length_counter(None), positions="shuffled")
    task = RULER[name](length, options)
    task.sample(0)
    return _within_target(f"{name}, {show_length(length)}", length, _time_further(task, FURTHER))


def _within_target(what: str, length: int, further: list[float]) -> Row:
    return Row(f"{what}: further sample", further, "s", most=TARGET if length >= M else inf)


def _upstream(
    haystack: str, length: int, arguments: argparse.Namespace, ours: Sequence[Row]
) -> Iterator[Row]:
    """Measures RULER's script against the first two rows of `_compare`."""
    what = f"{haystack}, {show_length(length)}"

    def seconds(n: int) -> float:
        with tempfile.TemporaryDirectory() as folder:
            return upstream.generate(
                arguments.upstream,
                TASKS[haystack],
                length,
                n,
                Path(folder),
                tokenizer=arguments.upstream_tokenizer,
                python=arguments.upstream_python,
            )

    first = seconds(1)
    more, longer = 1, 0.0
    for more in UPSTREAM_FURTHER:
        # The difference of two runs, so that startup and search don't count.
        longer = seconds(1 + more) - first
        if longer > NOISE * first:
            break
    least = "" if longer > NOISE * first else "at most, "
    further = max(longer, NOISE * first) / more
    yield Row(f"{what}: first sample, RULER's script", [first], "s")
    yield Row(f"{what}: further sample, {least}RULER's script", [further], "s")
    yield _ratio(f"{what}: first sample, RULER's script / this", [first], ours[0].values)
    yield _ratio(f"{what}: further sample, {least}RULER's script / this", [further], ours[1].values)


def _time_further(task: Task, n: int) -> list[float]:
    seconds: list[float] = []
    for index in range(1, n + 1):
        start = time.process_time()
        task.sample(index)
        seconds.append(time.process_time() - start)
    return seconds


def _ratio(what: str, slow: Sequence[float], fast: Sequence[float]) -> Row:
    # At least one tick of the clock: short samples may take none.
    least = time.get_clock_info("process_time").resolution
    return Row(what, [statistics.median(slow) / max(least, statistics.median(fast))], "x")


if __name__ == "__main__":
    sys.exit(main())
