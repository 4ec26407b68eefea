"""Saves a running training: metrics of each step, and complete checkpoints."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import torch.distributed
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from memagent_train.extremes import combine
from memagent_train.runs import metrics
from memagent_train.runs.checkpoints import mark_complete, prune
from memagent_train.runs.folder import RunFolder

SEPARATE = "evaluation/"
"""Prefix of figures that are written on a separate line."""


class Keeper(TrainerCallback):
    """Writes a line of metrics per step, marks complete checkpoints, and removes old ones.

    Args:
        folder: the run's folder.
        updates_per_step: optimizer updates per step, over which figures are combined: extremes as extremes, others as
            means.
        keep: number of checkpoints to keep; 0: all.
        on_step: called with every step and its figures.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        folder: RunFolder,
        *,
        updates_per_step: int,
        keep: int,
        on_step: Callable[[int, Mapping[str, Any]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._on_step = folder, on_step
        self._updates, self._keep = updates_per_step, keep
        self._seen: defaultdict[str, list[float]] = defaultdict(list)
        self._clock = clock
        self._begun = clock()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Starts timing the first step."""
        self._begun = self._clock()
        # transformers would otherwise keep the interval of the checkpoint's settings.
        state.save_steps = int(args.save_steps)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Collects the figures of one update; the last update of a step writes its line."""
        if not logs or "loss" not in logs or not state.is_world_process_zero:
            return
        for name, value in logs.items():
            if (
                isinstance(value, (int, float))
                and not name.startswith(SEPARATE)
                and name != "epoch"
            ):
                self._seen[name].append(value)
        if state.global_step % self._updates:
            return
        step = state.global_step // self._updates
        now = self._clock()
        figures = {name: combine(name, values) for name, values in self._seen.items()}
        figures["seconds"] = now - self._begun
        self._begun = now
        self._seen.clear()
        metrics.append(self._folder.metrics, step, figures)
        self._on_step(step, figures)

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Marks the checkpoint as complete once all processes have written their part, and removes old ones."""
        if torch.distributed.is_initialized():
            torch.distributed.barrier()
        if not state.is_world_process_zero:
            return
        path = self._folder.checkpoints / f"checkpoint-{state.global_step}"
        mark_complete(path, state.global_step // self._updates)
        prune(self._folder.checkpoints, self._keep)
