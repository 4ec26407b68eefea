"""What is compared: ways to manage a session's context, with their settings."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, TypeAlias

from memagent.messages import Leaf
from memagent_bench.sessions.wire.loops import LOOPS

Local: TypeAlias = Literal["full", "drop-oldest", "mask", "summary"]
SystemName: TypeAlias = str
"""One of `Local` or `LOOPS`."""
ABOUT: dict[Local, str] = {
    "full": "the whole history, while it fits the model's window",
    "drop-oldest": "drops the oldest turns when the working context is full",
    "mask": "when it is full, replaces old tool outputs by a line; then drops the oldest turns",
    "summary": "ToolAgent: replaces older turns by a summary",
}


class Arm(Leaf):
    """One way, with its settings; None for settings that don't apply to it."""

    system: SystemName
    working_context: int | None = None
    """Maximum tokens of prompt plus output; for a loop at a server, the server's window."""
    summaries: int | None = None
    """Maximum summaries of a session."""
    kept: int | None = None
    """Newest tool outputs that are shown unchanged."""

    writer: str | None = None
    """Model that writes the summaries of a loop at a server; None for the rules."""

    @property
    def label(self) -> str:
        """`full`, `mask W=4096 K=10`, `summary W=4096 S=7`."""
        settings = {"W": self.working_context, "S": self.summaries, "K": self.kept}
        parts = (f"{name}={value}" for name, value in settings.items() if value is not None)
        by = () if self.writer is None else (f"by {self.writer}",)
        return " ".join((self.system, *parts, *by))


def arms(
    systems: Collection[str],
    *,
    working_contexts: Sequence[int],
    summaries: Sequence[int],
    kept: int,
    writers: Sequence[str | None] = (None,),
) -> tuple[Arm, ...]:
    """Returns each system with each of the settings that apply to it."""
    ways: list[Arm] = []
    for system in (*ABOUT, *LOOPS):
        if system not in systems:
            continue
        if system == "full":
            ways.append(Arm(system=system))
            continue
        for size in working_contexts:
            bare = Arm(system=system, working_context=size)
            if system in LOOPS:
                ways += [bare.model_copy(update={"writer": writer}) for writer in writers]
            elif system == "summary":
                ways += [bare.model_copy(update={"summaries": count}) for count in summaries]
            else:
                ways.append(bare.model_copy(update={"kept": kept if system == "mask" else None}))
    return tuple(ways)
