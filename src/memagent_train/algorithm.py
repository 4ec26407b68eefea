"""Settings of the algorithm, of a batch, and of the optimizer."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from memagent.messages import Leaf


class AlgorithmSettings(Leaf):
    """[algorithm]: from rewards to a loss.

    The defaults are those of MemAgent's Multi-Conv DAPO (arXiv 2507.02259), with DAPO's clip-higher and dynamic
    sampling (arXiv 2503.14476).
    """

    scale: Literal["none", "std"] = "none"
    """`none`: advantages are rewards less their group's mean; `std`: also divided by its standard deviation."""
    token_mean: Literal["group", "batch"] = "group"
    """`group`: every group weighs the same, and in it every token (the paper's); `batch`: every token of the batch
    does."""
    epsilon_low: float = Field(default=0.2, gt=0, lt=1)
    """Ratios are clipped below at 1 less this."""
    epsilon_high: float = Field(default=0.28, gt=0, allow_inf_nan=False)
    """Ratios are clipped above at 1 plus this; the paper clips at 0.2."""
    beta: float = Field(default=0.001, ge=0, allow_inf_nan=False)
    """Weight of the KL term; 0: no reference model is kept."""
    ratio: Literal["rollout", "recomputed", "truncated"] = "rollout"
    """What the old log-probabilities of the ratio are. `rollout`: those that the sampling engine gave (the paper's);
    `recomputed`: the trainer's own, before the first update; `truncated`: recomputed, and every token's advantage is
    weighed by min(trainer's / engine's probability, `ratio_cap`), for an engine with other arithmetic."""
    ratio_cap: float = Field(default=2.0, gt=0, allow_inf_nan=False)
    """Largest of those weights."""
    overlong_mask: bool = False
    """Whether no conversation of an overlong rollout is trained on; its reward stays in the baseline."""
    overlong_length: int | None = Field(default=None, gt=0)
    """L_max of the soft overlong penalty, in sampled tokens of a rollout's longest conversation; None: no penalty."""
    overlong_window: int = Field(default=256, gt=0)
    """L_cache: over so many tokens before L_max the penalty grows from 0 to 1."""
    step_weight: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Weight of the advantages of single conversations (a gate's rewards); 0: they are only logged."""
    dynamic_sampling: bool = True
    """Whether groups that teach nothing (all rewards equal, or none) are dropped and others are rolled out instead."""
    max_refills: int = Field(default=2, ge=0)
    """Most times a step; then it goes on with the groups there are."""

    @model_validator(mode="after")
    def _window_fits(self) -> Self:
        if self.overlong_length is not None and self.overlong_window > self.overlong_length:
            raise ValueError(
                f"overlong_window {self.overlong_window!r} is more than overlong_length {self.overlong_length!r}: "
                f"the penalty would start below no tokens"
            )
        return self


class BatchSettings(Leaf):
    """[batch]: what a step rolls out, and how it is cut up. A step is one batch of rollouts and all its updates."""

    groups: int = Field(default=8, gt=0)
    """Samples a step and process."""
    group_size: int = Field(default=16, ge=2)
    """G, rollouts a sample; one alone would have no baseline."""
    micro_batches: int = Field(default=16, gt=0)
    """Forward and backward passes an update; more of them need less memory."""
    updates: int = Field(default=1, gt=0)
    """Optimizer updates that share a batch: each trains on a part of its conversations."""
    iterations: int = Field(default=1, gt=0)
    """Times that a batch is gone through."""

    @property
    def updates_per_step(self) -> int:
        """Optimizer updates from one batch of rollouts to the next."""
        return self.updates * self.iterations

    def between_steps(self, updates: int) -> bool:
        """Whether after so many updates no batch is half used.

        Only there can a checkpoint be resumed from: the rollouts of a half-used batch are not kept.
        """
        return updates % self.updates_per_step == 0


class OptimizerSettings(Leaf):
    """[optimizer]: AdamW. The defaults of rate, warm-up, decay and clipping are the published ones."""

    steps: int = Field(default=200, gt=0)
    """Batches of rollouts."""
    learning_rate: float = Field(default=1e-6, gt=0, allow_inf_nan=False)
    """Constant after the warm-up."""
    warmup_steps: int = Field(default=20, ge=0)
    """Batches of rollouts over which the rate grows from 0."""
    weight_decay: float = Field(default=0.01, ge=0, allow_inf_nan=False)
    max_grad_norm: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Longer gradients are shortened to this."""
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    """Arithmetic of forward and backward passes: `auto` is bf16 on a GPU that has it, fp32 elsewhere. Weights keep
    their own type; updates as small as these are lost in bf16 weights."""
    seed: int = Field(default=0, ge=0, lt=2**32)
    """Of the order of the data, and of everything else that is drawn."""
