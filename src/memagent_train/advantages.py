"""Turns the rollouts of a sample into the conversations to train on, each with its advantage."""

# ruff: noqa: N806  (names of tensors end in their dimensions)

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from memagent_train.algorithm import AlgorithmSettings
from memagent_train.errors import TrainingError
from memagent_train.estimators import (
    ADVANTAGES,
    keep_groups,
    overlong_penalty,
    step_advantages,
)
from memagent_train.rollouts import Rollout, Row, Status

Ids = tuple[int, ...]
ROUNDING = 1e-9
"""A mean of advantages below this share of the largest one is 0."""


@dataclass(frozen=True)
class TrainingRow:
    """A conversation with what the loss needs."""

    row: Row
    advantage: float
    times: int = 1
    """How many times it was rolled out; the advantage is the mean."""


@dataclass(frozen=True)
class Group:
    """The G rollouts of one sample, compared with each other."""

    rollouts: tuple[Rollout, ...]
    advantages: tuple[float | None, ...]
    """G advantages, one per rollout; None for one left out of the loss: without a reward, masked as overlong, or in a
    dropped group."""
    rows: tuple[TrainingRow, ...]
    """Conversations that enter the loss: those with a sampled token, of rollouts that have a reward."""
    informative: bool
    """Whether any row has a gradient."""


def compare(rollouts: Sequence[Rollout], algorithm: AlgorithmSettings) -> Group:
    """Compares the rollouts of one sample.

    Args:
        rollouts: G rollouts from `check_rollout`.
        algorithm: how rewards become advantages, and what is masked.
    """
    advantages_G, informative = _of_rollouts(rollouts, algorithm)
    steps_GC = _of_steps(rollouts, algorithm)
    trained_G = [
        rollout.status is Status.SCORED and not (rollout.overlong and algorithm.overlong_mask)
        for rollout in rollouts
    ]
    weighed = {
        (g, c): weigh_spans(row, algorithm)
        for g, rollout in enumerate(rollouts)
        for c, row in enumerate(rollout.rows)
        if trained_G[g]
    }
    places = [place for place, row in weighed.items() if row.sampled]
    rows = tuple(
        TrainingRow(
            weighed[g, c],
            float(advantages_G[g]) + algorithm.step_weight * float(steps_GC[g, c]),
        )
        for g, c in places
    )
    informative = informative or (algorithm.step_weight > 0 and bool(steps_GC.any()))
    advantages = [
        advantage if trained else None
        for advantage, trained in zip(advantages_G.tolist(), trained_G, strict=True)
    ]
    return Group(tuple(rollouts), tuple(advantages), rows, informative=bool(rows) and informative)


def check_rollout(rollout: Rollout) -> Rollout:
    """Returns the rollout, without its reward if the reward or its rows can't be trained on.

    An invalid rollout doesn't stop the training: it becomes FAILED (or UNSCORED, if only the
    reward is at fault), with the reason in `error`.
    """
    if rollout.status is not Status.SCORED:
        # Its reward, if any, would otherwise enter the others' baseline.
        return rollout if rollout.reward is None else replace(rollout, reward=None)
    if rollout.reward is None or not math.isfinite(rollout.reward):
        fault = f"the reward is {rollout.reward!r}, not a finite number"
        return replace(rollout, status=Status.UNSCORED, reward=None, error=fault)
    wrong = next((why for row in rollout.rows if (why := _find_fault(row))), "")
    steps = rollout.step_rewards
    if steps is not None and len(steps) != len(rollout.rows):
        wrong = f"{len(steps)} step rewards for {len(rollout.rows)} conversations"
    elif any(step is not None and not math.isfinite(step) for step in steps or ()):
        wrong = f"a step reward is not a finite number: {steps!r}"
    return replace(rollout, status=Status.FAILED, reward=None, error=wrong) if wrong else rollout


def weigh_spans(row: Row, algorithm: AlgorithmSettings) -> Row:
    """Returns the row with each token weighted by its kind of call, and rejected replies masked if so set."""
    weights = list(row.loss_mask)
    for span in row.spans:
        left_out = span.rejected and algorithm.rejected == "leave_out"
        weight = 0.0 if left_out else algorithm.weights.get(span.kind, 1.0)
        if weight != 1:
            weights[span.start : span.end] = [
                weight * old for old in weights[span.start : span.end]
            ]
    return replace(row, loss_mask=tuple(weights))


def merge_rows(
    rows: Sequence[TrainingRow], groups: Sequence[int]
) -> tuple[list[TrainingRow], list[int]]:
    """Merges a group's rows with equal ids: with a gate, rollouts often share prompt and reply.

    As long as the policy is the one that sampled, m equal rows have the gradient of one with their mean advantage and
    weight m. After an update this no longer holds: clipping differs if advantages differ in sign.

    Args:
        rows: N rows.
        groups: number of each row's group.

    Returns:
        The rows and their groups, in order of first occurrence.
    """
    merged: dict[tuple[int, Ids, Ids, tuple[float, ...]], list[TrainingRow]] = {}
    for row, group in zip(rows, groups, strict=True):
        ids = (group, row.row.prompt_ids, row.row.response_ids, row.row.loss_mask)
        merged.setdefault(ids, []).append(row)
    merged_rows = [
        replace(equal[0], advantage=_mean_advantage(equal), times=sum(row.times for row in equal))
        for equal in merged.values()
    ]
    return merged_rows, [ids[0] for ids in merged]


def check_groups(rollouts: Sequence[Rollout], groups: int, size: int) -> list[list[Rollout]]:
    """Splits generated rollouts into groups.

    Raises:
        TrainingError: the number of rollouts is wrong, or a group's aren't adjacent.
    """
    if len(rollouts) != groups * size:
        raise TrainingError(
            f"{len(rollouts)!r} rollouts were generated instead of {size} for each of {groups} samples: "
            f"return a failed rollout with status FAILED, don't leave it out"
        )
    cut = [list(rollouts[at : at + size]) for at in range(0, len(rollouts), size)]
    ids = [{rollout.group_id for rollout in group} for group in cut]
    if any(len(names) != 1 for names in ids) or len(set().union(*ids)) != groups:
        raise TrainingError(
            f"the rollouts of a sample must be adjacent and share a group id that no other sample has; "
            f"got {[sorted(names) for names in ids]!r}"
        )
    return cut


def _mean_advantage(rows: Sequence[TrainingRow]) -> float:
    times = sum(row.times for row in rows)
    mean = math.fsum(row.advantage * row.times for row in rows) / times
    # A group's advantages sum to 0; a rounding error would have a gradient.
    largest = max(abs(row.advantage) for row in rows)
    return 0.0 if abs(mean) < ROUNDING * largest else mean


def _of_rollouts(rollouts: Sequence[Rollout], algorithm: AlgorithmSettings) -> tuple[Tensor, bool]:
    rewards_G = torch.tensor(
        [math.nan if rollout.reward is None else rollout.reward for rollout in rollouts],
        dtype=torch.float64,
    )
    if algorithm.overlong_length is not None:
        lengths_G = torch.tensor(
            [max((row.sampled for row in rollout.rows), default=0) for rollout in rollouts]
        )
        rewards_G = rewards_G + overlong_penalty(
            lengths_G, algorithm.overlong_length, algorithm.overlong_window
        )
    rewards_BG = rewards_G[None]
    return ADVANTAGES[algorithm.scale](rewards_BG)[0], bool(keep_groups(rewards_BG))


def _of_steps(rollouts: Sequence[Rollout], algorithm: AlgorithmSettings) -> Tensor:
    longest = max(len(rollout.rows) for rollout in rollouts)
    rewards_GC = torch.full((len(rollouts), longest), math.nan, dtype=torch.float64)
    for g, rollout in enumerate(rollouts):
        if rollout.status is Status.SCORED:
            for c, reward in enumerate(rollout.step_rewards or ()):
                rewards_GC[g, c] = math.nan if reward is None else reward
    return step_advantages(rewards_GC, algorithm.scale)


def _find_fault(row: Row) -> str:
    lengths = {len(row.response_ids), len(row.loss_mask), len(row.logprobs)}
    if len(lengths) != 1:
        return (
            f"a conversation has {len(row.response_ids)} ids, {len(row.loss_mask)} mask values and "
            f"{len(row.logprobs)} log-probabilities"
        )
    if not row.prompt_ids:
        return "a conversation has no prompt ids"
    if not all(math.isfinite(logprob) for logprob in row.logprobs):
        return "a log-probability of the sampling engine is not a finite number"
    return ""
