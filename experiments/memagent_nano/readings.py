"""The outcome of each document of a long curve: one line each, kept since the runs themselves are too large to keep."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from memagent.errors import ConfigError
from memagent.replacing import replacing
from memagent.runstore import hold_folder
from memagent.texts import plural
from memagent_bench.diagnose.diagnosis import diagnose
from memagent_bench.diagnose.traces import Fate, Trace
from memagent_bench.record import Record
from memagent_bench.records import read_records

WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class Trial:
    """One document and question."""

    system: str
    """System of `memagent-bench`: `memory`, `memory-gate`, ..."""
    task: str
    length: int
    """Requested length in tokens of the length tokenizer."""
    seed: int
    """Seed of the documents."""
    index: int
    """Nested documents of the same task, seed and index ask the same at every length."""
    tokens: int
    chars: int
    bytes: int
    """Size of the document, in UTF-8."""
    chunks: int
    """Number of chunks; 0 if the system doesn't read in chunks."""
    score: float
    """0 if there was no answer."""
    fate: str
    """One of `memagent_bench.diagnose.Fate`; empty if there was no answer, or several things were wanted."""
    risk: int
    """Chunk steps that began with a memory containing what was wanted."""
    behind: float | None
    """Share of the document after the one note that the answer depends on; None if there are several."""
    policy: str = ""
    """First digits of the SHA-256 of the weights that read it."""

    @property
    def key(self) -> tuple[str, str, int, int, int]:
        """Unique key."""
        return self.system, self.task, self.length, self.seed, self.index

    @property
    def lost(self) -> bool:
        """Whether a memory contained what was wanted, and a later one didn't."""
        return self.fate == Fate.LOST


def follow(folder: Path, policy: Path) -> list[Trial]:
    """Follows what was wanted through the memories of a benchmark's runs. Blocks.

    Args:
        folder: what `memagent-bench notes` wrote.
        policy: the folder of the weights that read the documents.

    Raises:
        ConfigError: there are no weights, or a run of a record cannot be read.
        StoreError: the folder has no records, or they name runs but there is no run store.
    """
    name = digest(policy)
    records = read_records(folder)
    diagnosis = diagnose(folder)
    if diagnosis.unread:
        run, why = next(iter(diagnosis.unread.items()))
        raise ConfigError(
            f"{plural(len(diagnosis.unread), 'run')} of {str(folder)!r} cannot be followed, the first of them {run!r}: "
            f"{why}. Give the folder in which the records were written"
        )
    followed: dict[tuple[Any, ...], list[Trace]] = {}
    for trace in diagnosis.traces:
        followed.setdefault(trace.record.key, []).append(trace)
    return [_reading(record, followed.get(record.key, ()), name) for record in records]


def digest(policy: Path) -> str:
    """Returns the name of a policy's weights.

    Raises:
        ConfigError: there are none.
    """
    try:
        return hashlib.sha256((policy / WEIGHTS).read_bytes()).hexdigest()[:12]
    except OSError as error:
        raise ConfigError(
            f"{str(policy)!r} has no weights ({error.strerror}): give the folder of the policy that read"
        ) from error


def keep(new: Iterable[Trial], file: Path) -> list[Trial]:
    """Adds readings to a file, in order; replaces documents read before. Returns all readings in the file.

    Raises:
        ConfigError: another policy's readings are in the file; nothing is written then.
        RunBusy: another process is writing there.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with hold_folder(file.parent):
        old = read(file) if file.is_file() else []
        index = {trial.key: trial for trial in (*old, *new)}
        trials = [index[key] for key in sorted(index)]
        policies = sorted({trial.policy for trial in (*old, *trials)})
        if len(policies) > 1:
            raise ConfigError(
                f"{str(file)!r} would hold readings of several policies ({', '.join(policies)}): give each a file of "
                f"its own"
            )
        text = "".join(json.dumps(asdict(trial)) + "\n" for trial in trials)
        with replacing(file) as half:
            half.write_text(text, encoding="utf-8")
    return trials


def read(file: Path) -> list[Trial]:
    """Reads what `keep` wrote.

    Raises:
        ConfigError: there is no such file, or a line isn't a reading.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(
            f"cannot read {str(file)!r} ({error.strerror}): give what the command `follow` wrote"
        ) from error
    try:
        return [Trial(**json.loads(line)) for line in lines]
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"{str(file)!r} holds a line that is not a reading ({error}): give what `follow` wrote"
        ) from error


def _reading(record: Record, traces: Sequence[Trace], policy: str) -> Trial:
    """Returns the reading of a record, given the trace of the one thing that it wants."""
    fate, risk = (traces[0].fate.value, traces[0].risk) if len(traces) == 1 else ("", 0)
    needed = [place for place in record.evidence if place.supports]
    return Trial(
        system=record.system,
        task=record.task,
        length=record.length,
        seed=record.provenance.seed,
        index=record.index,
        tokens=record.tokens,
        chars=record.chars,
        bytes=record.bytes,
        chunks=record.chunks or 0,
        score=record.score or 0.0,
        fate=fate,
        risk=risk,
        behind=1 - needed[0].start / record.chars if len(needed) == 1 else None,
        policy=policy,
    )
