"""`LoopFigures`: what is counted of a loop at a server."""

from __future__ import annotations

from memagent.messages import Leaf
from memagent_bench.shift.shift import Probes


class LoopFigures(Leaf):
    """Beside what is counted of every session."""

    probes: Probes | None
    """What came through; None without an answer."""
    repeated: int
    """Tickets closed more than once."""
    overflows: int
    """Requests refused because prompt and output didn't fit the window, recovered from or not."""
    broken_pairs: int
    """Requests refused because a call and its result were apart."""
    own_seconds: float | None
    """Processor time of this process without the server's; None where sessions ran at once."""
    prompts: tuple[int, ...]
    """Tokens of the prompt of each step: each request that isn't for a summary."""
    kept: tuple[float, ...]
    """At each step, the share of what has to be remembered that the prompt tells."""

    @property
    def own_milliseconds(self) -> float | None:
        """Own processor time a step; None where it isn't known, or there was no step."""
        if self.own_seconds is None or not self.prompts:
            return None
        return 1000 * self.own_seconds / len(self.prompts)
