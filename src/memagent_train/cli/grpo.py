"""`memagent-train grpo`, and `config`, which shows what grpo would do."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from memagent.cli import options as opt
from memagent.cli.exits import Outcome, report_errors
from memagent.cli.options import Display
from memagent_train.cli import options
from memagent_train.cli.going import Going, display_of, training

if TYPE_CHECKING:
    from memagent_train.config.train import TrainConfig
    from memagent_train.runs.grpo import TrainingResult


def grpo(
    config: options.Config,
    out: options.Out,
    settings: options.Set = None,
    dry_run: options.DryRun = False,
    display: opt.DisplayOption = None,
) -> None:
    """Train by reinforcement learning. Repeat the command to resume a run.

    With several GPUs: [b]accelerate launch --config_file FILE -m memagent_train grpo CONFIG --out DIR[/].
    """
    going = Going(display_of(display))
    with training(going):
        from memagent_train.config.train import load_train

        read = load_train(config, settings or ())
        if dry_run:
            _show_plan(read, going, out)
            return
        from memagent_train.cli.watch import watcher
        from memagent_train.runs.grpo import train

        watch = partial(watcher, going, f"grpo · {read.model.path} · {out}")
        _show_trained(train(read, out, watch=watch), going)


def config(
    config: options.Config,
    settings: options.Set = None,
    display: opt.DisplayOption = None,
) -> None:
    """Print the resolved settings (as TOML), the cost of a step, and the memory it needs."""
    outcome = Outcome(display_of(display))
    with report_errors(outcome):
        from memagent_train.config.train import load_train

        _show_plan(load_train(config, settings or ()), outcome)


def _show_plan(read: TrainConfig, outcome: Outcome, out: Path | None = None) -> None:
    import tomli_w

    from memagent_train.config.train import FREE, TrainConfig, dump_config
    from memagent_train.runs.folder import check_run
    from memagent_train.runs.rehearsal import rehearse_offline
    from memagent_train.runs.step_cost import step_cost

    lines = step_cost(read).lines()
    lines.append(("first prompt", rehearse_offline(read)))
    if out is not None:
        check_run(out, dump_config(read), free=FREE, kind=TrainConfig)
    if outcome.display is Display.JSON:
        outcome.tell({"settings": dump_config(read), "plan": dict(lines)})
        return
    print(tomli_w.dumps(dump_config(read)))
    outcome.paper.table(lines)


def _show_trained(trained: TrainingResult, outcome: Outcome) -> None:
    if outcome.display is Display.JSON:
        facts = {
            "out": str(trained.out),
            "steps": trained.steps,
            "reward": trained.reward,
            "without_signal": trained.without_signal,
            "evaluations": trained.evaluations,
        }
        outcome.tell(facts)
    if not outcome.for_people:
        return
    from memagent_train.runs.progress import describe_means

    reward = "none" if trained.reward is None else f"{trained.reward:.3f}"
    rows = [("trained", f"{trained.steps:,} steps, reward of the last {reward}")]
    if trained.without_signal:
        learnt_nothing = f"{trained.without_signal:,} of these steps: no group had a signal"
        rows.append(("no gradient", learnt_nothing))
    for step, means in trained.evaluations.items():
        rows.append((f"after {step:,}", describe_means(means)))
    rows.append(("export", f"memagent-train export {trained.out} --out {_sibling(trained.out)}"))
    outcome.paper.table(rows)


def _sibling(out: Path) -> Path:
    return out.with_name(out.name + "-export")
