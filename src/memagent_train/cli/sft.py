"""`memagent-train sft`: a warm start on traces."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from memagent.cli import options as opt
from memagent.cli.options import Display
from memagent.terminal import Paper
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
    chosen = display_of(display)
    going = Going(chosen)
    with training(going):
        from memagent_train.config.sft import load_sft

        read = load_sft(config, settings or ())
        if dry_run:
            _show_settings(read, chosen)
            going.told = True
            return
        from memagent_train.cli.watch import watcher
        from memagent_train.runs.progress import Board, SilentWatcher
        from memagent_train.runs.sft import warm_start

        def watch(board: Board) -> SilentWatcher:
            going.begun = True
            return watcher(chosen, board, f"sft · {read.model.path} · {out}")

        done = warm_start(read, out, watch=watch)
        going.told = True
        facts = {
            "out": str(done.out),
            "steps": done.steps,
            "conversations": done.rows,
            "dropped": done.dropped,
            "loss": done.loss,
        }
        if chosen is Display.JSON:
            print(json.dumps(facts, ensure_ascii=False))
        elif chosen is not Display.NONE:
            loss = "none" if done.loss is None else f"{done.loss:.4f}"
            learnt = f"{done.rows:,} conversations, {done.dropped:,} overlong ones dropped"
            rows = [("traces", learnt), ("trained", f"{done.steps:,} steps, last loss {loss}")]
            Paper(colour=chosen is Display.FULL).table(rows)


def _show_settings(read: SftConfig, chosen: Display) -> None:
    import tomli_w

    plain = read.model_dump(mode="json", exclude_none=True)
    if chosen is Display.JSON:
        print(json.dumps({"settings": plain}, ensure_ascii=False))
    else:
        print(tomli_w.dumps(plain))
