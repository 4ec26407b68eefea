"""`memagent probe`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from memagent.cli import options as opt
from memagent.cli.exits import Outcome, reported
from memagent.cli.options import Display
from memagent.cli.session import drive
from memagent.cli.setup import chosen_display
from memagent.errors import ModelError
from memagent.terminal import Paper

if TYPE_CHECKING:
    from memagent.models.probe import Probe

COUNTS = {
    "tokenizer": "the tokenizer on this machine",
    "server": "the server, which is asked for every count",
    "both": "texts by the tokenizer on this machine, conversations by the server",
    "bytes": "nobody: UTF-8 bytes, an upper bound that costs about 4x the calls (--tokenizer helps)",
}


def probe(
    model: opt.Model = None,
    base_url: opt.BaseUrl = None,
    tokenizer: opt.Tokenizer = None,
    display: opt.DisplayOption = None,
) -> None:
    """Say what a server is and can do: its kind, window, token counts, and one test call.

    API keys come from MEMAGENT_API_KEY or OPENAI_API_KEY.
    """
    shown = chosen_display(display)
    with reported(Outcome(json=shown is Display.JSON)):
        from memagent.models.probe import probe as find_out
        from memagent.models.spec import open_model

        served = open_model(model, base_url=base_url, tokenizer=tokenizer)

        async def work() -> list[Probe | ModelError]:
            try:
                return await find_out(served)
            finally:
                await served.aclose()

        found = drive(work())
        failed = [one for one in found if isinstance(one, ModelError)]
        known = [one for one in found if not isinstance(one, ModelError)]
        if shown is Display.JSON:
            print(json.dumps([one.model_dump(mode="json") for one in known]))
        for place, one in enumerate(known if shown is not Display.JSON else []):
            if shown is Display.NONE:
                print(one.dialect, one.version or "-", one.window or "-", sep="\t")
                continue
            if place:
                print()
            Paper(colour=shown is Display.FULL).table(_rows(one))
        for one in failed[:-1]:
            print(f"error: {one}", file=sys.stderr)
        if failed:
            raise failed[-1]


def _rows(found: Probe) -> list[tuple[str, str]]:
    call = found.call
    serves = "it keeps no list"
    if found.serves is not None:
        others = len(found.serves) - 1
        serves = f"{others} more served" if others > 0 else "nothing else served"
    can = {
        "token ids with log-probabilities": found.token_ids,
        "thinking switch": found.thinking,
        "replies that match a pattern": found.pattern,
    }
    first = (
        "no text came" if call.first_piece is None else f"first text after {call.first_piece:.2f} s"
    )
    agrees = "as counted" if call.counted == call.prompt_tokens else f"counted {call.counted}"
    said = (
        f"{call.prompt_tokens} prompt tokens ({agrees}), {call.completion_tokens} generated, "
        f"{first}, all in {call.seconds:.2f} s"
    )
    return [
        ("server", found.base_url),
        ("kind", f"{found.dialect} {found.version or '(version unknown)'}"),
        ("model", f"{found.model} ({serves})"),
        (
            "window",
            "unknown: give --window" if found.window is None else f"{found.window:,} tokens",
        ),
        ("counted by", f"{COUNTS[found.counts]} ({found.counter})"),
        ("can", ", ".join(name for name, there in can.items() if there) or "what every server can"),
        ("test call", said),
        ("it said", repr(call.text)),
    ]
