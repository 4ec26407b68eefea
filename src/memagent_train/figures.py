"""Figures logged for a step's rollouts, and errors for a batch without any scored rollout."""

import logging
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memagent_train.advantages import Group
from memagent_train.errors import RewardFailed, RolloutsFailed
from memagent_train.rollouts import TOOLS_FAILED, Rollout, Row, Status

logger = logging.getLogger("memagent.train")

SERIOUS = 0.1
"""Share of failed rollouts that triggers a warning."""


@dataclass(frozen=True)
class RolloutFacts:
    """Facts about a rollout, shared with all processes."""

    task: str
    status: Status
    reward: float | None
    error: str
    scores: Mapping[str, float]
    conversations: int
    sampled: int
    """Tokens that the policy sampled in trained roles, whatever `algorithm.weights` makes of them."""
    by_kind: Mapping[str, int]
    """Sampled tokens by kind of call; `rejected`: those of replies that were asked for again; `shown`: tokens between
    replies."""
    tokens: int
    """Tokens of all conversations, including prompts."""
    overlong: bool
    seconds: float


@dataclass(frozen=True)
class GroupFacts:
    """Facts about a group, shared with all processes."""

    rollouts: tuple[RolloutFacts, ...]
    kept: bool
    """Whether the group is trained on."""
    informative: bool
    """Whether the group has a gradient."""


def facts(group: Group, *, kept: bool) -> GroupFacts:
    """Collects the facts about a group."""
    rollouts = tuple(map(facts_of, group.rollouts))
    return GroupFacts(rollouts, kept=kept, informative=group.informative)


def facts_of(rollout: Rollout) -> RolloutFacts:
    """Collects the facts about a rollout."""
    return RolloutFacts(
        task=rollout.sample.task,
        status=rollout.status,
        reward=rollout.reward,
        error=rollout.error,
        scores=rollout.scores,
        conversations=len(rollout.rows),
        sampled=sum(row.sampled for row in rollout.rows),
        by_kind=_count_kinds(rollout.rows),
        tokens=sum(len(row.prompt_ids) + len(row.response_ids) for row in rollout.rows),
        overlong=rollout.overlong,
        seconds=rollout.seconds,
    )


def raise_if_nothing_scored(rollouts: Sequence[RolloutFacts], of: str = "batch") -> None:
    """Raises an error if there is nothing to learn from, or to measure.

    Args:
        rollouts: all rollouts of all processes.
        of: a word for what they belong to.

    Raises:
        RolloutsFailed: no rollout finished.
        RewardFailed: some finished, but none has a reward.
    """
    if any(rollout.status is Status.SCORED for rollout in rollouts):
        return
    ended = [rollout for rollout in rollouts if rollout.status is Status.UNSCORED]
    first = next(
        (rollout.error for rollout in ended or rollouts if rollout.error), "no reason was given"
    )
    if ended:
        raise RewardFailed(
            f"none of the {len(rollouts)} rollouts of this {of} has a reward; the first reason: {first!r}. Try the "
            f"reward function on one answer, fix it, and run the same command again"
        )
    raise RolloutsFailed(
        f"all {len(rollouts)} rollouts of this {of} failed; the first reason: {first!r}. Try the agent on one "
        f"sample, fix the cause, and run the same command again"
    )


def warn_of_failures(step: int, groups: Sequence[GroupFacts]) -> None:
    """Logs a warning if a tenth of a step's rollouts or more failed."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    failed = [rollout for rollout in rollouts if rollout.status is Status.FAILED]
    if failed and len(failed) >= SERIOUS * len(rollouts):
        logger.warning(
            "step %d: %d of %d rollouts failed. Nothing is learnt from them, and the reward is that of the others. The "
            "first reason: %r. Where the policy is to blame, let the agent return None instead of raising",
            *(step, len(failed), len(rollouts), failed[0].error),
        )


def figures(groups: Sequence[GroupFacts]) -> dict[str, float]:
    """Computes the figures to log for a step.

    Args:
        groups: all groups of all processes, including dropped ones.
    """
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    rewards = [rollout.reward for rollout in rollouts if rollout.reward is not None]
    scores: dict[str, list[float]] = defaultdict(list)
    for rollout in rollouts:
        for name, score in rollout.scores.items():
            scores[name if name == TOOLS_FAILED else f"scores/{name}"].append(score)
    kinds: Counter[str] = Counter()
    for rollout in rollouts:
        kinds.update(rollout.by_kind)
    return {
        "reward": statistics.fmean(rewards) if rewards else float("nan"),
        "reward_std": statistics.pstdev(rewards) if rewards else float("nan"),
        **{name: statistics.fmean(values) for name, values in sorted(scores.items())},
        "groups/rolled_out": float(len(groups)),
        "groups/trained": float(sum(group.kept for group in groups)),
        "groups/dropped": _share([not group.kept for group in groups]),
        "groups/without_signal": _share([not group.informative for group in groups]),
        "rollouts/failed": _share([rollout.status is Status.FAILED for rollout in rollouts]),
        "rollouts/unscored": _share([rollout.status is Status.UNSCORED for rollout in rollouts]),
        "rollouts/overlong": _share([rollout.overlong for rollout in rollouts]),
        "rollouts/conversations": statistics.fmean([rollout.conversations for rollout in rollouts]),
        "rollouts/seconds": statistics.fmean([rollout.seconds for rollout in rollouts]),
        "tokens/rolled_out": float(sum(rollout.tokens for rollout in rollouts)),
        "tokens/sampled": float(sum(rollout.sampled for rollout in rollouts)),
        **{f"tokens/{kind}": float(count) for kind, count in sorted(kinds.items())},
    }


def _count_kinds(rows: Sequence[Row]) -> Counter[str]:
    """Counts the tokens of all rows by kind; rows without spans add none."""
    kinds: Counter[str] = Counter()
    for row in rows:
        for span in row.spans:
            kinds["rejected" if span.rejected else span.kind] += span.end - span.start
        if row.spans:
            kinds["shown"] += len(row.response_ids) - sum(s.end - s.start for s in row.spans)
    return kinds


def _share(values: Sequence[bool]) -> float:
    return sum(values) / len(values)
