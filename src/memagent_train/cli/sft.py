"""`memagent-train sft`: a warm start on traces."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from memagent.cli import options as opt
from memagent.cli.options import Display
from memagent_train.cli import options
from memagent_train.cli.going import Going, display_of, training

if TYPE_CHECKING:
    from memagent_train.config.sft import SftConfig


def sft(
    config: options.Config,
    out: options.Out,
    settings: options.Set = None,
    dry_run: options.DryRun = False,
    display: opt.DisplayOption = None,
) -> None:
    """Imitate conversations, as a starting point for reinforcement learning. Repeat the command to resume a run."""
    going = Going(display_of(display))
    with training(going):
        from memagent_train.config.sft import load_sft

        read = load_sft(config, settings or ())
        if dry_run:
            _show_settings(read, going)
            return
        from memagent_train.cli.watch import watcher
        from memagent_train.runs.sft import warm_start

        watch = partial(watcher, going, f"sft · {read.model.path} · {out}")
        result = warm_start(read, out, watch=watch)
        facts = {
            "out": str(result.out),
            "steps": result.steps,
            "conversations": result.rows,
            "dropped": result.dropped,
            "loss": result.loss,
        }
        if going.display is Display.JSON:
            going.tell(facts)
        elif going.for_people:
            loss = "none" if result.loss is None else f"{result.loss:.4f}"
            learnt = f"{result.rows:,} conversations, {result.dropped:,} overlong ones dropped"
            rows = [("traces", learnt), ("trained", f"{result.steps:,} steps, last loss {loss}")]
            going.paper.table(rows)


def _show_settings(read: SftConfig, going: Going) -> None:
    import tomli_w

    plain = read.model_dump(mode="json", exclude_none=True)
    if going.display is Display.JSON:
        going.tell({"settings": plain})
    else:
        print(tomli_w.dumps(plain))
