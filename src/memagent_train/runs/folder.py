"""The folder of a run: its settings, checkpoints and logs, held by one training at a time."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from memagent.errors import ConfigError, StoreReadOnly
from memagent.runstore import RunStore, hold_folder, list_differences
from memagent_train.config.toml import read_toml
from memagent_train.errors import CheckpointMismatch
from memagent_train.runs import metrics, rollout_log
from memagent_train.runs.checkpoints import (
    Checkpoint,
    discard_incomplete,
    list_checkpoints,
)
from memagent_train.runs.ids import is_after
from memagent_train.runs.provenance import note_provenance

logger = logging.getLogger("memagent.train")

SETTINGS, DATA, PROVENANCE = "config.toml", "data.json", "provenance.jsonl"
LONG = 80
"""Characters that are shown of a fact of the data."""


@dataclass(frozen=True)
class RunFolder:
    """Where the things of a run lie."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        """`checkpoint-N` folders, N optimizer updates old."""
        return self.path / "checkpoints"

    @property
    def rollouts(self) -> Path:
        """`step-*.parquet` files."""
        return self.path / "rollouts"

    @property
    def metrics(self) -> Path:
        """A line of JSON a step, and one an evaluation."""
        return self.path / "metrics.jsonl"

    @property
    def runs(self) -> Path:
        """The memory agent's run store."""
        return self.path / "runs.sqlite"

    @property
    def prompts(self) -> Path:
        """The memory agent's wording, as it was when the run began."""
        return self.path / "prompts.toml"

    @property
    def settings(self) -> Path:
        """As they were resolved."""
        return self.path / SETTINGS

    def bind_data(self, facts: Mapping[str, Any]) -> None:
        """Notes what the run is trained on, or compares it with what it was begun with.

        Args:
            facts: plain data: what the samples depend on.

        Raises:
            CheckpointMismatch: there is a checkpoint of other data; the message names what differs.
            OSError: it cannot be noted.
        """
        file = self.path / DATA
        now: dict[str, Any] = json.loads(json.dumps(facts, default=str))
        if file.exists():
            before = _facts(file)
            if before == now:
                return
            if self.find_newest() is not None:
                raise CheckpointMismatch(
                    f"the run in {str(self.path)!r} was begun with other data: {_list_changes(before, now)}. Use the "
                    f"same data and wording (and the same evaluation.n, which is held out) to go on, or another --out"
                )
            self.start_over()
        new = file.with_suffix(".new")
        new.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
        new.replace(file)

    def start_over(self) -> None:
        """Forgets all that was written before there was a checkpoint."""
        for file in (self.path / DATA, self.prompts, self.metrics):
            file.unlink(missing_ok=True)
        rollout_log.cut(self.rollouts, 0)

    def find_newest(self) -> Checkpoint | None:
        """The checkpoint that training goes on from, None before the first."""
        return next(reversed(list_checkpoints(self.checkpoints)), None)


@contextmanager
def open_run(
    path: Path, settings: Mapping[str, Any], *, free: Collection[str]
) -> Generator[RunFolder]:
    """Makes the folder of a run, or takes it up again where its newest whole checkpoint left it. Blocks.

    What a killed process did after that checkpoint is removed: half a checkpoint, logs, metrics and runs of later
    steps. They are done again.

    Args:
        path: of the folder.
        settings: plain data, with a table for each section.
        free: settings that may change between two sessions: `section.key`, or `section`.

    Raises:
        RunBusy: another process is at it.
        CheckpointMismatch: it has checkpoints of other settings; the message names them.
        StoreReadOnly: it cannot be made or written.
        ConfigError: it has checkpoints, and its settings cannot be read.
    """
    folder = RunFolder(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreReadOnly(f"cannot make the folder {str(path)!r}: {error.strerror}") from error
    with hold_folder(path):
        _compare(folder, settings, free)
        # First, because it frees what the disk may lack.
        _return_to_checkpoint(folder)
        new = folder.settings.with_suffix(".new")
        new.write_text(tomli_w.dumps(settings), encoding="utf-8")
        new.replace(folder.settings)
        note_provenance(path / PROVENANCE)
        yield folder


def _compare(folder: RunFolder, settings: Mapping[str, Any], free: Collection[str]) -> None:
    """Without a checkpoint nothing is lost: a setting that was wrong may be put right."""
    whole = folder.find_newest() is not None
    if not folder.settings.exists():
        if whole:
            raise CheckpointMismatch(
                f"{str(folder.path)!r} has checkpoints, and no {SETTINGS} to say how they were made: use another --out"
            )
        return
    try:
        before = read_toml(folder.settings)
    except ConfigError:
        if whole:
            raise
        folder.start_over()
        return
    said = list_differences(_select_bound(before, free), _select_bound(settings, free))
    if said and whole:
        raise CheckpointMismatch(
            f"the run in {str(folder.path)!r} was begun with other settings: {said}. Use the same ones to go on, or "
            f"another --out"
        )
    if said:
        folder.start_over()


def _facts(file: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read_bytes()))
    except (ValueError, TypeError) as error:
        return {"damaged": f"{file.name}: {error}"}


def _list_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What differs, each value shortened."""
    short = [{name: str(value)[:LONG] for name, value in one.items()} for one in (before, now)]
    return list_differences(*short) or f"see {DATA}"


def _select_bound(settings: Mapping[str, Any], free: Collection[str]) -> dict[str, Any]:
    """Settings that may not change, by dotted key."""
    flat = dict(_flatten(settings, ""))
    return {
        key: value
        for key, value in flat.items()
        if not any(key == name or key.startswith(f"{name}.") for name in free)
    }


def _flatten(settings: Mapping[str, Any], prefix: str) -> Generator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")  # pyright: ignore[reportUnknownArgumentType]
        else:
            yield prefix + key, list(value) if isinstance(value, tuple) else value  # pyright: ignore[reportUnknownArgumentType]


def _return_to_checkpoint(folder: RunFolder) -> None:
    for broken in discard_incomplete(folder.checkpoints):
        logger.warning("removed %r: it was not finished", str(broken))
    newest = folder.find_newest()
    step = newest.step if newest else 0
    metrics.cut(folder.metrics, step)
    rollout_log.cut(folder.rollouts, step)
    if folder.runs.exists():
        _forget_runs(folder.runs, step)


def _forget_runs(file: Path, step: int) -> None:
    """A run of a step that is done again would be found finished, and its rollout would have no conversations."""
    store = RunStore(file)
    try:
        for record in store.runs():
            if is_after(record.id, step):
                store.remove(record.id)
    finally:
        store.close()
