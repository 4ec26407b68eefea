"""`memagent-bench generate`."""

from __future__ import annotations

from memagent.cli.exits import Outcome, reported, say
from memagent.cli.output import plural
from memagent_bench.cli.options import Generate


def generate(given: Generate) -> None:
    """Write samples of a task to a file, one JSON object a line.

    The same seed, task, length and options give the same samples, byte for byte.
    """
    with reported(Outcome(json=False)):
        from memagent_bench.generate import write_samples
        from memagent_bench.lengths import parse_length
        from memagent_bench.suites import one_of, tasks_of

        tasks = tasks_of(given.suite)
        make = tasks[one_of(given.task, tasks, "task")]
        task = make(parse_length(given.length), given.data())
        write_samples(task, given.samples, given.out)
        say("wrote", f"{plural(given.samples, 'sample')} to {given.out}", style="green")
