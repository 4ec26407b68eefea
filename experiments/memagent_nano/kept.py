"""What a policy keeps of memories and chunks that hold more than an expert keeps: the same ones for every policy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

from memagent_nano.expert import Entry, read_memory, with_entry
from memagent_nano.gate import reply_to, share_of
from memagent_nano.lessons import memory_of, teacher, traces
from memagent_nano.sizes import Size

DOCUMENTS = 600
SEED = 10**7
"""Of all documents that are measured on: no training has it."""
ASKED, OTHER, MADE_UP, AGAIN = "asked", "other", "made up", "again"
CHANCE = "asked, by chance", "other, by chance"
"""What the expert that keeps anything keeps of the same."""
KINDS = (ASKED, OTHER, *CHANCE, MADE_UP, AGAIN)


def measure_kept(
    size: Size, policy: Path, *, documents: int = DOCUMENTS
) -> dict[str, dict[str, float]]:
    """Shows a policy what the expert that keeps anything was shown in held-out documents, and reads its new memories.

    Args:
        size: of the policy.
        policy: its folder. It replies greedily.
        documents: that the expert reads, as training has them.

    Returns:
        Kind -> share, its 95% interval as if notes were independent, and of how many. `asked`: of the notes that the
        question may need, as far as memory and chunk tell, those that the new memory holds; `other`: likewise, of all
        other notes; what a later note makes outdated counts for neither. A memory holds a note where a line has who and
        what side by side. Of the links of all lines, `made up` are in neither memory nor chunk, and `again` stood in a
        line before.
    """
    expert = teacher(size, "random", 0)
    shown: list[tuple[str, str]] = []
    notes: list[list[Entry]] = []
    for said, reply in traces(size, "random", policy, documents, SEED):
        if said.rstrip().endswith("Answer:"):
            continue
        told = [*read_memory(memory_of(said)), *expert.notes(said.split("\nText:", 1)[1])]
        if len(_drop_outdated(told)) > size.kept:
            shown.append((said, reply))
            notes.append(told)
    found: dict[str, list[bool]] = {kind: [] for kind in KINDS}
    replies = asyncio.run(reply_to(policy, [said for said, _ in shown], size.memory_tokens))
    for (said, by_chance), told, reply in zip(shown, notes, replies, strict=True):
        needed = expert.list_needed(_question(said), _drop_outdated(told))
        for entry in _drop_outdated(told):
            asked = entry in needed
            found[ASKED if asked else OTHER].append(entry in read_memory(reply))
            found[CHANCE[0] if asked else CHANCE[1]].append(entry in read_memory(by_chance))
        for kind, was in _blemishes(read_memory(reply), told):
            found[kind].append(was)
    return {kind: share_of(was) for kind, was in found.items()}


def _question(said: str) -> str:
    return said.split("\n", 1)[0].removeprefix("Question: ")


def _drop_outdated(told: Sequence[Entry]) -> list[Entry]:
    """Without what is outdated."""
    entries: list[Entry] = []
    for entry in told:
        entries = with_entry(entries, entry)
    return entries


def _blemishes(entries: Sequence[Entry], told: Sequence[Entry]) -> Iterator[tuple[str, bool]]:
    for place, entry in enumerate(entries):
        yield MADE_UP, entry not in told
        yield AGAIN, entry in entries[:place]
