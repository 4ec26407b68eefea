"""Step rewards for a memory agent's gate: keep the memory exactly if a chunk adds nothing."""

from memagent.tasks import Sample
from memagent_train.rollouts import Rollout


def gate_rewards(rollout: Rollout) -> tuple[float | None, ...] | None:
    """Returns the gate's reward for each of a rollout's conversations.

    A chunk that contains a whole piece of evidence must be noted: 1 for a new memory, 0 for keeping the old
    one. A chunk without any evidence adds nothing: 1 for keeping, 0 for a new memory. With only part
    of a piece, or with competing notes, neither is clearly right: an earlier value of a counter isn't evidence, but
    must be noted until the next one. Such a conversation gets no reward.

    Args:
        rollout: its rows say in `span` and `kept` what a gated agent read and did.

    Returns:
        C rewards of 1, 0, or None for conversations without one; None if no conversation gets one, as with
        samples whose evidence is unknown.
    """
    sample = rollout.sample
    if not sample.evidence:
        return None
    rewards: list[float | None] = []
    for row in rollout.rows:
        wanted = (
            None if row.span is None or row.kept is None else _is_worth_noting(row.span, sample)
        )
        rewards.append(None if wanted is None else float(row.kept is not wanted))
    return tuple(rewards) if any(reward is not None for reward in rewards) else None


def _is_worth_noting(span: tuple[int, int], sample: Sample) -> bool | None:
    """Returns whether a chunk must be noted; None if it has only part of a piece, or competing notes."""
    start, end = span
    touching = [piece for piece in sample.evidence if piece.start < end and start < piece.end]
    if any(start <= piece.start and piece.end <= end for piece in touching):
        return True
    competes = any(start <= place < end for place in sample.competing or ())
    return None if touching or competes else False
