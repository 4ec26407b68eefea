"""`memagent probe`."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memagent.cli import options as opt
from memagent.cli.exits import report_errors
from memagent.cli.fetch import ensure_fetched
from memagent.cli.options import Display
from memagent.cli.session import drive
from memagent.cli.setup import ServerOptions
from memagent.errors import ModelError
from memagent.terminal import say

if TYPE_CHECKING:
    from memagent.models.probe import Probe as Found

COUNTS = {
    "tokenizer": "the tokenizer on this machine",
    "server": "the server, which is asked for every count",
    "both": "texts by the tokenizer on this machine, conversations by the server",
    "bytes": "UTF-8 bytes, an upper bound that costs about 4x the calls (--tokenizer avoids that)",
}


@dataclass(frozen=True, kw_only=True)
class Probe(ServerOptions):
    """The options of `probe`."""

    model: opt.Model = None
    tokenizer: opt.Tokenizer = None


def probe(given: Probe) -> None:
    """Show what a server is and can do: its kind, window, token counts, and one test call.

    API keys come from MEMAGENT_API_KEY or OPENAI_API_KEY.
    """
    with report_errors(given.outcome()) as outcome:
        from memagent.models.probe import probe as find_out
        from memagent.models.spec import open_model

        served = open_model(ensure_fetched(given.model), **given.server())

        async def work() -> list[Found | ModelError]:
            async with aclosing(served):
                return await find_out(served)

        results = drive(work())
        failures = [result for result in results if isinstance(result, ModelError)]
        servers = [result for result in results if not isinstance(result, ModelError)]
        if outcome.display is Display.JSON:
            outcome.tell([server.model_dump(mode="json") for server in servers])
        for place, server in enumerate(servers):
            if outcome.display is Display.NONE:
                print(server.dialect, server.version or "-", server.window or "-", sep="\t")
            elif outcome.for_people:
                if place:
                    print()
                outcome.paper.table(_rows(server))
        for failure in failures[:-1]:
            say("error:", str(failure), style="bold red")
        if failures:
            raise failures[-1]


def _rows(server: Found) -> list[tuple[str, str]]:
    call, model_note = server.call, "the server lists no models"
    if server.serves is not None:
        others = len(server.serves) - 1
        model_note = f"{others} more served" if others > 0 else "nothing else served"
    abilities = {
        "token ids with log-probabilities": server.token_ids,
        "thinking switch": server.thinking,
        "replies that match a pattern": server.pattern,
    }
    agreement = "as counted" if call.counted == call.prompt_tokens else f"counted {call.counted}"
    speculation = server.speculation or "not reported"
    window = "not reported: give --window where it is used"
    if server.window:
        window = f"{server.window:,} tokens"
    tokens = f"{call.prompt_tokens} prompt tokens ({agreement}), {call.completion_tokens} generated"
    if call.prompt_tokens <= 0:
        tokens = f"usage not reported, {call.counted} prompt tokens counted"
    return [
        ("server", server.base_url),
        ("kind", f"{server.dialect} {server.version or '(version unknown)'}"),
        ("model", f"{server.model} ({model_note})"),
        ("window", window),
        ("counted by", f"{COUNTS[server.counts]} ({server.counter})"),
        ("can", ", ".join(name for name, is_able in abilities.items() if is_able) or "the basics"),
        ("speculation", "\n".join(filter(None, (speculation, server.advice)))),
        ("test call", f"{tokens}, {call.seconds:.2f} s"),
        ("reply", repr(call.text)),
    ]
