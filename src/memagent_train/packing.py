"""Packs rows for the model: rows with a common prefix become one sequence, which has the prefix once.

A token attends only to tokens of its own row, through a U x U mask that transformers' models accept unchanged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from memagent_train.advantages import TrainingRow
from memagent_train.batches import share_out, tensors
from memagent_train.rollouts import Row

Ids = tuple[int, ...]
EVEN = 4
"""Attention takes as long as a layer's weights if a sequence has about this many times the tokens of the model's width:
measured 3 to 6 on a CPU, for widths from 64 to 1024; by the number of multiplications, 6."""


@dataclass(frozen=True)
class Bundle:
    """Rows packed into one sequence."""

    rows: tuple[int, ...]
    """Numbers of the rows; each row shares most with the one before."""
    size: int
    """Number of tokens; tokens that rows share count once."""


def even_length(model: Any) -> int:
    """Returns the sequence length at which attention takes about as long as all else; 0 if rows can't share a sequence.

    They can't if a layer depends on where tokens are in the sequence (windows, recurrent states), or doesn't accept
    such a mask. With router logits, experts would be balanced over other tokens.
    """
    config = model.config.get_text_config()
    layers = getattr(config, "layer_types", None) or ["full_attention"]
    able = (
        config._attn_implementation == "sdpa"
        and model._supports_attention_backend
        and not model._is_stateful
        and set(layers) == {"full_attention"}
        and getattr(config, "sliding_window", None) is None
        and not getattr(config, "output_router_logits", False)
    )
    return EVEN * config.hidden_size if able else 0


def bundle(lines: Mapping[int, Ids], *, even: int, most: float, ranks: int = 1) -> list[Bundle]:
    """Packs an update's rows together where one sequence is less work than two.

    The work of n tokens is n * (even + n). Rows that share little stay alone. Several limits on a sequence's
    rows are tried (all, half as many, ..., 1), and the one is used with which the busiest process has the
    least work: the others wait for it.

    Args:
        lines: number and ids of each row.
        even: from `even_length`; with 0 each row stays alone.
        most: maximum number of tokens in a sequence of several rows.
        ranks: processes.
    """
    order = sorted(lines, key=lines.__getitem__)
    shared = [0, *(_count_shared(lines[one], lines[other]) for one, other in pairwise(order))]

    def work(*sizes: int) -> int:
        return sum(size * (even + size) for size in sizes)

    def join(rows: int) -> list[Bundle]:
        bundles: list[Bundle] = []
        for row, old in zip(order, shared, strict=False):
            last, length = bundles[-1] if bundles else Bundle((), 0), len(lines[row])
            size = last.size + length - old
            room = 0 < len(last.rows) < rows and size <= most
            if even and room and work(size) < work(last.size, length):
                bundles[-1] = Bundle((*last.rows, row), size)
            else:
                bundles.append(Bundle((row,), length))
        return bundles

    def slowest(bundles: Sequence[Bundle]) -> int:
        sizes = [part.size for part in bundles]
        return max(work(*(sizes[n] for n in share)) for share in share_out(sizes, ranks))

    limits = (len(lines) >> halved for halved in range(len(lines).bit_length()))
    return min(map(join, limits), key=slowest, default=[])


def rows_of_passes(
    dealt: Sequence[Sequence[Sequence[Sequence[int]]]], bundles: Sequence[Bundle]
) -> list[list[int]]:
    """Returns for every micro-batch the most rows that a process has in each pass. `dealt` comes from `deal`."""
    return [
        [
            max(sum(len(bundles[n].rows) for n in numbers) for numbers in beside)
            for beside in zip(*parts, strict=True)
        ]
        for parts in zip(*dealt, strict=True)
    ]


@dataclass(frozen=True)
class Packed:
    """The N rows of a pass as B sequences of at most U tokens, padded on the right."""

    ids: Tensor
    """(B, U): token ids."""
    positions: Tensor
    """(B, U): each token's position in its rows."""
    first: Tensor
    """(B, U): first row with the token, as a number within its sequence; -1 for padding."""
    last: Tensor
    """(B, U): last row with the token; all rows between have it too. -1 for padding."""
    scored: Tensor
    """(2, M): for each distinct response token, the flat positions (in B * U) of the token before it and of itself."""
    numbers: Tensor
    """(N, T): each row's response tokens, as indexes into the M; -1 for padding."""

    def mask(self, dtype: torch.dtype) -> Tensor:
        """Returns the attention mask (B, 1, U, U), or the mask of real tokens (B, U) if no rows share a sequence.

        Args:
            dtype: type in which attention computes. Each layer would convert another, even bool, and keep its copy.
        """
        if len(self.ids) == len(self.numbers):
            return (self.first == 0).long()
        # An earlier token is in a token's row if its last row isn't before that row. Padding attends to all before it.
        attention = (self.last[:, None] >= self.first[:, :, None]).tril()[:, None]
        return torch.zeros_like(attention, dtype=dtype).masked_fill_(~attention, -torch.inf)


def pack(sequences: Sequence[Sequence[Row]], *, pad: int, device: torch.device) -> Packed:
    """Packs rows into sequences.

    Args:
        sequences: the rows of each sequence, in the order of `Bundle.rows`.
        pad: id of the padding token.
        device: where the tensors go.
    """
    laid = [_lay_out(rows) for rows in sequences]
    longest = max(len(row.response_ids) for rows in sequences for row in rows)
    width = max(len(tokens) for tokens, _ in laid)
    numbers: dict[tuple[int, int], int] = {}
    responses = [
        [
            numbers.setdefault((part * width + predecessor, part * width + place), len(numbers))
            for predecessor, place in pairwise(at[len(row.prompt_ids) - 1 :])
        ]
        for part, (rows, (_, ats)) in enumerate(zip(sequences, laid, strict=True))
        for row, at in zip(rows, ats, strict=True)
    ]
    padded = [tokens + [(pad, 0, -1, -1)] * (width - len(tokens)) for tokens, _ in laid]
    table = torch.tensor(padded, device=device)
    return Packed(
        *table.unbind(-1),
        scored=torch.tensor(list(numbers), device=device).T,
        numbers=torch.tensor(
            [response + [-1] * (longest - len(response)) for response in responses], device=device
        ),
    )


def pass_of(
    sequences: Sequence[Sequence[tuple[TrainingRow, float]]],
    size: int,
    *,
    pad: int,
    device: torch.device,
) -> dict[str, Any]:
    """Builds a pass in the form of TRL's loss (see `tensors`), with the model's input as `packed`.

    Args:
        sequences: the rows of each sequence, with the weights of their tokens in the mean.
        size: number of rows; missing ones are filled up with copies of weight 0.
        pad: id of the padding token.
        device: where the tensors go.
    """
    *others, last = sequences
    missing = size - sum(map(len, sequences))
    parts = [*others, [*last, *[(replace(last[-1][0], advantage=0.0), 0.0)] * missing]]
    rows, weights = zip(*(entry for part in parts for entry in part), strict=True)
    packed = pack([[entry.row for entry, _ in part] for part in parts], pad=pad, device=device)
    return {**tensors(rows, weights, pad=pad, device=device), "packed": packed}


def _lay_out(rows: Sequence[Row]) -> tuple[list[tuple[int, int, int, int]], list[list[int]]]:
    """Returns id, position, first and last row of each token of a sequence, and the places of each row's tokens."""
    tokens: list[tuple[int, int, int, int]] = []
    places: list[list[int]] = []
    previous_ids: Ids = ()
    for number, row in enumerate(rows):
        shared = _count_shared(previous_ids, row.ids)
        old, end = places[-1][:shared] if places else [], len(tokens)
        for place in old:
            tokens[place] = (*tokens[place][:3], number)
        new = enumerate(row.ids[shared:], shared)
        tokens += [(token, position, number, number) for position, token in new]
        places.append([*old, *range(end, len(tokens))])
        previous_ids = row.ids
    return tokens, places


def _count_shared(ids: Ids, other: Ids) -> int:
    """Returns the length of the common prefix."""
    pairs = enumerate(zip(ids, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(ids), len(other)))
