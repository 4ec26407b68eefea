"""The tool agent as what is trained: each rollout plays one game."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol, Self, SupportsFloat, runtime_checkable

from pydantic import Field, model_validator

from memagent.errors import ConfigError
from memagent.messages import Leaf, Sampling
from memagent.models.base import ChatModel
from memagent.models.limit import Limits
from memagent.prompts.session import SessionPrompts
from memagent.run.result import SessionResult
from memagent.runstore import RunStore
from memagent.session.agent import ToolAgent
from memagent.tasks import Sample
from memagent.threads import in_thread
from memagent.tools import Environment
from memagent.trajectory import StopReason
from memagent_train.compact import CompactCalls, compact_wording
from memagent_train.fresh_runs import FreshRuns
from memagent_train.rollouts import ROLLOUT, Outcome, Running

OVERLONG = (StopReason.LIMIT, StopReason.OUT_OF_STEPS, StopReason.OUT_OF_SUMMARIES)
"""Limits that end a run before its answer. Other ends without one are the policy's fault, and scored."""
ALONE = Running("", seed=0)
"""Stands for the rollout where there is none."""


class SessionSettings(Leaf):
    """[agent.tools]: how the tool agent works (see `memagent.ToolAgent`)."""

    protocol: Literal["native", "text", "compact"] = "native"
    """How calls are sent: `native` as the chat template writes them, `text` as JSON in messages, `compact` as lines
    such as `cell(3, 4)`, for small policies and windows (`memagent_train.compact`)."""
    working_context: int | None = Field(default=None, gt=0)
    """W, tokens of prompt plus output; default the smaller of the policy's window and 8192."""
    max_summaries: int = Field(default=7, ge=0)
    """S. A session that needs one more ends as overlong."""
    max_steps: int = Field(default=100, gt=0)
    """H, replies that call tools. A session that needs one more ends as overlong."""
    summary_tokens: int | None = Field(default=None, gt=0)
    """Most tokens of a summary; default an eighth of the working context."""
    reply_tokens: int | None = Field(default=None, gt=0)
    """Most tokens of a reply; default what the working context has left."""
    instructions: str = ""
    """Appended to the instructions in the system message."""
    prompts: Path | None = None
    """The wording, a TOML file; None for memagent's, or the short one with `compact`."""

    @model_validator(mode="after")
    def _reply_fits(self) -> Self:
        if self.working_context is not None and (self.reply_tokens or 0) >= self.working_context:
            raise ConfigError(
                f"agent.tools.reply_tokens={self.reply_tokens!r} must be below "
                f"agent.tools.working_context={self.working_context!r}, which the prompt shares with the reply"
            )
        return self

    def wording(self) -> SessionPrompts:
        """The prompts. Blocks.

        Raises:
            PromptSetError: they can't be read.
        """
        compact = self.protocol == "compact"
        return SessionPrompts.load(self.prompts or (compact_wording() if compact else None))


@runtime_checkable
class Playable(Protocol):
    """A sample that is a game, such as `memagent_train.data.games.GameSample`."""

    def deal(self) -> Environment:
        """The game at its start. May block."""
        ...


class SessionFunction:
    """The tool agent as an `AgentFunction`: each rollout is one run, and the game's verdict its reward.

    Args:
        settings: the agent's.
        max_calls: calls after which a rollout is stopped, as overlong; None for no limit.
        store: where runs are kept; None keeps them only while they run.

    Raises:
        ConfigError: a setting has a bad value.
        PromptSetError: the prompts can't be read.
    """

    def __init__(
        self, settings: SessionSettings, max_calls: int | None, store: RunStore | None
    ) -> None:
        self._settings, self._prompts = settings, settings.wording()
        self._limits = None if max_calls is None else Limits(calls=max_calls)
        self._runs = FreshRuns(store)

    async def __call__(self, model: ChatModel, sample: Sample) -> Outcome:
        """Plays the sample's game.

        Raises:
            ConfigError: the sample is not a game.
        """
        if not isinstance(sample, Playable):
            raise ConfigError(
                f"the sample {sample.index} of {sample.task!r} is not a game: use = 'tools' needs data of kind 'game'"
            )
        game = await in_thread(sample.deal)
        running = ROLLOUT.get() or ALONE
        agent = self._agent(model, game, running.seed)
        if running is ALONE:
            return judge(game, await agent.arun(game.task))
        async with self._runs.run(running.rollout_id):
            return judge(game, await agent.arun(game.task, run_id=running.rollout_id))

    def _agent(self, model: ChatModel, game: Environment, seed: int) -> ToolAgent:
        settings, compact = self._settings, self._settings.protocol == "compact"
        return ToolAgent(
            CompactCalls(model) if compact else model,
            game.tools,
            protocol="text" if settings.protocol == "text" else "native",
            **settings.model_dump(exclude={"protocol", "prompts"}),
            prompts=self._prompts,
            sampling=Sampling(temperature=1.0, top_p=1.0),
            seed=seed,
            limits=self._limits,
            store=self._runs.store,
        )


def judge(game: Environment, result: SessionResult) -> Outcome:
    """What became of a game, once its session has ended.

    An answer that wasn't handed in yet is. A session that a limit ended is overlong; one that ended with an unusable
    reply, or in circles, is not: it gets the verdict, 0.
    """
    if result.answer is not None:
        game.finish(result.answer)
    return Outcome(
        result.answer,
        reward=verdict_of(game),
        overlong=result.truncated or result.stop_reason in OVERLONG,
        scores={"steps": float(game.steps), "summaries": float(result.summaries)},
    )


def verdict_of(game: Environment) -> float:
    """The verdict, a number: without one, the reward would be looked for elsewhere.

    Raises:
        ConfigError: the game gives none.
    """
    name = type(game).__name__
    try:
        verdict: object = game.verdict()
        if isinstance(verdict, SupportsFloat):
            return float(verdict)
    except Exception as error:  # the user's code may raise anything
        raise ConfigError(
            f"verdict() of the game {name!r} failed: {type(error).__name__}: {error}"
        ) from error
    raise ConfigError(
        f"verdict() of the game {name!r} returned {verdict!r:.80}: return a number from 0 to 1, and 0 while there is "
        f"no answer"
    )
