"""The folder of a benchmark: its settings, its records and its runs, held by one process at a time."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

from memagent.errors import (
    ConfigError,
    RunMismatch,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
)
from memagent.memory.plan import MemoryPlan
from memagent.messages import Usage
from memagent.replacing import replacing
from memagent.runstore import RunStore, hold_folder, list_differences
from memagent_bench.options import DataOptions
from memagent_bench.records import RESULTS, RecordFile

logger = logging.getLogger("memagent.bench")

NOTHING: Mapping[str, object] = {}
SETTINGS, RUNS, SPENT = "run.json", "runs.sqlite", "spent.json"
FORMAT = 1
LATER = ("weights",)
"""Settings that earlier versions didn't record: not part of run ids, so that their runs can be resumed."""

Binding: TypeAlias = Mapping[str, Any]
"""Settings that affect results, by name, as plain data; lengths, tasks, systems and the number of samples don't."""


@dataclass(frozen=True)
class Folder:
    """An open folder."""

    path: Path
    records: RecordFile
    store: RunStore
    digest: str
    """Digest of the binding without `LATER`, part of every run id."""

    @property
    def spent(self) -> Usage:
        """Usage of earlier sessions for samples that have neither record nor run. Blocks.

        Raises:
            StoreCorrupt: the file is damaged.
        """
        file = self.path / SPENT
        try:
            return Usage.model_validate_json(file.read_bytes()) if file.exists() else Usage()
        except ValueError as error:
            raise StoreCorrupt(f"{str(file)!r} is damaged: remove it to continue") from error

    def note_spent(self, usages: Mapping[str, Usage]) -> None:
        """Adds to `spent` if the file can be written. Called at the end of every session, whatever ended it. Blocks.

        Args:
            usages: usage of samples without a record, by run id; runs in the store are left out.
        """
        try:
            lost = [u for run, u in usages.items() if u != Usage() and self.store.find(run) is None]
            if lost:
                _write(self.path / SPENT, sum(lost, self.spent).model_dump_json())
        except StoreError as error:
            logger.warning(
                "the usage of unfinished samples could not be saved for later limits: %s", error
            )


@contextmanager
def open_folder(path: Path, binding: Binding) -> Generator[Folder]:
    """Creates the folder, or reopens it for a benchmark with the same binding. Blocks.

    Raises:
        RunBusy: another process is using it.
        RunMismatch: its records were made with another binding; the message lists the differences.
        StoreError: something in it can't be read or written.
    """
    with bind_folder(path, binding):
        records = RecordFile(path)
        try:
            store = RunStore(path / RUNS)
            try:
                named = {name: value for name, value in binding.items() if name not in LATER}
                yield Folder(path, records, store, _digest(named))
            finally:
                store.close()
        finally:
            records.close()


@contextmanager
def bind_folder(path: Path, binding: Binding) -> Generator[None]:
    """Creates a folder if needed, locks it for this process, and checks that its content has the same binding. Blocks.

    Raises:
        RunBusy, RunMismatch, StoreError: as `open_folder`.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreReadOnly(
            f"cannot create the folder {str(path)!r}: {error.strerror}; use another --out"
        ) from error
    with hold_folder(path):
        _bind(path, binding)
        yield


def check_folder(path: Path, binding: Binding) -> None:
    """Makes the checks of `open_folder` without opening the folder; does nothing if it doesn't exist. Blocks.

    Raises:
        RunMismatch: its records were made with another binding; the message lists the differences.
        StoreError: it cannot be read.
    """
    old_binding = _read(path / SETTINGS)
    if old_binding is not None:
        _compare(old_binding, binding, path)


def binding_of(
    plan: MemoryPlan,
    options: DataOptions,
    extra_body: Mapping[str, object] = NOTHING,
    weights: str = "",
) -> Binding:
    """Returns what the records of one folder have in common. Blocks: reads data files.

    Args:
        plan: the plan for a nominal question.
        options: the options that determine the samples.
        extra_body: extra fields of every request.
        weights: digest of the model's weights; empty if unknown.

    Raises:
        ConfigError: a data file cannot be read.
    """
    settings = plan.settings
    return {
        "model": plan.model.name,
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
        # Run ids depend on the binding, so rarely used settings appear only in the folders that use them.
        **({} if options.sample_file is None else {"sample_file": _content(options.sample_file)}),
        **({"reread": settings.reread} if settings.reread else {}),
        **({"degenerate": settings.degenerate} if settings.degenerate != "retry" else {}),
        **({"extra_body": dict(extra_body)} if extra_body else {}),
        **({"weights": weights} if weights else {}),
    }


def digest_files(files: Iterable[Path]) -> str:
    """Returns a digest of the contents of files, in their order. Blocks.

    Raises:
        ConfigError: a file cannot be read.
    """
    return _digest({"files": [_content(file) for file in files]})


def _content(file: Path) -> str:
    """Identifies a file by its content, since it may be moved."""
    try:
        with file.open("rb") as opened:
            return f"sha256:{hashlib.file_digest(opened, 'sha256').hexdigest()[:16]}"
    except OSError as error:
        raise ConfigError(f"cannot read the data file {str(file)!r}: {error.strerror}") from error


def _digest(binding: Binding) -> str:
    return hashlib.sha256(json.dumps(binding, sort_keys=True).encode()).hexdigest()[:16]


def _bind(path: Path, binding: Binding) -> None:
    """Writes the binding into a new folder, or compares it with an old folder's, and adds what that lacks."""
    file, results = path / SETTINGS, path / RESULTS
    old_binding = _read(file)
    if old_binding is not None:
        _compare(old_binding, binding, path)
        if old_binding.keys() == binding.keys():
            return
    elif results.exists() and results.stat().st_size:
        raise RunMismatch(
            f"{str(path)!r} has records, but no {SETTINGS} to tell how they were made: use another --out"
        )
    _write(file, json.dumps({"format": FORMAT, "settings": binding}, indent=2) + "\n")


def _write(file: Path, text: str) -> None:
    """Writes all of it or nothing."""
    try:
        with replacing(file) as new, new.open("w", encoding="utf-8") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
    except OSError as error:
        raise StoreReadOnly(f"cannot write {str(file)!r}: {error.strerror}") from error


def _read(file: Path) -> dict[str, Any] | None:
    """Reads a folder's binding; None if there is none yet."""
    try:
        data: Any = json.loads(file.read_bytes())
        if data["format"] != FORMAT:
            raise StoreCorrupt(
                f"{str(file)!r} has format {data['format']!r}, not {FORMAT}: use another --out"
            )
        return cast("dict[str, Any]", dict(data["settings"]))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreReadOnly(f"cannot read {str(file)!r}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise StoreCorrupt(f"{str(file)!r} is damaged ({error}): use another --out") from error


def _compare(before: Binding, now: Binding, path: Path) -> None:
    if before.get("suite") != now.get("suite"):
        content = "tool sessions" if "suite" in before else "no tool sessions, but other records"
        raise RunMismatch(f"{str(path)!r} holds {content}: use another --out")
    before = {**{name: now[name] for name in LATER if name in now}, **before}
    if changes := list_differences(before, now):
        raise RunMismatch(
            f"the records in {str(path)!r} were made with different settings: {changes}. Use the same ones to continue "
            f"(you may add tasks, lengths, systems and samples), or another --out"
        )
