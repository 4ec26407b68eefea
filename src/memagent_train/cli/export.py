"""`memagent-train export`: a policy to serve elsewhere, trajectories for other trainers."""

from pathlib import Path
from typing import Annotated

import typer

from memagent.cli import options as opt
from memagent.cli.options import Display, chosen_display
from memagent_train.cli import options
from memagent_train.cli.going import Going, training


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="New folder for the weights, tokenizer, prompts, and a README that says how to use them.",
            show_default=False,
        ),
    ] = None,
    checkpoint: options.Checkpoint = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            metavar="DTYPE",
            help="Type of the weights: float32, bfloat16 or float16. Default: the run's.",
            show_default=False,
        ),
    ] = None,
    adapter: Annotated[
        bool,
        typer.Option("--adapter", help="Write only the LoRA adapter, unmerged."),
    ] = False,
    trajectories: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the logged rollouts as JSON, one conversation per line.",
            show_default=False,
        ),
    ] = None,
    display: opt.DisplayOption = None,
) -> None:
    """Write a trained policy that transformers, vLLM or SGLang can load, and its trajectories for other trainers."""
    outcome = Going(chosen_display(display))
    with training(outcome):
        options.check_file(trajectories, "--trajectories")
        from memagent.errors import ConfigError

        if out is None and trajectories is None:
            raise ConfigError("nothing to write: give --out DIR, --trajectories FILE, or both")
        weight_options = {
            "--checkpoint": checkpoint,
            "--dtype": dtype,
            "--adapter": adapter or None,
        }
        given = [name for name, value in weight_options.items() if value is not None]
        if out is None and given:
            raise ConfigError(
                f"{', '.join(given)} is about weights, and only --out DIR writes them: give it, or leave {given[0]} out"
            )
        from memagent_train.runs.export import export as write
        from memagent_train.runs.export import export_adapter, export_trajectories

        facts: dict[str, str | int] = {}
        rows: list[tuple[str, str]] = []
        if out is not None:
            result = (export_adapter if adapter else write)(run, out, step=checkpoint, dtype=dtype)
            facts |= {"out": str(result.out), "step": result.step}
            rows.append(("exported", f"step {result.step} to {result.out} (see its README.md)"))
        if trajectories is not None:
            count = export_trajectories(run, trajectories)
            facts |= {"trajectories": str(trajectories), "conversations": count}
            rows.append(("trajectories", f"{count:,} conversations to {trajectories}"))
        if outcome.display is Display.JSON:
            outcome.tell(facts)
        elif outcome.for_people:
            outcome.paper.table(rows)
