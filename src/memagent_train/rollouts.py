"""What training is made of: rollouts of samples, and the rows of token ids that they leave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from memagent.messages import CallKind
from memagent.tasks import Sample


class Status(StrEnum):
    """What became of a rollout."""

    SCORED = "scored"
    """It has a reward."""
    UNSCORED = "unscored"
    """It has an answer (or none) and no reward: the reward function said None, failed, or took too long."""
    FAILED = "failed"
    """The agent raised an error, or stopped without an answer for a reason that is not the policy's."""


@dataclass(frozen=True)
class Row:
    """One conversation in token ids, as the engine saw and sampled them."""

    prompt_ids: tuple[int, ...]
    """P ids up to where the policy first speaks."""
    response_ids: tuple[int, ...]
    """T ids after it: sampled ones, and what was said between turns."""
    loss_mask: tuple[int, ...]
    """T of 0 or 1: 1 where the policy sampled the id in a role that is trained."""
    logprobs: tuple[float, ...]
    """T log-probabilities under the policy that sampled; 0.0 where it did not sample."""
    kind: CallKind = "other"
    """Of its first call."""
    role: str = ""
    """As `memagent_train.roles.role` named it; empty for calls without a role."""
    final: bool = False
    """Whether its last call is the rollout's last."""
    truncated: bool = False
    """Whether a call of it was cut off at `max_tokens`."""
    span: tuple[int, int] | None = None
    """Of an update call: first character in `Sample.context` of the chunk that it was shown, and one past the last."""
    kept: bool | None = None
    """Of an update call with a gate: whether its reply carried the memory; None for other calls, and for replies that
    could not be used."""

    @property
    def sampled(self) -> int:
        """Ids that count in the loss."""
        return sum(self.loss_mask)


@dataclass(frozen=True)
class Rollout:
    """One run of an agent on one sample, with everything that training needs to know of it.

    A rollout without a reward (`status` is not `SCORED`) is left out of its group's baseline and of the loss.
    """

    group_id: str
    """Shared by the G rollouts of one sample in one step."""
    rollout_id: str
    """Unique in a training run; also the id of its run in the run store, where the agent keeps one."""
    sample: Sample
    rows: tuple[Row, ...]
    """C conversations, in the order in which they were opened."""
    answer: str | None
    status: Status
    reward: float | None = None
    """R; finite."""
    scores: Mapping[str, float] = field(default_factory=dict[str, float])
    """Figures that are logged beside the reward, such as a precision."""
    step_rewards: tuple[float | None, ...] | None = None
    """C rewards of single conversations (such as a gate's), None for those that get none; None where there are none."""
    error: str = ""
    """Why there is no reward, a sentence; empty where there is one."""
    overlong: bool = False
    """Whether the answer call was cut off, or a limit ended the run."""
    seconds: float = 0.0
    """From start to reward."""
