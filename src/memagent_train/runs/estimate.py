"""A rough estimate of a training's memory per device, from the model's shape.

Sources: weights, gradients and optimizer by stage of sharding: ZeRO (arXiv 1910.02054, section 3.1 and figure 1; FSDP
shards like its stage 3). Activations with one stored input per layer: arXiv 1604.06174 (checkpoints) and 2205.05198
(what a layer stores). Keys and values: 2 * layers * heads * head size numbers per token (arXiv 2211.05102).
Fragmentation, buffers of collectives and the runtime (1 to 3 GiB) are not included; tokens that conversations share
count for each.
"""

from dataclasses import dataclass, fields
from typing import Literal

from memagent_train.runs.shapes import Shape

GIB = 2**30
Sharding = Literal["none", "fsdp", "zero2", "zero3"]
HALF, SINGLE = 2, 4
"""Bytes per number."""
MOMENTS = 2
"""Numbers that Adam stores per weight."""


@dataclass(frozen=True)
class Load:
    """What the memory depends on."""

    shape: Shape
    weight_bytes: int
    """Bytes per weight: 4 (float32) or 2."""
    half: bool
    """Whether passes use bf16."""
    adapter_rank: int | None
    """LoRA's rank; None if all weights are trained."""
    reference: bool
    """Whether the KL term has a second model (LoRA switches its adapter off instead)."""
    row_tokens: int
    """Tokens of the longest conversation."""
    rows: int
    """Conversations per pass."""
    checkpointing: bool
    conversations: int
    """Concurrent conversations of a device's rollouts; 0 if a server elsewhere makes them."""
    devices: int = 1
    sharding: Sharding = "none"
    engine: float = 0
    """Bytes that an engine beside the trainer keeps occupied."""


@dataclass(frozen=True)
class Memory:
    """Memory in bytes per device."""

    weights: float
    casts: float
    """bf16 copies of fp32 weights that autocast keeps during a pass."""
    gradients: float
    optimizer: float
    reference: float
    activations: float
    """Activations of one pass over the longest rows."""
    cache: float
    """Keys and values during rollouts, when there are no activations or gradients."""
    engine: float
    """Weights, keys and values of an engine beside the trainer, which keeps them throughout."""

    @property
    def peak(self) -> float:
        """The larger peak of training and rollouts."""
        base = self.weights + self.optimizer + self.reference + self.engine
        return base + max(self.casts + self.gradients + self.activations, self.cache)

    def lines(self) -> list[tuple[str, str]]:
        """Returns name and GiB of each part, and of the peak."""
        parts = [(field.name, getattr(self, field.name)) for field in fields(self)]
        return [(name, f"{size / GIB:.1f} GiB") for name, size in [*parts, ("peak", self.peak)]]


def memory(load: Load) -> Memory:
    """Estimates the memory of one device."""
    shape, devices = load.shape, load.devices
    zero = load.sharding in ("zero2", "zero3")
    # ZeRO's engine computes with bf16 weights and keeps fp32 copies with the moments.
    weight = HALF if zero else load.weight_bytes
    trained, each = shape.parameters, weight
    if load.adapter_rank is not None:
        # peft keeps an adapter in fp32, whatever the base model's type.
        trained, each = shape.adapter(load.adapter_rank), SINGLE
    moment = (1 + MOMENTS) * SINGLE if zero else MOMENTS * each
    shards = 1 if load.sharding in ("none", "zero2") else devices
    part = 1 if load.sharding == "none" else devices
    casts = HALF * shape.parameters if load.half and weight == SINGLE and part == 1 else 0
    return Memory(
        weights=weight * shape.parameters / shards + _count_gathered(load, weight, shards),
        casts=casts,
        gradients=each * trained / part,
        optimizer=moment * trained / part,
        reference=weight * shape.parameters / shards if load.reference else 0,
        activations=_activations(load),
        cache=load.conversations * load.row_tokens * kv_bytes(shape),
        engine=load.engine,
    )


def kv_bytes(shape: Shape) -> int:
    """Returns the bytes of keys and values per token in all layers, at 16 bits."""
    return 2 * shape.layers * shape.kv_heads * shape.head_dim * HALF


def _count_gathered(load: Load, weight: int, shards: int) -> float:
    """Returns the bytes of the current layer and the next one, unsharded, if weights are sharded; else 0."""
    if shards == 1:
        return 0
    shape = load.shape
    return 2 * weight * shape.parameters / (shape.layers + 1)


def _activations(load: Load) -> float:
    """Estimates the bytes that the backward pass needs from the forward pass.

    A layer stores its two normed inputs, its two sums, queries, keys, values and the attention's output, and four
    numbers for each feed-forward unit (gate, up, activation, product); attention scores are not stored (sdpa). If
    conversations with a common prefix are one sequence, all layers share one mask, at most as wide and high as the
    pass has tokens.
    """
    shape, size = load.shape, HALF if load.half else SINGLE
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    layer = 4 * shape.hidden + 2 * queries + 2 * keys + 4 * shape.intermediate
    tokens = load.rows * load.row_tokens
    numbers = shape.layers * shape.hidden + layer if load.checkpointing else shape.layers * layer
    return tokens * size * (numbers + tokens)
