"""`memagent-train grpo`, and `config`, which shows what grpo would do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from memagent.cli import options as opt
from memagent.cli.exits import Outcome, report_errors
from memagent.cli.options import Display
from memagent.terminal import Paper
from memagent_train.cli import options
from memagent_train.cli.going import Going, display_of, training

if TYPE_CHECKING:
    from memagent_train.config.train import TrainConfig
    from memagent_train.runs.grpo import TrainingResult


NOT_REHEARSED = "not checked: the agent is your own, or the tokenizer isn't on this machine"


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
    chosen = display_of(display)
    going = Going(chosen)
    with training(going):
        from memagent_train.config.train import load_train

        read = load_train(config, settings or ())
        if dry_run:
            _show_plan(read, chosen)
            going.told = True
            return
        from memagent_train.cli.watch import watcher
        from memagent_train.runs.grpo import train
        from memagent_train.runs.progress import Board, SilentWatcher

        def watch(board: Board) -> SilentWatcher:
            going.begun = True
            return watcher(chosen, board, f"grpo · {read.model.path} · {out}")

        trained = train(read, out, watch=watch)
        going.told = True
        _show_trained(trained, chosen)


def config(
    config: options.Config,
    settings: options.Set = None,
    display: opt.DisplayOption = None,
) -> None:
    """Print the resolved settings (as TOML), the cost of a step, and the memory it needs."""
    chosen = display_of(display)
    outcome = Outcome(chosen)
    with report_errors(outcome):
        from memagent_train.config.train import load_train

        _show_plan(load_train(config, settings or ()), chosen)
        outcome.told = True


def _show_plan(read: TrainConfig, chosen: Display) -> None:
    import tomli_w

    from memagent_train.config.train import dump_config
    from memagent_train.runs.rehearsal import rehearse
    from memagent_train.runs.step_cost import step_cost

    lines = step_cost(read).lines()
    lines.append(("first prompt", "fits the window" if rehearse(read) else NOT_REHEARSED))
    if chosen is Display.JSON:
        print(json.dumps({"settings": dump_config(read), "plan": dict(lines)}, ensure_ascii=False))
        return
    print(tomli_w.dumps(dump_config(read)))
    Paper(colour=chosen is Display.FULL).table(lines)


def _show_trained(trained: TrainingResult, chosen: Display) -> None:
    if chosen is Display.JSON:
        facts = {
            "out": str(trained.out),
            "steps": trained.steps,
            "reward": trained.reward,
            "without_signal": trained.without_signal,
            "evaluations": trained.evaluations,
        }
        print(json.dumps(facts, ensure_ascii=False))
        return
    if chosen is Display.NONE:
        return
    from memagent_train.runs.progress import length_name

    paper = Paper(colour=chosen is Display.FULL)
    reward = "none" if trained.reward is None else f"{trained.reward:.3f}"
    rows = [("trained", f"{trained.steps:,} steps, reward of the last {reward}")]
    if trained.without_signal:
        learnt_nothing = f"{trained.without_signal:,} of these steps: no group had a signal"
        rows.append(("no gradient", learnt_nothing))
    for step, lengths in trained.evaluations.items():
        cells = [
            f"{length_name(int(length))} {cell['mean']:.3f} [{cell['low']:.3f}, {cell['high']:.3f}]"
            for length, cell in lengths.items()
        ]
        rows.append((f"after {step:,}", "  ".join(cells)))
    rows.append(("export", f"memagent-train export {trained.out} --out {_sibling(trained.out)}"))
    paper.table(rows)


def _sibling(out: Path) -> Path:
    return out.with_name(out.name + "-export")
