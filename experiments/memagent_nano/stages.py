"""Stages of a course: each starts from the policy of another one, and leaves its own."""

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
"""Measurements of a policy."""
MADE = "made"
"""Folder of a policy that may be incomplete."""
ROLLOUTS = "rollouts"
"""Lessons that aren't a file: the right rollouts of the policy that a stage starts from."""
GATED = "gated"
"""The stage whose lessons come from the policy before it, and the name of these lessons."""
DOCUMENTS = 8192
"""Documents rolled out for them per round."""
SETTLING = 2
"""Rounds of more copies, each with its own lessons."""
TRUNK_END = f"settle-{SETTLING}"
TRUNK = ("new", "echo", "copy", *(f"settle-{number}" for number in range(1, SETTLING + 1)))
"""Common first stages of all arms and seeds, trained once, with the first seed: seeds differ only after them."""


@dataclass(frozen=True)
class Stage:
    """One training, or the creation of what others need."""

    name: str
    """Name of its folder, within that of its seed."""
    command: Literal["new", "sft", "grpo"]
    after: str = ""
    """The stage whose policy it starts from."""
    lessons: str = ""
    """What is imitated: the name of a file of lessons, or `ROLLOUTS`."""
    steps: int = 0
    settings: tuple[str, ...] = field(default=())
    """Additional settings, as `--set` takes them."""
    window: int = 0
    """Maximum tokens of its conversations, if different from the size's."""
    first: int = 0
    """Index of the first document rolled out for `ROLLOUTS`."""


@dataclass(frozen=True)
class Place:
    """The location of one seed's course."""

    root: Path
    size: Size
    seed: int

    @property
    def folder(self) -> Path:
        """Folder of the seed."""
        return self.root / f"seed-{self.seed}"

    @property
    def lessons(self) -> Path:
        """Folder for all seeds: arms and seeds have the same samples."""
        return self.root / "lessons"

    def of(self, stage: str) -> Path:
        """Returns the folder of a stage."""
        return (self.root / "trunk" if stage in TRUNK else self.folder) / stage

    def policy(self, stage: str) -> Path:
        """Returns the folder of the weights that a stage leaves."""
        return self.of(stage) / POLICY

    def find_trained(self, stage: str) -> Path:
        """Returns the same for a finished stage.

        Raises:
            ConfigError: the stage has left no policy.
        """
        if not (self.policy(stage) / "config.json").is_file():
            raise ConfigError(
                f"stage {stage!r} has left no policy in {str(self.of(stage))!r}: train it first"
            )
        return self.policy(stage)

    def run(self, stage: str) -> Path:
        """Returns the folder of a stage's training."""
        return self.of(stage) / RUN

    def log(self, stage: str) -> Path:
        """Returns the log of a stage's commands."""
        return self.of(stage) / LOG


def is_done(place: Place, stage: Stage) -> bool:
    """Returns whether a stage has left its policy."""
    return (place.policy(stage.name) / "config.json").is_file()


def perform(place: Place, stage: Stage) -> None:
    """Trains, from the newest checkpoint if there is one, and exports. Blocks.

    Args:
        place: place of the course.
        stage: a stage whose predecessor is done.

    Raises:
        StageFailed: a command failed; its output is in `log.txt` in the stage's folder.
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

    logging.disable_progress_bar()  # one line for a file of a megabyte
    tokenizer = new_tokenizer(place.size)
    model = new_model(place.size, tokenizer, seed=place.seed)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)


def _train(place: Place, stage: Stage) -> None:
    """Leaves the checkpoints of a training in the stage's run folder."""
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
    """Sets the window in a policy's config to the one that it was trained with, if that is longer."""
    if stage.window:
        file = folder / "config.json"
        config = {**json.loads(file.read_text()), "max_position_embeddings": stage.window}
        file.write_text(json.dumps(config, indent=2) + "\n")


def sft_settings(place: Place, stage: Stage) -> list[str]:
    """Returns the settings for the lessons' location."""
    if stage.lessons == ROLLOUTS:
        path = json.dumps(str(place.of(stage.after) / TRACES))
        source = f'{{ kind = "rollouts", path = {path}, min_reward = 1.0 }}'
    else:
        folder = place.of(stage.after) if stage.lessons == GATED else place.lessons
        files = json.dumps([str(folder / f"{stage.lessons}.jsonl")])
        source = f'{{ kind = "messages", files = {files} }}'
    return [f"traces.source=[{source}]"]


def grpo_settings(place: Place) -> list[str]:
    """Returns the settings for the documents, and for how much an agent of the size takes at once."""
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
    """Returns the settings for how much a memory agent of the size takes at once."""
    return [
        f"agent.window={size.window}",
        f"agent.chunk_tokens={size.chunk_tokens}",
        f"agent.memory_tokens={size.memory_tokens}",
    ]
