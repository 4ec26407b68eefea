"""`memagent-bench score`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from memagent.cli import options as opt
from memagent.cli.exits import Outcome, report_errors
from memagent.cli.options import Display, chosen_display
from memagent.terminal import say


def score(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="JSON lines with prediction (or pred) and outputs, as in RULER."
        ),
    ],
    scorer: Annotated[
        str | None,
        opt.option(
            "string_match_all, string_match_part, sub_exact_match, exact_match, f1, number_match, ... "
            "Default: the line's, else its task's.",
            "NAME",
        ),
    ] = None,
    display: opt.DisplayOption = None,
) -> None:
    """Score predictions made elsewhere.

    A line's task is its field task, or else the file's name. A null prediction counts as 0 and is reported separately.
    """
    outcome = Outcome(chosen_display(display))
    with report_errors(outcome):
        from memagent_bench.predictions import lines_of, score_predictions

        rows = score_predictions(files, scorer)
        pooled = list(dict.fromkeys(row.task for row in rows if len(row.folders) > 1))
        if pooled:
            say(
                "caution:",
                f"predictions of {', '.join(pooled)} are from several folders, and are scored together: score each "
                f"folder in a command of its own to compare them",
                style="yellow",
            )
        if outcome.display is Display.JSON:
            outcome.tell({"scores": [asdict(row) for row in rows]})
        elif outcome.display is Display.NONE:
            for row in rows:
                print(row.task, row.length or "", row.estimate.mean, row.estimate.n, sep="\t")
        else:
            print("\n".join(lines_of(rows)))
