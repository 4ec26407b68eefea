"""The data of training: rollouts of samples, and their rows of token ids."""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum

from memagent.messages import CallKind
from memagent.tasks import Sample


class Status(StrEnum):
    """The outcome of a rollout."""

    SCORED = "scored"
    """The rollout has a reward."""
    UNSCORED = "unscored"
    """The rollout finished, with or without an answer, but the reward function returned None, failed or timed out."""
    FAILED = "failed"
    """The agent raised an error, or stopped without an answer for a reason that isn't the policy's fault."""


@dataclass(frozen=True)
class Running:
    """The rollout that an agent's code runs in."""

    rollout_id: str
    seed: int
    """Seed of everything drawn in the rollout."""


TOOLS_FAILED = "tools/failed"
"""Name of a tool session's score in the log: the share of its tool calls that showed a bug in a tool."""
ROLLOUT: ContextVar[Running | None] = ContextVar("ROLLOUT", default=None)
"""The current rollout, set while an agent runs in one."""


@dataclass(frozen=True)
class Outcome:
    """What an agent may return to report more than its answer.

    ```python
    async def agent(model, sample):
        game = sample.deal()  # a sample of a game
        ...
        return Outcome(answer, reward=game.verdict(), overlong=answer is None)
    ```
    """

    answer: str | None
    reward: float | None = None
    """Replaces the task's score (`reward.use = "task"`); other rewards judge the answer. None if the agent has none."""
    overlong: bool = False
    """Whether a limit ended the run before an answer."""
    scores: Mapping[str, float] = field(default_factory=dict[str, float])
    """Figures to log; those that aren't finite, or are beyond 1e9, are left out."""


@dataclass(frozen=True)
class Span:
    """The ids that one call sampled, as a part of its conversation's response."""

    start: int
    """Index of the first id in `Row.response_ids`."""
    end: int
    """Index one past the last id."""
    kind: CallKind
    """Kind of the call: `act`, `summary`, `update`, `answer` or `other`."""
    role: str = ""
    """Role of the call, as named by `memagent_train.roles.role`; empty without one."""
    rejected: bool = False
    """Whether the reply was unusable and asked for again."""


@dataclass(frozen=True)
class Row:
    """One conversation in token ids, as the engine saw and sampled them."""

    prompt_ids: tuple[int, ...]
    """P ids before the policy's first token."""
    response_ids: tuple[int, ...]
    """T ids after the prompt: sampled ones, and those between turns."""
    loss_mask: tuple[float, ...]
    """T weights in the loss: 1 if the policy sampled the id in a trained role, else 0. `algorithm.weights` may replace
    the 1 by other numbers."""
    logprobs: tuple[float, ...]
    """T log-probabilities under the sampling policy; 0.0 for ids that it didn't sample."""
    kind: CallKind = "other"
    """Kind of the first call."""
    final: bool = False
    """Whether the last call is the rollout's last."""
    truncated: bool = False
    """Whether a call was cut off at `max_tokens`."""
    span: tuple[int, int] | None = None
    """For an update call: first character of the shown chunk in `Sample.context`, and one past the last."""
    kept: bool | None = None
    """For an update call with a gate: whether the reply kept the memory; None for other calls and for unusable replies.
    """
    spans: tuple[Span, ...] = ()
    """The sampled ids of each call, in order. Ids between spans were shown: results of tools, the next question."""

    @property
    def ids(self) -> tuple[int, ...]:
        """All ids: prompt and response."""
        return self.prompt_ids + self.response_ids

    @property
    def sampled(self) -> int:
        """Number of ids that count in the loss."""
        return sum(weight > 0 for weight in self.loss_mask)


@dataclass(frozen=True)
class Rollout:
    """One run of an agent on one sample, with everything that training needs.

    A rollout without a reward (`status` is not `SCORED`) is left out of its group's baseline and of the loss.
    """

    group_id: str
    """Shared by the G rollouts of one sample in one step."""
    rollout_id: str
    """Unique id in a training run; also the id of its run in the run store, if the agent uses one."""
    sample: Sample
    rows: tuple[Row, ...]
    """C conversations, in the order they were opened."""
    answer: str | None
    status: Status
    reward: float | None = None
    """R; a finite number."""
    scores: Mapping[str, float] = field(default_factory=dict[str, float])
    """Other figures to log, such as a precision."""
    step_rewards: tuple[float | None, ...] | None = None
    """C rewards of single conversations (such as a gate's), None for one without a reward; None if there are none."""
    error: str = ""
    """Why there is no reward, as a sentence; empty if there is one."""
    overlong: bool = False
    """Whether the last reply was cut off, or a limit (of calls, steps or summaries) ended the run."""
    seconds: float = 0.0
    """Seconds from the start to the reward."""
