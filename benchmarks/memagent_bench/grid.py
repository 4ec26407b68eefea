"""What a benchmark measures, and what is left to do."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TypeAlias

from memagent.run.sync import check_run_id
from memagent_bench.options import DataOptions, MakeTask

Key: TypeAlias = tuple[str, str, int, str, int]
"""As `Record.key`: suite, task, length, system, index."""
Cell: TypeAlias = tuple[str, int]
"""Task and length."""
Facts: TypeAlias = Mapping[str, str | int | bool]
"""As `Task.facts`."""
_ID_CHARS = 51
"""Of a run id before its digest: 64 are allowed."""


@dataclass(frozen=True, slots=True)
class Job:
    """One sample under one system."""

    suite: str
    task: str
    length: int
    index: int
    system: str

    @property
    def key(self) -> Key:
        """That of its record."""
        return (self.suite, self.task, self.length, self.system, self.index)

    @property
    def cell(self) -> Cell:
        """What it is a sample of."""
        return (self.task, self.length)

    def run_id(self, digest: str) -> str:
        """The same in every session.

        Args:
            digest: stands for the settings of the benchmark.
        """
        name = "-".join(map(str, (self.suite, self.task, self.length, self.index, self.system)))
        readable = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:_ID_CHARS]
        tail = hashlib.sha256(f"{self.key!r} {digest}".encode()).hexdigest()[:12]
        return check_run_id(f"{readable}-{tail}")


@dataclass(frozen=True)
class Grid:
    """A number of samples of each task at each length, under each system."""

    suite: str
    tasks: Mapping[str, MakeTask]
    lengths: Sequence[int]
    samples: int
    """Of each task at each length."""
    systems: Sequence[str]
    options: DataOptions
    longest: Mapping[str, int] = field(default_factory=dict[str, int])
    """Tasks that are not measured beyond a length."""
    first: int = 0
    """Index of the first sample."""
    counts: Mapping[Cell, int] = field(default_factory=dict[Cell, int])
    """Samples of cells that have another number of them than `samples`."""

    def jobs(self, done: AbstractSet[Key] = frozenset()) -> Iterator[list[Job]]:
        """What is not done yet, the jobs of one sample together; short samples first, for early results."""
        for length in sorted(self.lengths):
            for task in self.tasks:
                if length > self.longest.get(task, length):
                    continue
                samples = self.counts.get((task, length), self.samples)
                for index in range(self.first, self.first + samples):
                    every = [Job(self.suite, task, length, index, name) for name in self.systems]
                    jobs = [job for job in every if job.key not in done]
                    if jobs:
                        yield jobs
