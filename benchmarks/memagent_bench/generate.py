"""Samples as files: JSON lines with RULER's field names, so that other harnesses can read them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from memagent.errors import ConfigError
from memagent.replacing import replacing
from memagent.tasks import Sample, Task


def write_samples(
    task: Task, n: int, out: Path, *, written: Callable[[int], None] = lambda count: None
) -> None:
    """Writes the first n samples of a task, one at a time, as JSON lines in UTF-8.

    The file appears only when complete: until then the samples go to a temporary one next to it, which is removed
    if the work ends early, leaving any existing file in place.

    Args:
        task: a task of any suite.
        n: number of samples.
        out: a file; `-` for standard output. Anything but a regular file (a pipe, say) is written to directly.
        written: called after each sample with their number so far.

    Raises:
        ConfigError: n is not positive, the file cannot be written, or the task has no such sample.
    """
    if n < 1:
        raise ConfigError(f"the number of samples must be at least 1, got {n!r}")
    facts = task.facts
    with _open(out) as file:
        for index in range(n):
            text = line(task.sample(index), task.scorer, facts)
            with _translate_errors(out):
                file.write(text)
            written(index + 1)


def line(sample: Sample, scorer: str, facts: dict[str, str | int | bool]) -> bytes:
    """Returns a sample as a line of JSON.

    `index`, `input`, `outputs`, `length` and `answer_prefix` are RULER's: a model gets `input` and `answer_prefix`,
    and `length` counts the tokens of both plus the reply. `context_span` is the span of the document in `input`,
    in characters.
    """
    start = len(sample.before)
    fields = {
        "index": sample.index,
        "input": sample.before + sample.context + sample.after,
        "outputs": sample.outputs,
        "length": sample.tokens,
        "answer_prefix": sample.answer_prefix,
        "max_length": sample.length,
        "tokens_to_generate": sample.generate,
        "question": sample.question,
        "context_span": [start, start + len(sample.context)],
        "task": sample.task,
        "scorer": scorer,
        "facts": facts,
    }
    # A lone surrogate becomes its JSON escape.
    return (json.dumps(fields, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


@contextmanager
def _open(out: Path) -> Generator[IO[bytes]]:
    if str(out) == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with _translate_errors(out):
        if out.is_dir():
            raise ConfigError(
                f"{str(out)!r} is a folder: name a file, such as {str(out / 'samples.jsonl')!r}"
            )
        out.parent.resolve(strict=True)  # doesn't create a missing folder
    with ExitStack() as held:
        with _translate_errors(out):
            file = held.enter_context(replacing(out)).open("wb")
        try:
            yield file
            with _translate_errors(out):
                file.close()
                held.close()
        finally:
            with suppress(OSError):
                file.close()


@contextmanager
def _translate_errors(out: Path) -> Generator[None]:
    try:
        yield
    except BrokenPipeError:
        # The reader closed the pipe: the command line ends quietly.
        raise
    except OSError as error:
        raise ConfigError(
            f"{str(out)!r} cannot be written: {error.strerror or error}; name a file in an existing folder "
            f"with free space"
        ) from error
