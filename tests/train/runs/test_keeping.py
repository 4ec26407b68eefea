"""A line a step however many updates it has, and checkpoints that count when they are whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import TrainerControl, TrainerState, TrainingArguments

from memagent_train.runs import metrics
from memagent_train.runs.checkpoints import list_checkpoints
from memagent_train.runs.folder import RunFolder
from memagent_train.runs.keeping import Keeper


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


class Trained:
    """Plays a trainer's part: logs and saves."""

    def __init__(self, folder: RunFolder, updates: int, keep: int = 0) -> None:
        self.told: list[tuple[int, dict[str, Any]]] = []
        self.keeper = Keeper(
            folder,
            updates_per_step=updates,
            keep=keep,
            on_step=lambda step, figures: self.told.append((step, dict(figures))),
            clock=iter(range(100)).__next__,
        )
        self.folder = folder
        self.state = TrainerState(is_world_process_zero=True)
        self.args = TrainingArguments(output_dir=str(folder.checkpoints), use_cpu=True)

    def log(self, updates: int, **figures: Any) -> None:
        self.state.global_step = updates
        self.keeper.on_log(self.args, self.state, TrainerControl(), logs=figures)

    def save(self, updates: int) -> None:
        self.state.global_step = updates
        path = self.folder.checkpoints / f"checkpoint-{updates}"
        path.mkdir(parents=True)
        (path / "weights").touch()
        self.keeper.on_save(self.args, self.state, TrainerControl())


def test_updates_of_a_step_are_averaged(folder: RunFolder) -> None:
    trained = Trained(folder, updates=2)
    trained.log(1, loss=0.5, reward=0.25, epoch=1.0)
    assert metrics.read(folder.metrics) == []
    trained.log(2, loss=1.0)
    (line,) = metrics.read(folder.metrics)
    assert line == {"step": 1, "loss": 0.75, "reward": 0.25, "seconds": 1}
    assert trained.told == [(1, {"loss": 0.75, "reward": 0.25, "seconds": 1})]


def test_extremes_of_updates_are_not_averaged(folder: RunFolder) -> None:
    trained = Trained(folder, updates=3)
    for update, low, high in ((1, 0.5, 0.1), (2, 0.25, 0.4), (3, 0.75, 0.1)):
        more = {"clip_ratio/low_min": low, "clip_ratio/high_max": high, "logprob_gap/max": high}
        trained.log(update, loss=1.0, **more)
    (line,) = metrics.read(folder.metrics)
    assert (line["clip_ratio/low_min"], line["clip_ratio/high_max"]) == (0.25, 0.4)
    assert line["logprob_gap/max"] == 0.4


def test_evaluations_and_the_last_summary_are_no_steps(folder: RunFolder) -> None:
    trained = Trained(folder, updates=1)
    trained.log(1, **{"evaluation/8192": 0.5})
    trained.log(1, train_runtime=3.0)
    assert not folder.metrics.exists()


def test_other_processes_write_nothing(folder: RunFolder) -> None:
    trained = Trained(folder, updates=1)
    trained.state.is_world_process_zero = False
    trained.log(1, loss=1.0)
    trained.save(1)
    assert not folder.metrics.exists()
    assert list_checkpoints(folder.checkpoints) == []


def test_a_saved_checkpoint_counts_and_old_ones_go(folder: RunFolder) -> None:
    trained = Trained(folder, updates=2, keep=2)
    for updates in (2, 4, 6):
        trained.save(updates)
    found = [(one.step, one.updates) for one in list_checkpoints(folder.checkpoints)]
    assert found == [(2, 4), (3, 6)]
