"""Stages of a course: each begins with the policy of another one, and leaves one of its own."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from memagent.errors import ConfigError
from memagent_nano import processes
from memagent_nano.sizes import Size

HERE = Path(__file__).parent
POLICY, RUN, TRACES, LOG = "policy", "run", "traces", "log.txt"
MEASURED, GATE, KEPT = "measured", "gate.json", "kept.json"
"""What was measured of a policy."""
MADE = "made"
"""A policy that may not be whole yet."""
ROLLOUTS = "rollouts"
"""Lessons that aren't a file: the right ones among rollouts of the policy that a stage begins with."""
GATED = "gated"
"""The stage whose lessons the policy before it gives, and the name of these."""
DOCUMENTS = 8192
"""That it rolls out for them, a round."""
SETTLING = 2
"""Rounds of more copies, each with lessons of its own."""
TRUNK_END = f"settle-{SETTLING}"
TRUNK = ("new", "echo", "copy", *(f"settle-{number}" for number in range(1, SETTLING + 1)))
"""Stages that all arms of all seeds begin with, trained once, with the first seed: what seeds differ in comes after."""


@dataclass(frozen=True)
class Stage:
    """One training, or the making of what others need."""

    name: str
    """Its folder, within that of its seed."""
    command: Literal["new", "sft", "grpo"]
    after: str = ""
    """The stage whose policy it begins with."""
    lessons: str = ""
    """What is imitated: the name of a file of lessons, or `ROLLOUTS`."""
    steps: int = 0
    settings: tuple[str, ...] = field(default=())
    """Further ones, as `--set` takes them."""
    window: int = 0
    """Tokens that its conversations may have, where that is not the size's."""
    first: int = 0
    """Of the documents that are rolled out for `ROLLOUTS`."""


@dataclass(frozen=True)
class Place:
    """Where a course of one seed lies."""

    root: Path
    size: Size
    seed: int

    @property
    def folder(self) -> Path:
        """Of the seed."""
        return self.root / f"seed-{self.seed}"

    @property
    def lessons(self) -> Path:
        """Of all seeds: arms and seeds have the same samples."""
        return self.root / "lessons"

    def of(self, stage: str) -> Path:
        """The folder of a stage."""
        return (self.root / "trunk" if stage in TRUNK else self.folder) / stage

    def policy(self, stage: str) -> Path:
        """The weights that a stage leaves."""
        return self.of(stage) / POLICY

    def find_trained(self, stage: str) -> Path:
        """The same, of a stage that is done.

        Raises:
            ConfigError: it has left none.
        """
        if not (self.policy(stage) / "config.json").is_file():
            raise ConfigError(
                f"stage {stage!r} has left no policy in {str(self.of(stage))!r}: train it first"
            )
        return self.policy(stage)

    def run(self, stage: str) -> Path:
        """The folder of a stage's training."""
        return self.of(stage) / RUN

    def log(self, stage: str) -> Path:
        """What a stage's commands said."""
        return self.of(stage) / LOG


def is_done(place: Place, stage: Stage) -> bool:
    """Whether a stage has left its policy."""
    return (place.policy(stage.name) / "config.json").is_file()


def perform(place: Place, stage: Stage) -> None:
    """Trains, from the newest checkpoint on where there is one, and exports. Blocks.

    Args:
        place: of the course.
        stage: the one that it begins with is done.

    Raises:
        StageFailed: a command failed; what it said went to `log.txt` in the stage's folder.
    """
    if is_done(place, stage):
        return
    folder = place.of(stage.name)
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / MADE
    for stale in (draft, place.policy(stage.name), folder / MEASURED, folder / TRACES):
        shutil.rmtree(stale, ignore_errors=True)
    for stale in (folder / GATE, folder / KEPT, folder / f"{GATED}.jsonl"):
        stale.unlink(missing_ok=True)
    if stage.command == "new":
        _write_new(place, draft)
    else:
        _train(place, stage)
        run = str(place.run(stage.name))
        processes.python(
            place.log(stage.name), "memagent_train", "export", run, "--out", str(draft)
        )
        _widen(draft, stage)
    draft.replace(place.policy(stage.name))


def _write_new(place: Place, folder: Path) -> None:
    """Writes a policy with random weights."""
    from transformers.utils import logging

    from memagent_nano.model import new_model
    from memagent_nano.tokenizer import new_tokenizer

    logging.disable_progress_bar()  # a line for a file of a megabyte
    tokenizer = new_tokenizer(place.size)
    model = new_model(place.size, tokenizer, seed=place.seed)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)


def _train(place: Place, stage: Stage) -> None:
    """Leaves the checkpoints of a training in the stage's run."""
    run, log = str(place.run(stage.name)), place.log(stage.name)
    arguments = ("--out", str(place.root), place.size.name, str(place.seed), stage.after)
    if stage.lessons == ROLLOUTS:
        span = (str(stage.first), str(DOCUMENTS))
        processes.python(log, "memagent_nano", "sample-one", *arguments, *span)
    if stage.lessons == GATED:
        processes.python(log, "memagent_nano", "gate-one", *arguments)
    settings = [
        f"model.path={json.dumps(str(place.policy(stage.after)))}",
        f"optimizer.steps={stage.steps}",
        f"optimizer.seed={place.seed}",
        *(sft_settings(place, stage) if stage.command == "sft" else grpo_settings(place)),
        *stage.settings,
    ]
    chosen = [part for setting in settings for part in ("--set", setting)]
    file = str(HERE / f"{stage.command}.toml")
    processes.python(log, "memagent_train", stage.command, file, "--out", run, *chosen)


def _widen(folder: Path, stage: Stage) -> None:
    """Says in a policy's config that it takes the window that it was trained with, where that is a longer one."""
    if stage.window:
        file = folder / "config.json"
        config = {**json.loads(file.read_text()), "max_position_embeddings": stage.window}
        file.write_text(json.dumps(config, indent=2) + "\n")


def sft_settings(place: Place, stage: Stage) -> list[str]:
    """Where the lessons are."""
    if stage.lessons == ROLLOUTS:
        path = json.dumps(str(place.of(stage.after) / TRACES))
        source = f'{{ kind = "rollouts", path = {path}, min_reward = 1.0 }}'
    else:
        folder = place.of(stage.after) if stage.lessons == GATED else place.lessons
        files = json.dumps([str(folder / f"{stage.lessons}.jsonl")])
        source = f'{{ kind = "messages", files = {files} }}'
    return [f"traces.source=[{source}]"]


def grpo_settings(place: Place) -> list[str]:
    """What documents there are, and how much an agent of the size takes at once."""
    size = place.size
    sources = [
        f'{{ kind = "task", use = "memagent_nano.task:notes", name = "{family}", count = 100000, '
        f'arguments = {{ family = "{family}", size = "{size.name}" }}, lengths = {list(size.lengths)} }}'
        for family in ("once", "last", "hop")
    ]
    return [
        f"data.source=[{', '.join(sources)}]",
        f"data.seed={place.seed}",
        *agent_settings(size),
        f"evaluation.lengths=[{size.lengths[-1]}]",
    ]


def agent_settings(size: Size) -> list[str]:
    """How much a memory agent of the size takes at once."""
    return [
        f"agent.window={size.window}",
        f"agent.chunk_tokens={size.chunk_tokens}",
        f"agent.memory_tokens={size.memory_tokens}",
    ]
