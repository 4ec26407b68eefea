"""What a benchmark measures, and the remaining work."""

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
"""A task at a length: name, tokens."""
Facts: TypeAlias = Mapping[str, str | int | bool]
"""As `Task.facts`."""
_ID_CHARS = 51
"""Characters of a run id before its digest; 64 are allowed in total."""


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
        """Key of its record."""
        return (self.suite, self.task, self.length, self.system, self.index)

    @property
    def cell(self) -> Cell:
        """Cell that it is a sample of."""
        return (self.task, self.length)

    def run_id(self, digest: str) -> str:
        """Returns the run id, which is the same in every session.

        Args:
            digest: digest of the benchmark's settings.
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
    """Number of samples of each task at each length."""
    systems: Sequence[str]
    options: DataOptions
    longest: Mapping[str, int] = field(default_factory=dict[str, int])
    """Tasks with a maximum length -> that length."""
    first: int = 0
    """Index of the first sample."""
    counts: Mapping[Cell, int] = field(default_factory=dict[Cell, int])
    """Number of samples in cells where it differs from `samples`."""

    def jobs(self, done: AbstractSet[Key] = frozenset()) -> Iterator[list[Job]]:
        """Yields the jobs that are not done, those of one sample together; short samples first, for early results."""
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
