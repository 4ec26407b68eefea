"""Past calls, recorded by code, so that the model doesn't read or do things twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from memagent.messages import ToolCall
from memagent.prompts import Neutraliser
from memagent.session.context.archive import handle_of
from memagent.session.context.turns import Turn
from memagent.texts import read_object
from memagent.tokens.base import TokenCounter

ARGUMENT_CHARS = 120
"""Longer arguments are cut: they are only meant to distinguish calls."""
RESULT_CHARS = 60


@dataclass(frozen=True)
class Ledger:
    """The calls that left the context, oldest first."""

    lines: Mapping[str, str] = field(default_factory=dict[str, str])
    """Each call (`read`, `wrote`, `done` or `pending: tool(arguments)`, a NUL and a hash of the arguments), with the
    beginning of its result if it is listed as `done`."""
    more: int = 0
    """Number of calls too old to be listed."""

    def with_turns(
        self,
        turns: Iterable[Turn],
        idempotent: frozenset[str],
        writes: frozenset[str] = frozenset(),
    ) -> Ledger:
        """Returns the ledger after turns have left the context.

        Successful calls of idempotent tools are `read`, or `wrote` for `writes`; calls without a result are `pending`.
        """
        lines = dict(self.lines)
        for turn in turns:
            for call, result in turn.steps:
                name = f"{describe(call)}\0{handle_of(normalise_json(call.arguments))}"
                outcome = ""
                if result is None:
                    kind = "pending"
                elif call.name in idempotent and result.ok:
                    kind = "wrote" if call.name in writes else "read"
                else:
                    kind, outcome = "done", _short(result.text, RESULT_CHARS)
                for old in ("pending", kind):
                    lines.pop(f"{old}: {name}", None)  # the newest comes last
                lines[f"{kind}: {name}"] = f" -> {outcome}" if outcome else ""
        return Ledger(lines, self.more)

    def within(self, limit: int, counter: TokenCounter, neutraliser: Neutraliser) -> Ledger:
        """Returns the ledger with as many of its newest calls as fit `limit` tokens. Blocks."""
        ledger = self
        while ledger.lines and counter.count(ledger.text(neutraliser)) > limit:
            # Half a dozen counts for any length; at most an eighth too much is dropped.
            drop_count = max(1, len(ledger.lines) // 8)
            ledger = Ledger(dict(list(ledger.lines.items())[drop_count:]), ledger.more + drop_count)
        return ledger

    def text(self, neutraliser: Neutraliser) -> str:
        """Returns the lines, neutralised; empty if there are none."""
        lines = [call.partition("\0")[0] + outcome for call, outcome in self.lines.items()]
        if self.more:
            lines.insert(0, f"and {self.more} more before these")
        return neutraliser.safe("\n".join(lines))


def describe(call: ToolCall) -> str:
    """Returns `tool(arguments)`, equal for equivalent arguments. Long texts keep head and tail: a path may be last."""
    args = normalise_json(call.arguments, lambda t: t if len(t) < 44 else f"{t[:20]}...{t[-20:]}")
    return f"{call.name}({_short(args, ARGUMENT_CHARS)})"


def normalise_json(arguments: str, change: Callable[[str], str] = str) -> str:
    """Returns arguments in canonical form, `change` applied to texts; unchanged if they aren't a JSON object."""
    values = read_object(arguments, change)
    return arguments if values is None else json.dumps(values, sort_keys=True, ensure_ascii=False)


def _short(text: str, chars: int) -> str:
    text = " ".join(text[: 4 * chars].split())
    return text if len(text) <= chars else text[:chars].rstrip() + "..."
