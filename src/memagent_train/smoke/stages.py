"""The stages of a smoke training: what `memagent-train sft`, `export`, `grpo` and `eval` do, one after the other."""

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memagent.terminal import duration
from memagent_train.config.sft import load_sft
from memagent_train.config.train import TrainConfig, load_train
from memagent_train.runs.evaluate import evaluate
from memagent_train.runs.export import export
from memagent_train.runs.grpo import train
from memagent_train.runs.progress import PlainWatcher
from memagent_train.runs.sft import warm_start
from memagent_train.runs.target import run_target
from memagent_train.smoke.findings import Findings, Reward
from memagent_train.smoke.folder import GRPO, SFT, lay_out

Say = Callable[[str], None]
RANDOM = ("reward.use=memagent_train.smoke.control:toss", "evaluation.lengths=[]")
"""Settings of the control. It isn't evaluated during training, which would use its random rewards."""


def smoke(folder: Path, *, seed: int, say: Say) -> Findings:
    """Trains a tiny model, and a control.

    Args:
        folder: a new or empty folder. Afterwards you can inspect it, and continue training by hand.
        seed: seed of everything.
        say: prints progress, a line at a time.

    Raises:
        ConfigError: the folder is not empty.
        MemagentError: a stage failed.
    """
    with _stage("a forgetful expert reads documents", say):
        lay_out(folder, seed=seed)
    return learn(folder, seed=seed, say=say)


def learn(folder: Path, *, seed: int, say: Say) -> Findings:
    """Runs the stages after the first, with the settings in a prepared folder; see `smoke`."""
    with _stage("warm start: the policy imitates the expert", say):
        warm_start(load_sft(folder / SFT, [f"optimizer.seed={seed}"]), folder / "sft")
        export(folder / "sft", folder / "warm")
    seeded = [f"optimizer.seed={seed}", f"data.seed={seed}"]
    config = load_train(folder / GRPO, seeded)
    with _stage("GRPO: it learns from rewards", say):
        trained = train(config, folder / "grpo", watch=PlainWatcher)
    with _stage("control: the same GRPO with random rewards", say):
        train(load_train(folder / GRPO, [*seeded, *RANDOM]), folder / "control")
    with _stage("the control answers the held-out questions", say):
        control = _control(folder, config)
    before, after = trained.evaluations[0], trained.evaluations[trained.steps]
    short, long = map(str, config.evaluation.lengths)
    return Findings(
        before=_reward(before[short]),
        after=_reward(after[short]),
        control=control,
        longer_before=_reward(before[long]),
        longer_after=_reward(after[long]),
    )


def _control(folder: Path, config: TrainConfig) -> Reward:
    """Returns the reward of the control's policy, with the settings of the training that it is compared with."""
    length, n = config.evaluation.lengths[0], config.evaluation.n
    cells = evaluate(run_target(folder / "control"), config, lengths=[length], n=n)
    estimate = cells[0].estimate
    return Reward(estimate.mean, estimate.low, estimate.high)


def _reward(evaluated: Mapping[str, Any]) -> Reward:
    return Reward(evaluated["mean"], evaluated["low"], evaluated["high"])


@contextmanager
def _stage(name: str, say: Say) -> Generator[None]:
    say(f"== {name}")
    begun = time.monotonic()
    yield
    say(f"   {duration(time.monotonic() - begun)}")
