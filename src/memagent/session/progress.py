"""Detects sessions that learn nothing new: a model that forgets may read the same texts again and again."""

from collections.abc import Mapping
from typing import Any

from memagent.messages import ToolCall
from memagent.session.context.ledger import normalise_json
from memagent.texts import digest
from memagent.tools import ToolOutput

TELL_AFTER, STOP_AFTER = 2, 4
"""Contexts in a row without anything new before a reminder, then a stop; one may be spent checking what was read."""
CALLS = 4096
"""Number of calls that are remembered: repeated ones come back much sooner."""
DIGITS = 12
"""Hexadecimal digits that identify a call and its result."""
REPEATED = (
    "For some time every call was one that you made before, with the same result. Use what you have: answer, or "
    "do something that you have not done yet."
)


class Progress:
    """Counts contexts in a row (each up to a compaction) whose calls had all been made before with the same results.

    Args:
        stopped: how often the message was stopped for this: each time, `TELL_AFTER` more such contexts are allowed.
        saved: what `dump` returned.
    """

    def __init__(self, stopped: int, saved: Mapping[str, Any] | None = None) -> None:
        self._most = STOP_AFTER + stopped * TELL_AFTER
        text, counts = (saved["seen"], saved["counts"]) if saved else ("", (0, 0, 0, False))
        self._seen = dict.fromkeys(text[at : at + DIGITS] for at in range(0, len(text), DIGITS))
        self._calls, self._new, self._idle, self._told = counts

    def dump(self) -> dict[str, Any]:
        """Returns the state as JSON values."""
        counts = (self._calls, self._new, self._idle, self._told)
        return {"seen": "".join(self._seen), "counts": counts}

    def note(self, call: ToolCall, output: ToolOutput) -> None:
        """Records a call with its result, and whether they are new."""
        content = "\0".join((call.name, normalise_json(call.arguments), output.text))
        key = digest(content, DIGITS // 2)
        self._calls, self._new = self._calls + 1, self._new + (key not in self._seen)
        self._seen.pop(key, None)
        self._seen[key] = None
        if len(self._seen) > CALLS:
            del self._seen[next(iter(self._seen))]

    def end_context(self) -> str | None:
        """Starts the next context; returns what to tell the model, once, or None."""
        self._idle = 0 if self._new else self._idle + bool(self._calls)
        self._calls = self._new = 0
        if self._idle < TELL_AFTER or self._told:
            return None
        self._told = True
        return REPEATED

    @property
    def is_over(self) -> bool:
        """Whether the session is going round in circles."""
        return self._idle >= self._most
