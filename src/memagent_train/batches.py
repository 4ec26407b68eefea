"""Rows in TRL's form: distributed over processes, updates and passes, and padded into tensors."""

# ruff: noqa: N806  (names of tensors end in their dimensions)

import math
import random
from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest

import torch
from torch import Tensor

from memagent_train.advantages import TrainingRow
from memagent_train.estimators import row_weights
from memagent_train.rollouts import Row

PADDING = -1
"""Takes the place of a sequence's number where there is no sequence."""


def rows_of_updates(rows: int, updates: int, seed: str) -> list[list[int]]:
    """Returns the row numbers that each update trains on, at random: the split doesn't depend on what rows share."""
    shuffled = list(range(rows))
    random.Random(seed).shuffle(shuffled)
    return [shuffled[update::updates] for update in range(updates)]


def deal(
    lengths: Sequence[int], *, ranks: int, micro_batches: int, most_tokens: int | None = None
) -> list[list[list[list[int]]]]:
    """Distributes an update's sequences so that all processes have equal work, in passes of about equal size.

    Sequences go longest first to the process with the least work so far. A process's share is sorted by length and cut
    into passes, so that the largest pass is as small as it can be. Processes synchronise in every pass, so each gets
    the same number of them with the same number of sequences, filled up with `PADDING`.

    Args:
        lengths: tokens of every sequence; may be empty.
        ranks: processes.
        micro_batches: number of micro-batches.
        most_tokens: maximum size of a pass, including padding; only a single sequence may exceed it. If that takes more
            passes than there are micro-batches, some of them get several.

    Returns:
        For every process: its micro-batches, each a list of passes, each a list of sequence numbers.
    """
    shares = share_out(lengths, ranks)
    longest = [
        max(lengths[number] for number in beside if number != PADDING)
        for beside in zip_longest(*shares, fillvalue=PADDING)
    ]
    sizes = _cut(longest, micro_batches, most_tokens)
    dealt: list[list[list[list[int]]]] = []
    for share in shares:
        places = iter(share + [PADDING] * (sum(sizes) - len(share)))
        passes = [list(islice(places, size)) for size in sizes]
        dealt.append([list(part) for part in _split(passes, micro_batches)])
    return dealt


def _cut(lengths: Sequence[int], number: int, most_tokens: int | None) -> list[int]:
    """Returns the sequences per pass, for at least `number` passes, with the largest pass as small as possible."""
    low, high = 0, len(lengths) * max(lengths, default=0)
    while low < high:
        middle = (low + high) // 2
        if len(_fill(lengths, middle)) <= number:
            high = middle
        else:
            low = middle + 1
    sizes = _fill(lengths, low if most_tokens is None else min(low, most_tokens))
    while len(sizes) < number:
        largest = max(range(len(sizes)), key=sizes.__getitem__, default=0)
        if not sizes or sizes[largest] == 1:
            sizes.append(1)  # a pass of padding
        else:
            half = sizes[largest] // 2
            sizes[largest : largest + 1] = [sizes[largest] - half, half]
    return sizes


def _fill(lengths: Sequence[int], most_tokens: int) -> list[int]:
    """Returns the sequences per pass if each pass takes, in order, all that fit, but at least one."""
    sizes: list[int] = []
    longest = 0
    for length in lengths:
        longest = max(length, longest)
        if sizes and (sizes[-1] + 1) * longest <= most_tokens:
            sizes[-1] += 1
        else:
            sizes.append(1)
            longest = length
    return sizes


def _split(passes: Sequence[list[int]], parts: int) -> Iterator[Sequence[list[int]]]:
    """Cuts a list into parts whose lengths differ by at most one."""
    for part in range(parts):
        yield passes[part * len(passes) // parts : (part + 1) * len(passes) // parts]


def token_shares(
    dealt: Sequence[Sequence[Sequence[Sequence[int]]]], tokens: Sequence[float]
) -> list[list[float]]:
    """Returns the factors that turn a mean over passes of means over tokens into the mean over all tokens of an update.

    Args:
        dealt: from `deal`.
        tokens: weighted number of tokens of every sequence in the mean; the last entry is 0, for padding.

    Returns:
        For every micro-batch a factor for each of its passes, 1 on average; NaN in an update without tokens.
    """
    counts = [
        [
            math.fsum(tokens[place] for rank in parts for place in rank[at])
            for at in range(len(parts[0]))
        ]
        for parts in zip(*dealt, strict=True)
    ]
    passes = [count for micro_batch in counts for count in micro_batch]
    mean = math.fsum(passes) / len(passes) or math.nan
    return [[count / mean for count in micro_batch] for micro_batch in counts]


def share_out(lengths: Sequence[int], ranks: int) -> list[list[int]]:
    """Assigns sequences by number, longest first, each to the process with the fewest tokens that has room."""
    room = -(-len(lengths) // ranks)
    shares: list[list[int]] = [[] for _ in range(ranks)]
    loads = [0] * ranks
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        rank = min((r for r in range(ranks) if len(shares[r]) < room), key=loads.__getitem__)
        shares[rank].append(number)
        loads[rank] += lengths[number]
    return shares


def weigh_rows(
    rows: Sequence[TrainingRow], groups: Sequence[int], *, by_group: bool, kl: bool
) -> tuple[list[TrainingRow], list[float], int]:
    """Returns the rows that have a gradient, their tokens' weights in the mean, and the number of tokens in the mean.

    Args:
        rows: N rows.
        groups: number of each row's group.
        by_group: whether every group has the same weight, rather than every token.
        kl: whether there is a KL term. Without it, a row with advantage 0 has no gradient but counts in the mean.
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
    """Returns a row of two tokens with no effect on the loss."""
    return TrainingRow(Row((eos,), (eos,), (0,), (0.0,)), advantage=0.0)


def tensors(
    rows: Sequence[TrainingRow], weights: Sequence[float], *, pad: int, device: torch.device
) -> dict[str, Tensor]:
    """Builds one micro-batch in the form of TRL's loss.

    Args:
        rows: N rows.
        weights: N weights of the rows' tokens in the mean.
        pad: id of the padding token; it is always masked.
        device: where the tensors go.

    Returns:
        `prompt_ids`, `prompt_mask` (N, P), padded on the left; `completion_ids`, `completion_mask`,
        `sampling_per_token_logps` (N, T), padded on the right; `tool_mask` (N, T): the weight of a token in the loss,
        0 for those that weren't sampled. The loss multiplies policy and KL terms by it, like a mask. `advantages` (N).
    """
    prompts = [list(row.row.prompt_ids) for row in rows]
    responses = [list(row.row.response_ids) for row in rows]
    masks_NT = _pad([row.row.loss_mask for row in rows], 0)
    batch = {
        "prompt_ids": _pad(prompts, pad, left=True),
        "prompt_mask": _pad([[1] * len(ids) for ids in prompts], 0, left=True),
        "completion_ids": _pad(responses, pad),
        "completion_mask": _pad([[1] * len(ids) for ids in responses], 0),
        "tool_mask": masks_NT * torch.tensor(weights, dtype=torch.float32)[:, None],
        "advantages": torch.tensor([row.advantage for row in rows], dtype=torch.float32),
        "sampling_per_token_logps": _pad([row.row.logprobs for row in rows], 0.0),
    }
    return {name: tensor.to(device) for name, tensor in batch.items()}


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
