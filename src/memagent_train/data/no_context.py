"""Finds questions that a model answers without reading: they would reward the policy for prior knowledge."""

import asyncio
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from io import RawIOBase
from pathlib import Path
from typing import cast

from filelock import FileLock, Timeout

from memagent.errors import ConfigError
from memagent.messages import ChatRequest, Message, Sampling
from memagent.models.base import ChatModel
from memagent.prompts import UnusableReply
from memagent.prompts.reply import visible
from memagent.runstore import list_differences
from memagent.tasks import SCORERS
from memagent.threads import in_thread
from memagent.tokens import TokenCounter
from memagent_train.data.open import open_source
from memagent_train.data.settings import DataSettings, FilteredSettings
from memagent_train.data.sources import BareQuestion, QuestionSource
from memagent_train.data.tried_questions import Header, TriedQuestion, line, read_tried
from memagent_train.errors import DataError, DiskFull

PROMPT = (
    "Answer the question from what you know. Give your best guess if you are not sure, as short as possible and "
    "without an explanation.\n\nQuestion: {question}\n\nAnswer:"
)
REPLY_TOKENS = 512
"""Maximum tokens of one try, including reasoning."""
RIGHT = 1.0
"""Minimum score of a correct answer."""


@dataclass(frozen=True)
class Tries:
    """How questions are tried."""

    tries: int = 4
    """Tries per question, each with a different seed."""
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0
    concurrency: int = 16
    """Maximum calls in flight."""


@dataclass(frozen=True)
class Tally:
    """How many tries were correct."""

    questions: int
    right: int
    """Correct tries, over all questions."""
    tries: int


def open_questions(data: DataSettings, place: int, *, counter: TokenCounter) -> QuestionSource:
    """Opens the questions of one source of a training's data, including known ones. Blocks.

    Args:
        data: the section `[data]`.
        place: index of the source in it.
        counter: counts the policy's tokens.

    Raises:
        ConfigError: there is no such source, it generates its questions, or it can't be opened.
        DocumentError: a file is unusable.
    """
    if not 0 <= place < len(data.source):
        raise ConfigError(
            f"there is no source {place!r}: the data has {len(data.source)}, numbered from 0"
        )
    settings = data.source[place]
    if not isinstance(settings, FilteredSettings):
        raise ConfigError(
            f"source {place!r} is of kind {settings.kind!r}, whose answers can't be known: there is nothing to leave "
            f"out"
        )
    every = [source.model_copy(update={"no_context": None}) for source in data.source]
    opened = open_source(data.model_copy(update={"source": tuple(every)}), place, counter=counter)
    return cast("QuestionSource", opened)


async def try_without_context(
    source: QuestionSource,
    model: ChatModel,
    out: Path,
    how: Tries = Tries(),
    *,
    done: Callable[[int, int], None] = lambda tried, questions: None,
) -> Tally:
    """Asks a model every question without its document, and records how often the model is right.

    Each question is written when its tries are done; questions already in the file are skipped.
    The file then goes into `no_context` of the source's settings.

    Args:
        source: from `open_questions`.
        model: the policy before training, or a stronger model.
        out: the file, JSON lines: `index`, `right` and `tries` of each question.
        how: tries, sampling, seed, concurrency.
        done: called with the number of questions tried and their total.

    Raises:
        ConfigError: the number of tries or the concurrency is below 1.
        DataError: the file is for other questions, another model or other settings; another process is writing it; or
            it can't be read.
        DiskFull: it can't be written.
        ModelError: a call failed; earlier tries are kept.
    """
    if how.tries < 1 or how.concurrency < 1:
        raise ConfigError(f"{how!r}: tries and concurrency must be at least 1")
    header = _header(source, model, how)
    try:
        lock = FileLock(f"{out}.lock", timeout=0, thread_local=False)
        await in_thread(lock.acquire)
    except Timeout as error:
        raise DataError(
            f"another process is writing {str(out)!r}: wait for it, or name another file"
        ) from error
    except OSError as error:
        raise DataError(f"cannot write next to {str(out)!r}: {error.strerror}") from error
    try:
        file, entries = await in_thread(_open, out, header)
        try:
            return await _try_all(source, model, how, file, entries, done)
        finally:
            file.close()
    finally:
        await in_thread(lock.release)


async def _try_all(
    source: QuestionSource,
    model: ChatModel,
    how: Tries,
    file: RawIOBase,
    tried: dict[int, TriedQuestion],
    report: Callable[[int, int], None],
) -> Tally:
    questions = len(source)
    places = iter(range(questions))
    report(len(tried), questions)

    async def work() -> None:
        for place in places:
            question = await in_thread(source.read_question, place)
            if question.index in tried:
                continue
            right = [
                await _is_right(question, source.scorer, model, how, number)
                for number in range(how.tries)
            ]
            entry = TriedQuestion(index=question.index, right=sum(right), tries=how.tries)
            await in_thread(_write, file, line(entry))
            tried[question.index] = entry
            report(len(tried), questions)

    workers = [asyncio.create_task(work()) for _ in range(how.concurrency)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    every = tried.values()
    return Tally(
        len(tried), sum(record.right for record in every), sum(record.tries for record in every)
    )


async def _is_right(
    question: BareQuestion, scorer: str, model: ChatModel, how: Tries, number: int
) -> bool:
    digest = hashlib.sha256(f"{how.seed}:{question.index}:{number}".encode()).digest()
    completion = await model.complete(
        ChatRequest(
            messages=(Message(role="user", content=PROMPT.format(question=question.question)),),
            max_tokens=REPLY_TOKENS,
            sampling=how.sampling,
            seed=int.from_bytes(digest[:4]) & 0x7FFFFFFF,
            thinking=False,
        )
    )
    try:
        answer = visible(completion)
    except UnusableReply:
        return False
    score = SCORERS["set_recall" if scorer == "values" else scorer]
    return await in_thread(score, answer, question.references) >= RIGHT


def _header(source: QuestionSource, model: ChatModel, how: Tries) -> Header:
    return Header(
        source=source.name,
        data=source.data,
        model=model.name,
        tries=how.tries,
        scorer=source.scorer,
        prompt=hashlib.sha256(f"{PROMPT} {how.sampling!r}".encode()).hexdigest()[:16],
        seed=how.seed,
    )


def _open(out: Path, header: Header) -> tuple[RawIOBase, dict[int, TriedQuestion]]:
    """Opens the file for appending; returns it with its content."""
    try:
        new = not out.exists() or not out.stat().st_size
        tried_file = None if new else read_tried(out)
        if tried_file is not None:
            _compare(out, tried_file.header, header)
        file = out.open("wb" if new else "r+b", buffering=0)
    except OSError as error:
        raise DataError(f"cannot write {str(out)!r}: {error.strerror}") from error
    try:
        if tried_file is None:
            _write(file, line(header))
            return file, {}
        file.seek(tried_file.size)
        file.truncate()
    except BaseException:
        file.close()
        raise
    return file, dict(tried_file.tried)


def _compare(out: Path, before: Header, now: Header) -> None:
    if changed := list_differences(dict(before), dict(now)):
        raise DataError(
            f"{str(out)!r} was made with different settings ({changed}): name another file"
        )


def _write(file: RawIOBase, text: bytes) -> None:
    """Writes all of the text; a line cut short by a full disk is removed when the file is next opened."""
    remainder = memoryview(text)
    try:
        while remainder:
            remainder = remainder[file.write(remainder) or 0 :]
        os.fsync(file.fileno())
    except OSError as error:
        raise DiskFull(
            f"the answers without the document cannot be written ({error.strerror}): free some space; what is in the "
            f"file is kept"
        ) from error
