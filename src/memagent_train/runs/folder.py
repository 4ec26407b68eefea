"""The folder of a run: its settings, checkpoints and logs, held by one training at a time."""

import json
import logging
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tomli_w
from pydantic import BaseModel, ValidationError

from memagent.errors import ConfigError, StoreReadOnly
from memagent.replacing import replacing
from memagent.runstore import RunStore, hold_folder, list_differences
from memagent.runstore.records import flatten
from memagent_train.config.toml import read_toml
from memagent_train.errors import CheckpointMismatch
from memagent_train.runs import metrics, rollout_log
from memagent_train.runs.checkpoints import (
    Checkpoint,
    discard_incomplete,
    list_checkpoints,
    list_folders,
)
from memagent_train.runs.digested import drop_digested, list_digested
from memagent_train.runs.ids import is_repeated
from memagent_train.runs.provenance import note_provenance

logger = logging.getLogger("memagent.train")

SETTINGS, DATA, PROVENANCE = "config.toml", "data.json", "provenance.jsonl"
WARM = "traces"
"""A section that only the settings of a warm start have."""
LONG = 80
"""Maximum characters shown of a fact about the data."""


@dataclass(frozen=True)
class RunFolder:
    """The paths of a run's files."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        """Folder of the `checkpoint-N` folders, each written after N optimizer updates."""
        return self.path / "checkpoints"

    @property
    def rollouts(self) -> Path:
        """Folder of the `step-*.parquet` files."""
        return self.path / rollout_log.FOLDER

    @property
    def metrics(self) -> Path:
        """File with a line of JSON per step and per evaluation."""
        return self.path / "metrics.jsonl"

    @property
    def runs(self) -> Path:
        """Run store of the memory agent."""
        return self.path / "runs.sqlite"

    @property
    def prompts(self) -> Path:
        """The agent's prompts, if it is one of memagent's agents."""
        return self.path / "prompts.toml"

    @property
    def settings(self) -> Path:
        """File of the resolved settings."""
        return self.path / SETTINGS

    def bind_data(
        self, facts: Mapping[str, Any], *, later: Collection[str] = (), accept: bool = False
    ) -> None:
        """Records what the run learns from, or compares it with the record.

        Args:
            facts: what samples, rewards and first weights depend on, as plain data.
            later: names of facts that earlier versions didn't record.
            accept: record differences, with a warning, instead of refusing them.

        Raises:
            CheckpointMismatch: there is a checkpoint for other facts; the message lists the differences.
            OSError: the facts can't be recorded.
        """
        file = self.path / DATA
        now: dict[str, Any] = json.loads(json.dumps(facts, default=str))
        if file.exists():
            before = _facts(file)
            if before == now:
                return
            before = {name: now[name] for name in later if name in now} | before
            if before != now and self.find_newest() is not None:
                changes = _list_changes(before, now)
                if not accept:
                    raise CheckpointMismatch(
                        f"the run in {str(self.path)!r} was started with other data, code or weights: {changes}. Use "
                        f"the same ones (and the same evaluation.n, which is held out) to resume, another --out, or "
                        f"checkpoints.accept_changes = true to continue with what has changed"
                    )
                logger.warning("the run continues with other data, code or weights: %s", changes)
            elif before != now:
                self.start_over()
        with replacing(file) as new:
            new.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")

    def read_facts(self) -> dict[str, Any]:
        """Returns what `bind_data` recorded; empty if there is no record."""
        file = self.path / DATA
        return _facts(file) if file.exists() else {}

    def start_over(self) -> None:
        """Deletes everything that was written before the first checkpoint."""
        for file in (self.path / DATA, self.prompts, self.metrics):
            file.unlink(missing_ok=True)
        rollout_log.cut(self.rollouts, 0)
        _forget_runs(self, 0)

    def find_newest(self) -> Checkpoint | None:
        """Returns the checkpoint to resume from; None before the first."""
        return next(reversed(list_checkpoints(self.checkpoints)), None)


@contextmanager
def open_run(
    path: Path,
    settings: Mapping[str, Any],
    *,
    free: Collection[str],
    kind: type[BaseModel] | None = None,
) -> Generator[RunFolder]:
    """Creates the folder of a run, or reopens it at its newest complete checkpoint. Blocks.

    Removes what a killed process wrote after that checkpoint: a partial checkpoint, and logs, metrics and runs of later
    steps, which will be redone.

    A file or folder that the settings name may have moved if the run's record has its digest: `bind_data` compares it.

    Args:
        path: the folder.
        settings: plain data, with a table for each section.
        free: settings that may change between two sessions: `section.key`, or `section`.
        kind: class of the settings, whose defaults fill in missing settings.

    Raises:
        RunBusy: another process is using it.
        CheckpointMismatch: it has checkpoints for other settings; the message lists them.
        StoreReadOnly: the folder can't be created or written.
        ConfigError: it isn't a run's, but has a file named like one of a run's; or it has checkpoints, but its settings
            can't be read; or it has checkpoints of more steps than are set.
    """
    folder = RunFolder(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreReadOnly(f"cannot create the folder {str(path)!r}: {error.strerror}") from error
    with hold_folder(path):
        _refuse_others(folder)
        if _differs(folder, settings, free, kind):
            folder.start_over()
        # First, because it frees disk space that may be needed.
        _return_to_checkpoint(folder)
        note_provenance(path / PROVENANCE)  # the first file of a run, and what identifies it as one
        with replacing(folder.settings) as new:
            new.write_text(tomli_w.dumps(settings), encoding="utf-8")
        yield folder


def check_run(
    path: Path,
    settings: Mapping[str, Any],
    *,
    free: Collection[str],
    kind: type[BaseModel] | None = None,
) -> None:
    """Raises the errors of `open_run`, except `RunBusy`, and changes nothing. Blocks."""
    full_path = path.absolute()
    try:
        ancestor = next(
            candidate for candidate in (full_path, *full_path.parents) if candidate.exists()
        )
        with TemporaryDirectory(dir=ancestor):
            pass
    except OSError as error:
        raise StoreReadOnly(
            f"cannot write to the folder {str(path)!r}: {error.strerror}"
        ) from error
    _refuse_others(RunFolder(path))
    _differs(RunFolder(path), settings, free, kind)


def _refuse_others(folder: RunFolder) -> None:
    """Refuses a folder with a user's files, which could be mistaken for a run's and be deleted or replaced."""
    ours = SETTINGS, DATA, folder.prompts, folder.metrics, folder.rollouts, folder.runs
    theirs = [file.name for file in map(folder.path.joinpath, ours) if file.exists()]
    if theirs and not (folder.path / PROVENANCE).exists():
        raise ConfigError(
            f"{str(folder.path)!r} is not the folder of a run (it has no {PROVENANCE}), and a training would replace "
            f"what is there ({', '.join(theirs)}): use another --out, best a new one"
        )


def _differs(
    folder: RunFolder,
    settings: Mapping[str, Any],
    free: Collection[str],
    kind: type[BaseModel] | None,
) -> bool:
    """Returns whether the folder has other settings but no checkpoint, so that nothing is lost by starting over."""
    newest = folder.find_newest()
    resumable = newest is not None
    if not folder.settings.exists():
        if list_folders(
            folder.checkpoints
        ):  # another program's, so not ours to remove even if incomplete
            raise CheckpointMismatch(
                f"{str(folder.path)!r} has checkpoints, but no {SETTINGS} to tell how they were made: use another --out"
            )
        return False
    try:
        old_settings = read_toml(folder.settings)
    except ConfigError:
        if resumable:
            raise
        return True
    if resumable and (WARM in old_settings) != (WARM in settings):
        held = "a warm start" if WARM in old_settings else "a training by reinforcement learning"
        raise CheckpointMismatch(f"{str(folder.path)!r} holds {held}: use another --out")
    both = old_settings, settings
    moved = list_digested(old_settings, folder.read_facts())
    old, new = (_select_bound(drop_digested(version, moved), free) for version in both)
    # A setting that an earlier version didn't have was off there.
    new = {key: new[key] for key in new if new[key] or key in old}
    if kind is not None:
        # An earlier version may have had settings that no longer exist.
        with suppress(ValidationError, ConfigError):
            full = (kind.model_validate_json(json.dumps(version)) for version in both)
            dumped = (drop_digested(version.model_dump(mode="json"), moved) for version in full)
            old, new = (_select_bound(version, free) for version in dumped)
    differences = list_differences(old, new)
    if differences and resumable:
        raise CheckpointMismatch(
            f"the run in {str(folder.path)!r} was started with different settings: {differences}. Use the same ones to "
            f"resume, or another --out"
        )
    steps = settings.get("optimizer", {}).get("steps")
    if newest is not None and steps is not None and newest.step > steps:
        raise ConfigError(
            f"optimizer.steps = {steps!r}, but the run in {str(folder.path)!r} is trained for {newest.step} steps "
            f"already: give at least {newest.step}, or another --out"
        )
    return bool(differences)


def _facts(file: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read_bytes()))
    except (ValueError, TypeError) as error:
        return {"damaged": f"{file.name}: {error}"}


def _list_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Lists the differences, each value shortened."""
    short = [{name: str(value)[:LONG] for name, value in facts.items()} for facts in (before, now)]
    return list_differences(*short) or f"see {DATA}"


def _select_bound(settings: Mapping[str, Any], free: Collection[str]) -> dict[str, Any]:
    """Selects the settings that may not change, by dotted key."""
    return {
        key: value
        for key, value in flatten(settings).items()
        if not any(key == name or key.startswith(f"{name}.") for name in free)
    }


def _return_to_checkpoint(folder: RunFolder) -> None:
    for broken in discard_incomplete(folder.checkpoints):
        logger.warning("removed %r: it was incomplete", str(broken))
    newest = folder.find_newest()
    step = newest.step if newest else 0
    metrics.cut(folder.metrics, step)
    rollout_log.cut(folder.rollouts, step)
    _forget_runs(folder, step)


def _forget_runs(folder: RunFolder, step: int) -> None:
    """Removes runs of repeated steps: they would be found finished, and their rollouts would have no conversations."""
    if not folder.runs.exists():
        return
    evaluated = metrics.list_evaluated(folder.metrics)
    store = RunStore(folder.runs)
    try:
        for record in store.runs():
            if is_repeated(record.id, step, evaluated):
                store.remove(record.id)
    finally:
        store.close()
