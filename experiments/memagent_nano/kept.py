"""What a policy keeps of a memory and a chunk that hold more than it has room for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from memagent.errors import ConfigError
from memagent.models.transformers.model import TransformersModel
from memagent_bench.stats import wilson
from memagent_nano.expert import Entry, Expert, read_memory, with_entry
from memagent_nano.lessons import conversations, documents, memory_of, reader, teacher
from memagent_nano.sizes import Size

N = 300
"""Documents."""
SEED = 10**7
"""Of all documents that are measured on: no training has it."""
ASKED, OTHER, MADE_UP = "asked", "other", "made up"


def kept(size: Size, policy: Path, *, n: int = N) -> dict[str, dict[str, float]]:
    """Has held-out documents, as training has them, read greedily. Blocks.

    Args:
        size: of the policy.
        policy: its folder.
        n: documents.

    Returns:
        Kind -> share, its 95% interval, and of how many. `asked`: of the notes that the question may need, as far as
        memory and chunk tell, those that the next memory holds; `other`: likewise, of all other notes. Both only where
        memory and chunk hold more notes than an expert keeps; what a later note makes outdated counts for neither.
        `made up`: of the entries of all memories, those that neither the memory before nor the chunk holds.

    Raises:
        ConfigError: there is no policy.
    """
    if not (policy / "config.json").is_file():
        raise ConfigError(f"there is no policy in {str(policy)!r}: train it first")
    expert, found = teacher(size, "random", 0), Counter[tuple[str, bool]]()
    with reader(size, TransformersModel(policy)) as agent:
        for conversation in conversations(agent, documents(size, n, SEED)):
            if conversation.kind == "update":
                said, reply = (message.content for message in conversation.messages)
                found.update(_counted(size, expert, said, reply))
    return {kind: _share(found[kind, True], found[kind, False]) for kind in (ASKED, OTHER, MADE_UP)}


def _counted(size: Size, expert: Expert, said: str, reply: str) -> Iterable[tuple[str, bool]]:
    """What became of the notes of one update."""
    question = said.split("\n", 1)[0].removeprefix("Question: ")
    before, after = read_memory(memory_of(said)), read_memory(reply)
    told = [*before, *expert.notes(said.split("\nText:", 1)[1])]
    for entry in after:
        yield MADE_UP, entry not in told
    current: list[Entry] = []
    for entry in told:
        current = with_entry(current, entry)
    if len(current) > size.kept:
        needed = expert.needed(question, current)
        for entry in current:
            yield ASKED if entry in needed else OTHER, entry in after


def _share(yes: int, no: int) -> dict[str, float]:
    n = yes + no
    low, high = wilson(yes / n if n else 0.0, n) if n else (0.0, 1.0)
    return {"share": yes / n if n else 0.0, "low": low, "high": high, "n": n}
