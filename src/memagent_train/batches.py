"""Rows in TRL's form: distributed over processes, updates and micro-batches, and padded to tensors."""

# ruff: noqa: N806  (names of tensors end in their dimensions)

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from memagent_train.advantages import TrainingRow
from memagent_train.estimators import broadcast_to_tokens, row_weights
from memagent_train.rollouts import Row

Place = int | None
"""Number of a row, or None for a padding row."""


def deal(
    lengths: Sequence[int], *, ranks: int, updates: int, micro_batches: int, seed: str
) -> list[list[list[Place]]]:
    """Distributes rows so that all processes have equal work, in micro-batches of equal size.

    Rows go to updates at random (by `seed`), then longest first to the process with the least work so far; a
    process's rows of an update are sorted by length, so that there is little padding. Processes synchronise in
    every micro-batch, so each gets the same number of them with the same number of rows, filled up with padding rows.

    Args:
        lengths: tokens of every row; may be empty.
        ranks: processes.
        updates: parts of the batch, one per optimizer update.
        micro_batches: number per part.
        seed: seed of the division into updates.

    Returns:
        For every process: updates * micro_batches micro-batches of one or more row numbers.
    """
    shuffled = list(range(len(lengths)))
    random.Random(seed).shuffle(shuffled)
    dealt: list[list[list[Place]]] = [[] for _ in range(ranks)]
    for update in range(updates):
        shares = _share_out(shuffled[update::updates], lengths, ranks)
        rows = -(-max(map(len, shares)) // micro_batches) or 1
        for batches, share in zip(dealt, shares, strict=True):
            padded = share + [None] * (rows * micro_batches - len(share))
            batches += [padded[at : at + rows] for at in range(0, len(padded), rows)]
    return dealt


def _share_out(rows: Sequence[int], lengths: Sequence[int], ranks: int) -> list[list[Place]]:
    """Longest rows first, each to the process with the fewest tokens that has room."""
    room = -(-len(rows) // ranks)
    shares: list[list[Place]] = [[] for _ in range(ranks)]
    loads = [0] * ranks
    for row in sorted(rows, key=lambda row: -lengths[row]):
        rank = min((r for r in range(ranks) if len(shares[r]) < room), key=loads.__getitem__)
        shares[rank].append(row)
        loads[rank] += lengths[row]
    return shares


def weigh_rows(
    rows: Sequence[TrainingRow], groups: Sequence[int], *, by_group: bool, kl: bool
) -> tuple[list[TrainingRow], list[float], int]:
    """The rows that have a gradient, the weights of their tokens in the mean, and the number of tokens in the mean.

    Args:
        rows: N rows.
        groups: number of each row's group.
        by_group: whether every group has the same weight; else every token has.
        kl: whether there is a KL term. Without one a row without advantage has no gradient, but counts in the mean.
    """
    tokens_N = torch.tensor([row.times * row.row.sampled for row in rows], dtype=torch.long)
    group_N = torch.tensor(groups, dtype=torch.long)
    weights = row_weights(tokens_N, group_N).tolist() if by_group else [1.0] * len(rows)
    moving = [at for at, row in enumerate(rows) if kl or row.advantage]
    return (
        [rows[at] for at in moving],
        [weights[at] * rows[at].times for at in moving],
        int(tokens_N.sum()),
    )


def padding_row(eos: int) -> TrainingRow:
    """A row of two tokens that counts for nothing."""
    return TrainingRow(Row((eos,), (eos,), (0,), (0.0,)), advantage=0.0)


def tensors(
    rows: Sequence[TrainingRow], weights: Sequence[float], *, pad: int, device: torch.device
) -> dict[str, Tensor]:
    """One micro-batch in the form of TRL's loss.

    Args:
        rows: N rows.
        weights: weights of their tokens in the mean.
        pad: id of the padding token; it is always masked.
        device: where the tensors go.

    Returns:
        `prompt_ids`, `prompt_mask` (N, P), padded on the left; `completion_ids`, `completion_mask`, `advantages`,
        `sampling_per_token_logps` (N, T), padded on the right; `tool_mask` (N, T): the weight of a token in the loss,
        0 for those that weren't sampled. The loss multiplies policy and KL terms by it, like a mask.
    """
    prompts = [list(row.row.prompt_ids) for row in rows]
    responses = [list(row.row.response_ids) for row in rows]
    masks_NT = _pad([row.row.loss_mask for row in rows], 0).float()
    weighted_NT = masks_NT * torch.tensor(weights, dtype=torch.float32)[:, None]
    advantages_N = torch.tensor([row.advantage for row in rows], dtype=torch.float32)
    made = {
        "prompt_ids": _pad(prompts, pad, left=True),
        "prompt_mask": _pad([[1] * len(ids) for ids in prompts], 0, left=True),
        "completion_ids": _pad(responses, pad),
        "completion_mask": _pad([[1] * len(ids) for ids in responses], 0),
        "tool_mask": weighted_NT,
        "advantages": broadcast_to_tokens(advantages_N, (masks_NT > 0).float()),
        "sampling_per_token_logps": _pad([row.row.logprobs for row in rows], 0.0),
    }
    return {name: tensor.to(device) for name, tensor in made.items()}


def _pad(rows: Sequence[Sequence[float]], value: float, *, left: bool = False) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor(
        [
            [value] * (width - len(row)) + list(row)
            if left
            else list(row) + [value] * (width - len(row))
            for row in rows
        ]
    )
