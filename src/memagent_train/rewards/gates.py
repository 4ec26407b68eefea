"""Step rewards for the gate of a memory agent: keep the memory where a chunk adds nothing, and only there."""

from __future__ import annotations

from collections.abc import Sequence

from memagent.tasks import Evidence
from memagent_train.rollouts import Rollout


def gate_rewards(rollout: Rollout) -> tuple[float | None, ...] | None:
    """What the gate of each of a rollout's conversations earns.

    A chunk that holds the whole of a piece of evidence has to be noted: 1 for a new memory, 0 for keeping the old
    one. A chunk that no evidence reaches into adds nothing: 1 for keeping, 0 for a new memory. Of a
    chunk that has but a part of a piece neither can be said, and its conversation gets none.

    Args:
        rollout: whose rows say in `span` and `kept` what a gated agent read and did.

    Returns:
        C rewards of 1, 0, or None for conversations that get none; None where no conversation gets one, as in
        samples whose evidence is not known.
    """
    evidence = rollout.sample.evidence
    if not evidence:
        return None
    rewards: list[float | None] = []
    for row in rollout.rows:
        wanted = (
            None if row.span is None or row.kept is None else _is_worth_noting(row.span, evidence)
        )
        rewards.append(None if wanted is None else float(row.kept is not wanted))
    return tuple(rewards) if any(reward is not None for reward in rewards) else None


def _is_worth_noting(span: tuple[int, int], evidence: Sequence[Evidence]) -> bool | None:
    """Whether a chunk has something to note, None where it has only a part of it."""
    start, end = span
    touching = [piece for piece in evidence if piece.start < end and start < piece.end]
    if any(start <= piece.start and piece.end <= end for piece in touching):
        return True
    return None if touching else False
