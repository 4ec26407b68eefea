"""The arms of the experiment, and how each is trained and measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from memagent.errors import ConfigError
from memagent_draws.kept_values import kept_shares, overlong_share
from memagent_draws.material import DROP, GRPO, SFT, WHOLE, WIDE, Start, lay_out, record
from memagent_engines.smol import smol_folder
from memagent_train.config.sft import load_sft
from memagent_train.config.train import load_train
from memagent_train.runs.evaluate import evaluate
from memagent_train.runs.export import export
from memagent_train.runs.grpo import train
from memagent_train.runs.progress import PlainWatcher
from memagent_train.runs.sft import warm_start
from memagent_train.runs.target import Target

WARM, MORE = "warm", "more"
LONG, LANGUAGE = "long", "language"
"""Starts with their own folder: a window that holds a whole game, and a language model."""
ANOTHER = 10**3
"""Added to a seed for games that the warm start didn't imitate."""


SMOL: dict[str, Any] = {
    "games": 150,
    "window": 1024,
    "play": (
        "model.dtype=bfloat16",
        "lora={rank=16,alpha=32}",
        # Four draws again: a message takes five tokens more than with the toy model.
        "agent.tools.working_context=340",
        "agent.tools.summary_tokens=6",
        "agent.tools.reply_tokens=6",
        "rollout.concurrency=32",
        "rollout.max_batch=32",
        "batch.groups=4",
        "batch.micro_batches=256",
        "optimizer.steps=20",
        "optimizer.learning_rate=3e-4",
        "optimizer.precision=bf16",
        "evaluation.n=64",
        "checkpoints.every=1",
    ),
    "imitate": (
        "model.dtype=bfloat16",
        "lora={rank=16,alpha=32}",
        "traces.window=1024",
        "batch.rows=16",
        "batch.micro_batches=16",
        "optimizer.steps=60",
        "optimizer.learning_rate=2e-3",
        "optimizer.precision=bf16",
        "checkpoints.every=20",
    ),
}
"""Settings for the start with a language model: fewer and smaller steps, since each takes 100 times as long."""


LARGE: dict[str, Any] = {
    "layers": 3,
    "width": 128,
    "play": ("optimizer.steps=24", "optimizer.learning_rate=3e-4"),
    "imitate": ("optimizer.learning_rate=1e-3", "checkpoints.every=150"),
}
"""Settings of the model with 0.5M weights, whose steps take longer. At the small model's rates the imitation stops at a
loss of 0.053 (seed 0); both are a third of those."""


class Arm(NamedTuple):
    """One way to continue from the start."""

    says: str
    settings: tuple[str, ...] = ()
    """Settings that differ from the file."""
    file: str = GRPO
    start: str = ""
    """Name of its start, if it has a different one."""


ARMS = {
    "supo": Arm("SUPO"),
    "unmasked": Arm("SUPO without the overlong mask", ("algorithm.overlong_mask=false",)),
    "frozen": Arm("summaries frozen", ("algorithm.weights={summary=0}",)),
    "summaries": Arm("summaries alone", ("algorithm.weights={act=0}",)),
    "drop": Arm("oldest draws dropped", file=DROP),
    MORE: Arm("more imitation"),
    "whole": Arm("whole history, window of 1,024", WHOLE, start=LONG),
    "smol": Arm("SUPO, a language model of 135M weights", start=LANGUAGE),
    # If every session is overlong, a mask would leave nothing to train on.
    "none": Arm(
        "whole history, same window",
        ("agent.tools.max_summaries=0", "algorithm.overlong_mask=false"),
    ),
}
"""Arms by name."""
FIGURES = "figures.json"
"""File in an arm's folder with the figures for the table."""


def perform(folder: Path, name: str, *, seed: int, large: bool = False) -> None:
    """Trains one arm from its start and measures it, or resumes; does nothing if it is measured.

    Args:
        folder: folder of all arms of a seed.
        name: name of the arm.
        seed: seed of the training and its games.
        large: whether the model has 0.5M weights.

    Raises:
        ConfigError: as `make_start`.
    """
    if (folder / name / FIGURES).exists():
        return
    arm = ARMS[name]
    start, base = make_start(arm.start, large=large), folder / arm.start
    _prepare(base, start, seed=seed)
    evaluations = (
        _imitate(folder, start, seed)
        if name == MORE
        else _reinforce(base, folder / name, arm, start, seed)
    )
    out = folder / name
    figures = {
        "right": evaluations,
        "kept": kept_shares(out, base / WARM),
        "overlong": overlong_share(out),
    }
    (out / FIGURES).write_text(json.dumps(figures), encoding="utf-8")


def make_start(name: str, *, large: bool = False) -> Start:
    """Returns a start by its name.

    Raises:
        ConfigError: the language model has not been fetched, or a large one was requested.
    """
    start = Start(**LARGE) if large else Start()
    if name == LONG:
        # The same tokens: a row has a game's four conversations in one.
        imitate = (*start.imitate, f"traces.window={WIDE}", "batch.rows=16")
        return start._replace(window=WIDE, play=(*start.play, *WHOLE), imitate=imitate)
    if name == LANGUAGE:
        if large:
            raise ConfigError("smol has a size of its own: leave out --large")
        if not (model := smol_folder()).is_dir():
            raise ConfigError("the model 'smol' is not on this machine yet: memagent fetch smol")
        return Start(**SMOL, model=model)
    return start


def _prepare(base: Path, start: Start, *, seed: int) -> None:
    """Makes the start: the material and a warm start from it, exported to `warm`."""
    if (base / WARM).exists():
        return
    if not (base / SFT).exists():
        lay_out(base, start, seed=seed)
    config = load_sft(base / SFT, [f"optimizer.seed={seed}", *start.imitate])
    warm_start(config, base / "sft", watch=PlainWatcher)
    export(base / "sft", base / WARM)


def _reinforce(base: Path, out: Path, arm: Arm, start: Start, seed: int) -> dict[str, Any]:
    """Trains with rewards; returns evaluations by step: mean reward, ends of the 95% interval, n."""
    overrides = [f"optimizer.seed={seed}", f"data.seed={seed}", *start.play, *arm.settings]
    config = load_train(base / arm.file, overrides)
    trained = train(config, out, watch=PlainWatcher)
    (length,) = map(str, config.evaluation.lengths)
    return {str(step): evaluation[length] for step, evaluation in trained.evaluations.items()}


def _imitate(folder: Path, start: Start, seed: int) -> dict[str, Any]:
    """Continues to imitate other games of the same expert; returns evaluations as `_reinforce` does."""
    traces = folder / "more.parquet"
    if not traces.exists():
        record(folder, traces.name, start, seed=ANOTHER + seed)
    overrides = [f"model.path={folder / WARM}", f"optimizer.seed={ANOTHER + seed}"]
    overrides += [
        f'traces.source=[{{kind="rollouts",path="{traces}",min_reward=0.0}}]',
        *start.imitate,
    ]
    warm_start(load_sft(folder / SFT, overrides), folder / MORE, watch=PlainWatcher)
    exported = folder / MORE / "exported"
    export(folder / MORE, exported)
    evaluations: dict[str, Any] = {}
    for step, path in enumerate((folder / WARM, exported)):
        config = load_train(
            folder / GRPO,
            [f"optimizer.seed={seed}", f"data.seed={seed}", f"model.path={path}"],
        )
        settings = config.evaluation
        (cell,) = evaluate(Target(config.model), config, lengths=settings.columns, n=settings.n)
        result = cell.estimate
        evaluations[str(step)] = {
            "mean": result.mean,
            "low": result.low,
            "high": result.high,
            "n": result.n,
        }
    return evaluations
