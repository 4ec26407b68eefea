"""Whether a session still learns anything: a model that forgets may read the same again and again."""

from collections.abc import Mapping
from typing import Any

from memagent.messages import ToolCall
from memagent.session.context.ledger import normalise_json
from memagent.texts import digest
from memagent.tools import ToolOutput

TELL_AFTER, STOP_AFTER = 2, 4
"""Contexts in a row without anything new: one may be spent on checking what was read."""
CALLS = 4096
"""That are remembered: the same ones come back much sooner."""
DIGITS = 12
"""Hexadecimal ones that stand for a call and its result."""
REPEATED = (
    "For some time every call was one that you made before, with the same result. Use what you have: answer, or "
    "do something that you have not done yet."
)


class Progress:
    """Counts contexts, each up to a compaction, whose calls had all been made before with the same results.

    Args:
        stopped: how often the session was stopped for it: each time it is resumed it has more of them.
        saved: what `dump` returned.
    """

    def __init__(self, stopped: int, saved: Mapping[str, Any] | None = None) -> None:
        self._most = STOP_AFTER + stopped * TELL_AFTER
        text, counts = (saved["seen"], saved["counts"]) if saved else ("", (0, 0, 0, False))
        self._seen = dict.fromkeys(text[at : at + DIGITS] for at in range(0, len(text), DIGITS))
        self._calls, self._new, self._idle, self._told = counts

    def dump(self) -> dict[str, Any]:
        """The state as JSON values."""
        counts = (self._calls, self._new, self._idle, self._told)
        return {"seen": "".join(self._seen), "counts": counts}

    def note(self, call: ToolCall, output: ToolOutput) -> None:
        """Looks whether a call and its result are new."""
        content = "\0".join((call.name, normalise_json(call.arguments), output.text))
        key = digest(content, DIGITS // 2)
        self._calls, self._new = self._calls + 1, self._new + (key not in self._seen)
        self._seen.pop(key, None)
        self._seen[key] = None
        if len(self._seen) > CALLS:
            del self._seen[next(iter(self._seen))]

    def end_context(self) -> str | None:
        """Begins the next context; what to tell the model, once."""
        self._idle = 0 if self._new else self._idle + bool(self._calls)
        self._calls = self._new = 0
        if self._idle < TELL_AFTER or self._told:
            return None
        self._told = True
        return REPEATED

    @property
    def is_over(self) -> bool:
        """Whether it goes round in circles."""
        return self._idle >= self._most
