"""`memagent-bench generate`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from memagent.cli.exits import Outcome, report_errors
from memagent.terminal import console, on_terminal, say
from memagent.texts import plural
from memagent_bench.cli.options import Generate


def generate(given: Generate) -> None:
    """Write samples of a task to a file, one JSON object per line.

    The same seed, task, length and options give the same samples, byte for byte.
    """
    with report_errors(Outcome()):
        from memagent_bench.generate import write_samples
        from memagent_bench.lengths import parse_length
        from memagent_bench.suites import one_of, tasks_of

        tasks = tasks_of(given.suite)
        make = tasks[one_of(given.task, tasks, "task")]
        task = make(parse_length(given.length), given.data())
        with _show_count(given.samples) as written:
            write_samples(task, given.samples, given.out, written=written)
        say("wrote", f"{plural(given.samples, 'sample')} to {given.out}", style="green")


@contextmanager
def _show_count(total: int) -> Generator[Callable[[int], None]]:
    """Shows the number of samples written, on a terminal: one of millions of tokens takes a second."""
    if not on_terminal(sys.stderr):
        yield lambda count: None
        return
    with console(sys.stderr).status(f"0 of {plural(total, 'sample')}") as status:
        yield lambda count: status.update(f"{count:,} of {plural(total, 'sample')}")
