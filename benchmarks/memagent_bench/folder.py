"""The folder of a benchmark: its settings, its records and its runs, held by one process at a time."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

from filelock import FileLock, Timeout

from memagent.agents.plan import Plan
from memagent.errors import ConfigError, RunBusy, RunMismatch, StoreCorrupt, StoreReadOnly
from memagent.runstore import RunStore
from memagent_bench.options import DataOptions
from memagent_bench.records import RESULTS, RecordFile

SETTINGS, RUNS, LOCK = "run.json", "runs.sqlite", ".lock"
FORMAT = 1

Binding: TypeAlias = Mapping[str, Any]
"""What changes results, by name: plain data. Which lengths, tasks, systems and how many samples does not."""


@dataclass(frozen=True)
class Folder:
    """An open folder."""

    path: Path
    records: RecordFile
    store: RunStore
    digest: str
    """Of the binding: part of every run id."""


@contextmanager
def open_folder(path: Path, binding: Binding) -> Generator[Folder]:
    """Makes the folder, or takes it up again for a benchmark with the same binding. Blocks.

    Raises:
        RunBusy: another process is at it.
        RunMismatch: its records were made with another binding; the message names what differs.
        StoreError: something in it cannot be read or written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreReadOnly(f"cannot make the folder {str(path)!r}: {error.strerror}") from error
    with _held(path):
        _bind(path, binding)
        records = RecordFile(path)
        try:
            store = RunStore(path / RUNS)
            try:
                yield Folder(path, records, store, _digest(binding))
            finally:
                store.close()
        finally:
            records.close()


def binding_of(plan: Plan, options: DataOptions) -> Binding:
    """What the records of one folder have in common. Blocks: data files are read.

    Args:
        plan: of a nominal question.
        options: what the samples depend on.

    Raises:
        ConfigError: a data file cannot be read.
    """
    settings = plan.settings
    return {
        "model": plan.model,
        "counter": plan.counter.name,
        "prompts": f"{plan.prompts.name}:{plan.prompts.hash}",
        "window": plan.budget.window,
        "memory_tokens": plan.budget.memory,
        "temperature": settings.sampling.temperature,
        "top_p": settings.sampling.top_p,
        **settings.model_dump(mode="json", include={"chunk_tokens", "cuts", "gate", "trust"}),
        "seed": options.seed,
        "length_tokenizer": options.counter.name,
        "positions": options.positions,
        "nested": options.nested,
        "allow_repeats": options.allow_repeats,
        "essays": [_content(file) for file in options.essays],
        "frames": None if options.frames is None else _content(options.frames),
        "hotpotqa": [_content(file) for file in options.hotpotqa],
        "squad": None if options.squad is None else _content(options.squad),
        "paragraphs": [_content(file) for file in options.paragraphs],
    }


def _content(file: Path) -> str:
    """A file by its content: it may lie elsewhere the next time."""
    try:
        with file.open("rb") as opened:
            return f"sha256:{hashlib.file_digest(opened, 'sha256').hexdigest()[:16]}"
    except OSError as error:
        raise ConfigError(f"cannot read the data file {str(file)!r}: {error.strerror}") from error


def _digest(binding: Binding) -> str:
    return hashlib.sha256(json.dumps(binding, sort_keys=True).encode()).hexdigest()[:16]


@contextmanager
def _held(path: Path) -> Generator[None]:
    try:
        lock = FileLock(path / LOCK, timeout=0, thread_local=False)
        lock.acquire()
    except Timeout as error:
        raise RunBusy(
            f"another process is writing to {str(path)!r}: wait for it, or use another --out"
        ) from error
    except OSError as error:
        raise StoreReadOnly(f"cannot write to {str(path)!r}: {error.strerror}") from error
    try:
        yield
    finally:
        lock.release()


def _bind(path: Path, binding: Binding) -> None:
    """Writes the binding into a new folder, or compares it with that of an old one."""
    file = path / SETTINGS
    now: dict[str, Any] = json.loads(json.dumps(binding))
    try:
        if file.exists():
            _compare(_read(file), now, path)
            return
        results = path / RESULTS
        if results.exists() and results.stat().st_size:
            raise RunMismatch(
                f"{str(path)!r} has records, and no {SETTINGS} to say how they were made: use another --out"
            )
        text = json.dumps({"format": FORMAT, "settings": now}, indent=2) + "\n"
        new = file.with_suffix(".new")
        with new.open("w", encoding="utf-8") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        new.replace(file)
    except OSError as error:
        raise StoreReadOnly(f"cannot write {str(file)!r}: {error.strerror}") from error


def _read(file: Path) -> dict[str, Any]:
    try:
        whole: Any = json.loads(file.read_bytes())
        if whole["format"] != FORMAT:
            raise StoreCorrupt(
                f"{str(file)!r} has format {whole['format']!r}, not {FORMAT}: use another --out"
            )
        return cast("dict[str, Any]", dict(whole["settings"]))
    except (ValueError, KeyError, TypeError) as error:
        raise StoreCorrupt(f"{str(file)!r} is damaged ({error}): use another --out") from error


def _compare(before: dict[str, Any], now: dict[str, Any], path: Path) -> None:
    differences = [
        f"{name} was {before.get(name)!r}, is {now.get(name)!r}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]
    if differences:
        raise RunMismatch(
            f"the records in {str(path)!r} were made with other settings: {'; '.join(differences)}. Use the same "
            f"ones to go on (lengths, tasks, systems and samples may be added), or another --out"
        )
