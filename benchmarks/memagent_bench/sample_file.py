"""A user's samples as tasks: JSON lines, one sample per line."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path

from memagent.errors import ConfigError
from memagent.tasks import Sample
from memagent_bench.grid import Grid
from memagent_bench.lengths import K
from memagent_bench.lines import SampleLine, read_lines
from memagent_bench.options import DataOptions

SUITE = "samples"


class SampleFileTask:
    """The samples of one task and length of a file. A sample is read when requested.

    Args:
        name: of the task.
        scorer: one of `memagent.tasks.SCORERS`.
        path: the file.
        starts: byte offsets of the samples' lines, by length.
        length: tokens.
        options: data options; their counter measures lengths.
    """

    def __init__(
        self,
        name: str,
        scorer: str,
        path: Path,
        starts: dict[int, list[int]],
        length: int,
        options: DataOptions,
    ) -> None:
        self.name, self.scorer = name, scorer
        self._path, self._starts, self._length = path, starts.get(length, []), length
        self._counter = options.counter

    @property
    def facts(self) -> dict[str, str | int | bool]:
        """See `Task`."""
        return {"data": self._path.name, "length_tokenizer": self._counter.name}

    def sample(self, index: int) -> Sample:
        """See `Task`."""
        if index >= len(self._starts):
            raise ConfigError(f"{str(self._path)!r} has no sample {index} of {self.name!r}")
        with self._path.open("rb") as file:
            file.seek(self._starts[index])
            line = SampleLine.model_validate_json(file.readline())
        before, context, after = line.parts or ("", "", "")
        return Sample(
            task=self.name,
            index=index,
            length=self._length,
            tokens=self._counter.count(before + context + after) + line.tokens_to_generate,
            context=context,
            question=line.question,
            outputs=line.outputs,
            generate=line.tokens_to_generate,
            before=before,
            after=after,
            answer_prefix=line.answer_prefix,
        )


def grid_of_file(path: Path, systems: Sequence[str], options: DataOptions) -> Grid:
    """Returns all samples of a file under each system. Blocks: reads the file and counts its samples.

    A line's length is its `max_length` if it fits that, else the next power of two, at least 1K.

    Raises:
        ConfigError: the file can't be read or is empty, or a line isn't a sample; the message has its number.
    """
    starts: dict[str, dict[int, list[int]]] = {}
    scorers: dict[str, str] = {}
    for at, line, task, scorer in read_lines(path, SampleLine):
        if line.parts is None:
            raise ConfigError(
                f"{str(path)!r}: a sample of {task!r} has no document: give `context`, or `input` and `context_span`"
            )
        if (first := scorers.setdefault(task, scorer)) != scorer:
            raise ConfigError(
                f"{str(path)!r}: samples of {task!r} name the scorers {first!r} and {scorer!r}: "
                f"give them different `task` names"
            )
        tokens = options.counter.count("".join(line.parts)) + line.tokens_to_generate
        length = K
        while length < tokens:
            length *= 2
        if line.max_length is not None and tokens <= line.max_length:
            length = line.max_length
        starts.setdefault(task, {}).setdefault(length, []).append(at)
    if not starts:
        raise ConfigError(
            f"{str(path)!r} has no samples: give JSON lines with context, question and outputs"
        )
    lengths = sorted({length for of in starts.values() for length in of})
    return Grid(
        suite=SUITE,
        tasks={
            task: partial(SampleFileTask, task, scorers[task], path, of)
            for task, of in starts.items()
        },
        lengths=lengths,
        samples=0,
        systems=systems,
        options=options,
        counts={
            (task, length): len(starts[task].get(length, ()))
            for task, length in product(starts, lengths)
        },
    )
