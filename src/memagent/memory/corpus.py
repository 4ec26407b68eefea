"""One question about many documents, several at once: the results of `MemoryAgent.map`."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from memagent.documents import Source, open_document
from memagent.documents.files import list_files
from memagent.errors import (
    AuthenticationFailed,
    ConfigError,
    DocumentError,
    MemagentError,
    ModelNotFound,
    RunBusy,
    RunMismatch,
    StoreError,
)
from memagent.run.result import Result
from memagent.run.sync import check_run_id, new_run_id
from memagent.texts import digest, expand
from memagent.threads import in_thread

if TYPE_CHECKING:
    from memagent.memory.agent import MemoryAgent

OF_ALL = (ConfigError, StoreError, ModelNotFound, AuthenticationFailed)
"""Errors that every document would hit, so they end the whole map, except those in `OF_ONE`."""
OF_ONE = (RunMismatch, RunBusy)


@dataclass(frozen=True, kw_only=True)
class Mapped:
    """The result for one document."""

    index: int
    """Its index among the documents."""
    name: str
    """Its path, `document 3` for a text, else the document's name."""
    run_id: str
    result: Result | None = field(default=None, repr=False)
    """None if the document or the model failed; see `error`. A result may also lack an answer: see `stop_reason`."""
    error: MemagentError | None = None

    def to_dict(self) -> dict[str, Any]:
        """Returns one row: the document, and its result or the error."""
        row: dict[str, Any] = {"document": self.name, "run_id": self.run_id}
        if self.result is not None:
            return row | self.result.to_dict()
        return row | {"answer": None, "error": f"{type(self.error).__name__}: {self.error}"}


async def read_all(
    agent: MemoryAgent, documents: Iterable[Source], question: str, concurrency: int, prefix: str
) -> AsyncGenerator[Mapped]:
    """See `MemoryAgent.map`. Holds only the documents being read."""
    if concurrency < 1:
        raise ConfigError(f"concurrency must be at least 1 document, got {concurrency!r}")
    if isinstance(documents, str | bytes | os.PathLike):
        raise ConfigError(f"documents={documents!r:.80} is one document: give a list, or use ask")
    check_run_id(f"{prefix}-")
    upcoming, turn, ended = enumerate(documents), asyncio.Lock(), False
    locks = WeakValueDictionary[str, asyncio.Lock]()

    async def read_next() -> Mapped | None:
        nonlocal ended
        async with turn:
            # Not in one of the few threads that readings need: a generator may wait long, or for a reading.
            item = None if ended else await asyncio.to_thread(next, upcoming, None)
            ended = item is None
        if item is None:
            return None
        run_id = await in_thread(name_run, agent, item[1], question, prefix)
        async with locks.setdefault(run_id, asyncio.Lock()):  # equal documents are one run
            return await _read(agent, *item, question, run_id)

    running = set[asyncio.Task[Mapped | None]]()
    try:
        while True:
            while not ended and len(running) < concurrency:
                running.add(asyncio.create_task(read_next()))
            if not running:
                return
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if (result := await task) is not None:
                    yield result
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _read(
    agent: MemoryAgent, index: int, source: Source, question: str, run_id: str
) -> Mapped:
    name = str(source) if isinstance(source, os.PathLike) else f"document {index}"
    try:
        document = await in_thread(open_document, source)
        if not isinstance(source, str | bytes | os.PathLike):
            name = document.name
        result = await agent.aask(document, question, run_id=run_id)
    except MemagentError as error:
        if isinstance(error, OF_ALL) and not isinstance(error, OF_ONE):
            raise
        return Mapped(index=index, name=name, run_id=run_id, error=error)
    return Mapped(index=index, name=name, run_id=run_id, result=result)


def name_run(agent: MemoryAgent, source: Source, question: str, prefix: str) -> str:
    """Names a document's run: the same for the same path or text, question and settings, so that it is resumed.

    A path's id ends in a digest of its content, so that a changed document is read anew. The server's address and
    `read_ahead` don't change the id, as runs aren't bound to them. Streams and other kinds get a new one.
    """
    mark = ""
    if isinstance(source, os.PathLike):
        identity, mark = str(path := expand(source).absolute()), f"-{_digest(path)}"
    elif isinstance(source, str | bytes):
        identity = digest(source)
    else:
        return f"{prefix}-{new_run_id()}"
    recipe = agent.recipe() | {"read_ahead": 1}  # defaults keep the names of earlier versions
    recipe |= dict.fromkeys({"base_url"} & recipe.keys())
    key = json.dumps([identity, question, recipe], sort_keys=True, default=str)
    return f"{prefix}-{digest(key, 8)}{mark}"


def _digest(path: Path) -> str:
    """Digests a file's bytes, or all files of a folder or pattern, as far as they can be read."""
    hasher = hashlib.blake2b(digest_size=4)  # tells a document from its own earlier contents
    with suppress(OSError, ValueError, DocumentError):  # reading the document reports it
        for file in list_files(path)[1]:
            stat = file.stat()
            file_digest = _hash(file, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
            hasher.update(os.fsencode(file) + file_digest)
    return hasher.hexdigest()


@lru_cache(2**16)
def _hash(file: Path, *stamp: int) -> bytes:
    """Digests a file's bytes, once for each `stamp`: `memagent map --out` names each run twice."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "blake2b").digest()
