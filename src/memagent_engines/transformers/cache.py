"""A cache of keys and values that grows in place."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers.cache_utils import Cache, DynamicLayer

ROOM = 64
"""Number of further tokens that a new buffer has room for."""


class RoomyLayer(DynamicLayer):
    """One layer's keys and values, `(B, H, S, D)`: views of buffers with room for more tokens.

    Its base class copies all of them at each pass: in bfloat16 on a CPU, with 16 rows of 700 tokens, that
    took a third of the time of a pass over one token each.
    """

    _buffers: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Adds `(B, H, W, D)` keys and values; returns all."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        length, growth = self.get_seq_length(), key_states.shape[-2]
        if self._buffers is None or self._buffers[0].shape[-2] < length + growth:
            room = length + growth + ROOM
            self._buffers = (
                _enlarge(self.keys, key_states, room),
                _enlarge(self.values, value_states, room),
            )
        keys, values = self._buffers
        keys[..., length : length + growth, :] = key_states
        values[..., length : length + growth, :] = value_states
        self.keys, self.values = keys[..., : length + growth, :], values[..., : length + growth, :]
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keeps the rows with these indices, in their order."""
        super().batch_select_indices(indices)
        self._buffers = None


def gather(places: Sequence[tuple[Cache, int]]) -> Cache:
    """Returns a cache of B rows, each the row with this index of a cache; shorter ones end in zeros.

    Each layer is removed from the caches once copied, so that only one exists twice at a time.
    """
    result = Cache(layer_class_to_replicate=RoomyLayer)
    for index in range(len(places[0][0])):
        layers: list[Any] = [(cache.layers[index], row) for cache, row in places]
        pairs = [(layer.keys[row], layer.values[row]) for layer, row in layers]
        keys, values = (
            pad_sequence([row.transpose(0, 1) for row in rows], True).transpose(1, 2)
            for rows in zip(*pairs, strict=True)
        )
        result.update(keys, values, index)
        for cache, _ in places:
            cache.layers[index] = RoomyLayer()
    return result


def _enlarge(old: torch.Tensor | None, new: torch.Tensor, room: int) -> torch.Tensor:
    """Returns a buffer for `room` tokens of the new keys' or values' shape that begins with the old ones."""
    rows, heads, _, size = new.shape
    buffer = new.new_empty(rows, heads, room, size)
    if old is not None and old.numel():
        buffer[..., : old.shape[-2], :] = old
    return buffer
