"""What a policy keeps of memories and chunks that have more than an expert keeps, the same ones for every policy."""

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
"""Seed of all measured documents: no training has it."""
ASKED, OTHER, MADE_UP, AGAIN = "asked", "other", "made up", "again"
CHANCE = "asked, by chance", "other, by chance"
"""What the expert that keeps anything keeps of the same."""
KINDS = (ASKED, OTHER, *CHANCE, MADE_UP, AGAIN)


def measure_kept(
    size: Size, policy: Path, *, documents: int = DOCUMENTS
) -> dict[str, dict[str, float]]:
    """Shows a policy what the expert that keeps anything was shown in held-out documents, and reads its new memories.

    Args:
        size: size of the policy.
        policy: its folder. It replies greedily.
        documents: number of documents that the expert reads, like those of the training.

    Returns:
        Kind -> share, its 95% interval as if notes were independent, and n. `asked`: of the notes that the
        question may need, as far as memory and chunk tell, those that the new memory holds; `other`: likewise, of all
        other notes; notes made outdated by a later one count for neither. A memory holds a note if a line has who and
        what side by side. Of the links of all lines, `made up` are in neither memory nor chunk, and `again` repeat an
        earlier line.
    """
    expert = teacher(size, "random", 0)
    lessons: list[tuple[str, str]] = []
    notes: list[list[Entry]] = []
    for prompt, reply in traces(size, "random", policy, documents, SEED):
        if prompt.rstrip().endswith("Answer:"):
            continue
        entries = [*read_memory(memory_of(prompt)), *expert.notes(prompt.split("\nText:", 1)[1])]
        if len(_drop_outdated(entries)) > size.kept:
            lessons.append((prompt, reply))
            notes.append(entries)
    hits: dict[str, list[bool]] = {kind: [] for kind in KINDS}
    replies = asyncio.run(reply_to(policy, [prompt for prompt, _ in lessons], size.memory_tokens))
    for (prompt, by_chance), entries, reply in zip(lessons, notes, replies, strict=True):
        needed = expert.list_needed(_question(prompt), _drop_outdated(entries))
        for entry in _drop_outdated(entries):
            relevant = entry in needed
            hits[ASKED if relevant else OTHER].append(entry in read_memory(reply))
            hits[CHANCE[0] if relevant else CHANCE[1]].append(entry in read_memory(by_chance))
        for kind, was in _blemishes(read_memory(reply), entries):
            hits[kind].append(was)
    return {kind: share_of(was) for kind, was in hits.items()}


def _question(prompt: str) -> str:
    return prompt.split("\n", 1)[0].removeprefix("Question: ")


def _drop_outdated(notes: Sequence[Entry]) -> list[Entry]:
    """Drops the notes that are outdated."""
    entries: list[Entry] = []
    for entry in notes:
        entries = with_entry(entries, entry)
    return entries


def _blemishes(entries: Sequence[Entry], notes: Sequence[Entry]) -> Iterator[tuple[str, bool]]:
    for place, entry in enumerate(entries):
        yield MADE_UP, entry not in notes
        yield AGAIN, entry in entries[:place]
