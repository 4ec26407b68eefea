"""The arms of the experiment, and how each is trained and measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from memagent_draws.material import DROP, GAMES, GRPO, SFT, WHOLE, WIDE, WINDOW, lay_out, record
from memagent_train.config.sft import load_sft
from memagent_train.config.train import load_train
from memagent_train.runs.evaluate import evaluate
from memagent_train.runs.export import export
from memagent_train.runs.grpo import train
from memagent_train.runs.progress import PlainWatcher
from memagent_train.runs.sft import warm_start
from memagent_train.runs.target import Target

WARM, MORE = "warm", "more"
LONG = "long"
"""Folder of the arm with a wide window: its material, and the start of its own."""
ANOTHER = 10**3
"""Added to a seed: games that the warm start didn't imitate."""


class Arm(NamedTuple):
    """One way to continue from the start."""

    says: str
    settings: tuple[str, ...] = ()
    """What differs from the file."""
    file: str = GRPO
    wide: bool = False
    """Whether its window holds a whole game."""


ARMS = {
    "supo": Arm("SUPO"),
    "unmasked": Arm("SUPO without the overlong mask", ("algorithm.overlong_mask=false",)),
    "frozen": Arm("summaries frozen", ("algorithm.weights={summary=0}",)),
    "summaries": Arm("summaries alone", ("algorithm.weights={act=0}",)),
    "drop": Arm("oldest draws dropped", file=DROP),
    MORE: Arm("more imitation"),
    "whole": Arm("whole history, window of 1,024", WHOLE, wide=True),
    # Where every session is overlong a mask would leave nothing to train.
    "none": Arm(
        "whole history, same window",
        ("agent.tools.max_summaries=0", "algorithm.overlong_mask=false"),
    ),
}
"""By name."""
FIGURES = "figures.json"
"""In an arm's folder: mean, interval and n, before and after."""


def perform(folder: Path, name: str, *, seed: int) -> None:
    """Trains one arm from its start and measures it, or resumes; does nothing if it is measured.

    Args:
        folder: of all arms of a seed.
        name: of the arm.
        seed: of the training and its games.
    """
    if (folder / name / FIGURES).exists():
        return
    arm = ARMS[name]
    base = folder / LONG if arm.wide else folder
    _prepare(base, seed=seed, wide=arm.wide)
    found = _imitate(folder, seed) if name == MORE else _reinforce(base, folder / name, arm, seed)
    (folder / name / FIGURES).write_text(json.dumps(found), encoding="utf-8")


def _prepare(base: Path, *, seed: int, wide: bool) -> None:
    """Makes the start: the material and a warm start on it, exported to `warm`."""
    if (base / WARM).exists():
        return
    # As many tokens: a wide row has the four conversations of a game in one.
    rows = ("traces.window=1024", "batch.rows=16") if wide else ()
    if not (base / SFT).exists():
        lay_out(base, seed=seed, window=WIDE if wide else WINDOW, settings=WHOLE if wide else ())
    config = load_sft(base / SFT, [f"optimizer.seed={seed}", *rows])
    warm_start(config, base / "sft", watch=PlainWatcher)
    export(base / "sft", base / WARM)


def _reinforce(base: Path, out: Path, arm: Arm, seed: int) -> dict[str, Any]:
    """Evaluations by step: mean reward, ends of the 95% interval, n."""
    given = [f"optimizer.seed={seed}", f"data.seed={seed}", *arm.settings]
    config = load_train(base / arm.file, given)
    trained = train(config, out, watch=PlainWatcher)
    (length,) = map(str, config.evaluation.lengths)
    return {str(step): found[length] for step, found in trained.evaluations.items()}


def _imitate(folder: Path, seed: int) -> dict[str, Any]:
    """Continues to imitate, other games of the same expert, and evaluates as `_reinforce` does."""
    traces = folder / "more.parquet"
    if not traces.exists():
        record(folder, traces.name, seed=ANOTHER + seed, games=GAMES, window=WINDOW)
    given = [f"model.path={folder / WARM}", f"optimizer.seed={ANOTHER + seed}"]
    given.append(f'traces.source=[{{kind="rollouts",path="{traces}",min_reward=0.0}}]')
    warm_start(load_sft(folder / SFT, given), folder / MORE, watch=PlainWatcher)
    exported = folder / MORE / "exported"
    export(folder / MORE, exported)
    found: dict[str, Any] = {}
    for step, path in enumerate((folder / WARM, exported)):
        config = load_train(
            folder / GRPO,
            [f"optimizer.seed={seed}", f"data.seed={seed}", f"model.path={path}"],
        )
        settings = config.evaluation
        (cell,) = evaluate(Target(config.model), config, lengths=settings.columns, n=settings.n)
        one = cell.estimate
        found[str(step)] = {"mean": one.mean, "low": one.low, "high": one.high, "n": one.n}
    return found
