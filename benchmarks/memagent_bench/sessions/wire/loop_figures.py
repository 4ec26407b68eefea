"""`LoopFigures`: measurements of a loop at a server."""

from __future__ import annotations

from memagent.messages import Leaf
from memagent_bench.shift.shift import Probes


class LoopFigures(Leaf):
    """Measurements in addition to those of every session."""

    probes: Probes | None
    """What was retained; None without an answer."""
    repeated: int
    """Tickets closed more than once."""
    overflows: int
    """Requests refused because prompt and output didn't fit the window, whether recovered from or not."""
    broken_pairs: int
    """Requests refused because a call and its result were separated."""
    own_seconds: float | None
    """Processor time of this process without the server's; None if sessions ran concurrently."""
    prompts: tuple[int, ...]
    """Prompt tokens of each step: each request that isn't for a summary."""
    kept: tuple[float, ...]
    """For each step, the share of what must be remembered that the prompt contains."""

    @property
    def own_milliseconds(self) -> float | None:
        """Own processor time per step; None if unknown, or if there was no step."""
        if self.own_seconds is None or not self.prompts:
            return None
        return 1000 * self.own_seconds / len(self.prompts)
