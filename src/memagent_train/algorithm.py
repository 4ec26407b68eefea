"""Settings of the algorithm, of a batch, and of the optimizer."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from memagent.messages import CallKind, Leaf


class AlgorithmSettings(Leaf):
    """[algorithm]: how rewards become a loss.

    The defaults are those of MemAgent's Multi-Conv DAPO (arXiv 2507.02259), with DAPO's clip-higher and dynamic
    sampling (arXiv 2503.14476).
    """

    scale: Literal["none", "std"] = "none"
    """`none`: advantages are rewards minus their group's mean; `std`: also divided by its standard deviation."""
    token_mean: Literal["group", "batch"] = "group"
    """`group`: every group has the same weight, and within it every token (as in the paper); `batch`: every token of
    the batch has the same weight."""
    epsilon_low: float = Field(default=0.2, gt=0, lt=1)
    """Ratios are clipped below at 1 minus this."""
    epsilon_high: float = Field(default=0.28, gt=0, allow_inf_nan=False)
    """Ratios are clipped above at 1 plus this; the paper clips at 0.2."""
    beta: float = Field(default=0.001, ge=0, allow_inf_nan=False)
    """Weight of the KL term; with 0 there is no reference model."""
    ratio: Literal["rollout", "recomputed", "truncated"] = "rollout"
    """The old log-probabilities of the ratio. `rollout`: those of the sampling engine (as in the paper);
    `recomputed`: the trainer's, before the first update; `truncated`: recomputed, and every token's advantage is
    weighted by min(trainer's / engine's probability, `ratio_cap`), for an engine with different arithmetic or older
    weights: the default with `rollout.ahead`."""
    ratio_cap: float = Field(default=2.0, gt=0, allow_inf_nan=False)
    """Maximum of those weights."""
    overlong_mask: bool = False
    """Whether overlong rollouts are excluded from training; their reward stays in the baseline."""
    weights: dict[CallKind, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(
        default_factory=dict[CallKind, float]
    )
    """Weights of tokens in the loss by the kind of their call; 1 for kinds not named. `{ summary = 0 }` freezes
    summaries: they're written, but not trained. Tokens of weight 0 don't count in means either."""
    rejected: Literal["train", "leave_out"] = "train"
    """Whether to train on replies that were unusable and asked for again. The policy sampled them, so leaving them out
    biases the gradient, but they can be many."""
    overlong_length: int | None = Field(default=None, gt=0)
    """L_max of the soft overlong penalty, in sampled tokens of a rollout's longest conversation; None: no penalty."""
    overlong_window: int = Field(default=256, gt=0)
    """L_cache: the penalty grows from 0 to 1 over this many tokens before L_max."""
    step_weight: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Weight of single conversations' advantages (a gate's rewards); with 0 they are only logged."""
    dynamic_sampling: bool = True
    """Whether groups without a signal (all rewards equal, or none) are dropped and others rolled out instead."""
    max_refills: int = Field(default=2, ge=0)
    """Maximum refills per step; after that, the step continues with the groups it has."""

    @model_validator(mode="after")
    def _window_fits(self) -> Self:
        if self.overlong_length is not None and self.overlong_window > self.overlong_length:
            raise ValueError(
                f"overlong_window must be at most overlong_length ({self.overlong_length!r}), got "
                f"{self.overlong_window!r}: "
                f"the penalty would start below 0 tokens"
            )
        return self


class BatchSettings(Leaf):
    """[batch]: what a step rolls out, and how it is split. A step is one batch of rollouts and all its updates."""

    groups: int = Field(default=8, gt=0)
    """Samples per step and process."""
    group_size: int = Field(default=16, ge=2)
    """G, rollouts per sample; a single one would have no baseline."""
    micro_batches: int = Field(default=16, gt=0)
    """Forward and backward passes per update, of about equal size; more passes need less memory."""
    micro_batch_tokens: int | None = Field(default=None, gt=0)
    """Maximum tokens of a pass, including padding; tokens shared by conversations count once. An update that exceeds it
    takes more passes than `micro_batches`. A longer conversation gets a pass of its own. None: no maximum."""
    updates: int = Field(default=1, gt=0)
    """Optimizer updates that share a batch: each trains on a part of its conversations."""
    iterations: int = Field(default=1, gt=0)
    """Passes over a batch."""

    @property
    def updates_per_step(self) -> int:
        """Optimizer updates per batch of rollouts."""
        return self.updates * self.iterations

    def between_steps(self, updates: int) -> bool:
        """Returns whether no batch is partly used after this many updates.

        A checkpoint can be resumed only at such a point: the rollouts of a partly used batch aren't kept.
        """
        return updates % self.updates_per_step == 0


class OptimizerSettings(Leaf):
    """[optimizer]: AdamW. Defaults of rate, warm-up, decay and clipping are the published ones."""

    steps: int = Field(default=200, gt=0)
    """Training steps; each is a batch of rollouts."""
    learning_rate: float = Field(default=1e-6, gt=0, allow_inf_nan=False)
    """Learning rate; constant after the warm-up."""
    warmup_steps: int = Field(default=20, ge=0)
    """Steps over which the rate grows from 0."""
    weight_decay: float = Field(default=0.01, ge=0, allow_inf_nan=False)
    max_grad_norm: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Maximum gradient norm; larger gradients are scaled down."""
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    """Arithmetic of forward and backward passes: `auto` is bf16 on a GPU that supports it, fp32 elsewhere. Weights keep
    their own type; updates this small would be lost in bf16 weights."""
    seed: int = Field(default=0, ge=0, lt=2**32)
    """Seed for the order of the data and all other randomness."""
