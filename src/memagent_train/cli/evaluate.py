"""`memagent-train eval`: a policy on held-out samples, or on training samples to imitate."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memagent.cli import options as opt
from memagent.cli.options import Display, chosen_display
from memagent.errors import ConfigError
from memagent.terminal import on_terminal
from memagent_train.cli import options
from memagent_train.cli.going import Going, training

if TYPE_CHECKING:
    from memagent_train.config.sections import EvaluationSettings
    from memagent_train.rollouts import Rollout
    from memagent_train.runs.evaluate import Cell

SETTINGS = "config.toml"


def evaluate(
    target: Annotated[
        str,
        typer.Argument(
            metavar="POLICY",
            help="A run's, checkpoint's or model's folder, or a hub name.",
        ),
    ],
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Settings of data, agent, reward and evaluation. Default: the run's.",
            rich_help_panel=options.SETTINGS,
            show_default=False,
        ),
    ] = None,
    settings: options.Set = None,
    lengths: Annotated[
        str | None,
        typer.Option(
            metavar="L,L,...",
            help="Sample lengths in tokens, such as 8k,...,64k, or natural for unchanged samples. Default: the "
            "settings' evaluation.lengths.",
            show_default=False,
        ),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--samples",
            metavar="N",
            min=1,
            help="Samples per length. Default: the settings' evaluation.n.",
            show_default=False,
        ),
    ] = None,
    train: Annotated[
        bool,
        typer.Option(
            "--train",
            help="Training samples in place of held-out ones, to imitate: rejection sampling.",
        ),
    ] = False,
    checkpoint: options.Checkpoint = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Output file: JSON lines, one per sample; .parquet for all conversations, which sft can imitate.",
            show_default=False,
        ),
    ] = None,
    display: opt.DisplayOption = None,
) -> None:
    """Evaluate a policy on held-out samples: means with 95% intervals."""
    going = Going(chosen_display(display))
    with training(going):
        options.check_file(out, "--out")
        from memagent.errors import ConfigError
        from memagent_train.agents import TOOLS
        from memagent_train.config.toml import read_toml
        from memagent_train.config.train import load_train

        file = config or Path(target) / SETTINGS
        if config is None and not file.is_file():
            raise ConfigError(
                f"{target!r} is not a run's folder: give settings to evaluate it with (--config)"
            )
        # The prompts as trained: the file that the settings name may have changed since.
        wording = Path(target) / "prompts.toml"
        overrides: list[str] = []
        if config is None and wording.is_file():
            plays = read_toml(file).get("agent", {}).get("use") == TOOLS
            overrides.append(f"agent.{'tools.' if plays else ''}prompts=./{wording.name}")
        read = load_train(file, [*overrides, *(settings or ())])
        from memagent_train.runs.evaluate import evaluate as answer
        from memagent_train.runs.target import target_of

        columns = _columns(lengths, read.evaluation)
        n = samples or read.evaluation.n
        policy = target_of(target, checkpoint, read.model)
        counter = _Counter(visible=going.display is Display.FULL and on_terminal(sys.stderr))
        cells = answer(
            policy,
            read,
            lengths=columns,
            n=n,
            train=train,
            out=out,
            on_begin=counter.begin,
            on_done=counter,
        )
        _show(policy.name, "training" if train else "held-out", cells, going)


def _columns(lengths: str | None, evaluation: EvaluationSettings) -> tuple[int, ...]:
    if lengths is None:
        return evaluation.columns or (0,)
    if lengths.strip() == "natural":
        return (0,)
    from pydantic import ValidationError

    from memagent.texts import describe_problem

    try:
        return type(evaluation).model_validate({"lengths": lengths}).lengths
    except ValidationError as error:
        raise ConfigError(f"--{describe_problem(error)}") from error


class _Counter:
    """Counts answered samples on one line of a terminal."""

    def __init__(self, *, visible: bool) -> None:
        self._done, self._total, self._visible = 0, 0, visible

    def begin(self, total: int) -> None:
        self._total = total

    def __call__(self, rollout: Rollout) -> None:
        self._done += 1
        if self._visible:
            end = "\r" if self._done < self._total else "\r\x1b[K"
            print(
                f"{self._done:,} of {self._total:,} samples", end=end, file=sys.stderr, flush=True
            )


def _show(policy: str, samples: str, results: list[Cell], going: Going) -> None:
    from memagent_train.runs.evaluation import as_figures
    from memagent_train.runs.progress import describe_mean, length_name

    if going.display is Display.JSON:
        cells = [
            {"task": cell.task, "length": cell.length} | as_figures(cell.estimate)
            for cell in results
        ]
        going.tell({"policy": policy, "samples": samples, "cells": cells})
    if not going.for_people:
        return
    rows = [("policy", policy)]
    if samples != "held-out":
        rows.append(("samples", samples))
    for cell in results:
        mean = describe_mean(as_figures(cell.estimate), n=f"  n={cell.estimate.n}")
        rows.append((f"{cell.task} at {length_name(cell.length)}", mean))
    going.paper.table(rows)
