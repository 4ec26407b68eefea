"""The arms of the experiment, and how each is trained and measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from memagent_draws.material import GRPO, SFT, lay_out
from memagent_train.config.sft import load_sft
from memagent_train.config.train import load_train
from memagent_train.runs.export import export
from memagent_train.runs.grpo import train
from memagent_train.runs.progress import PlainWatcher
from memagent_train.runs.sft import warm_start


class Arm(NamedTuple):
    """One way to train from the same start."""

    says: str
    settings: tuple[str, ...] = ()
    """What differs from grpo.toml."""


ARMS = {
    "supo": Arm("SUPO"),
    "unmasked": Arm("SUPO without the overlong mask", ("algorithm.overlong_mask=false",)),
    "frozen": Arm("summaries frozen", ("algorithm.weights={summary=0}",)),
    "summaries": Arm("summaries alone", ("algorithm.weights={act=0}",)),
    # Where every session is overlong a mask would leave nothing to train.
    "none": Arm(
        "no summaries, same window",
        ("agent.tools.max_summaries=0", "algorithm.overlong_mask=false"),
    ),
}
"""By name."""
FIGURES = "figures.json"
"""In an arm's folder: mean, interval and n, before and after."""


def prepare(folder: Path, *, seed: int) -> None:
    """Makes the start of all arms: the material and a warm start on it, exported to `warm`."""
    if (folder / "warm").exists():
        return
    lay_out(folder, seed=seed)
    warm_start(
        load_sft(folder / SFT, [f"optimizer.seed={seed}"]), folder / "sft", watch=PlainWatcher
    )
    export(folder / "sft", folder / "warm")


def perform(folder: Path, name: str, *, seed: int) -> dict[str, Any]:
    """Trains one arm from the start, or resumes it.

    Args:
        folder: from `prepare`.
        name: of the arm.
        seed: seed of the training and its games.

    Returns:
        The evaluations by step: mean reward, ends of the 95% interval, n.
    """
    given = [f"optimizer.seed={seed}", f"data.seed={seed}", *ARMS[name].settings]
    config = load_train(folder / GRPO, given)
    trained = train(config, folder / name, watch=PlainWatcher)
    (length,) = map(str, config.evaluation.lengths)
    return {str(step): found[length] for step, found in trained.evaluations.items()}


def note(folder: Path, name: str, found: dict[str, Any]) -> None:
    """Writes down an arm's evaluations, which also says that it is done."""
    (folder / name / FIGURES).write_text(json.dumps(found), encoding="utf-8")
