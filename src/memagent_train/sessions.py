"""The tool agent for training: each rollout plays one game."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Protocol, Self, SupportsFloat, runtime_checkable

from pydantic import model_validator

from memagent.errors import ConfigError, ToolError
from memagent.messages import Sampling
from memagent.models.base import ChatModel
from memagent.models.limit import Limits
from memagent.models.policy import WorkingSettings
from memagent.prompts.session import SessionPrompts
from memagent.run.result import SessionResult
from memagent.runstore import RunStore
from memagent.session.agent import ToolAgent
from memagent.tasks import Sample
from memagent.texts import name_error, quote
from memagent.threads import in_thread
from memagent.tools import Environment, Tool, Toolset
from memagent.trajectory import StopReason
from memagent_train.compact import CompactCalls, compact_wording
from memagent_train.fresh_runs import FreshRuns
from memagent_train.rollouts import ROLLOUT, TOOLS_FAILED, Outcome, Running

logger = logging.getLogger("memagent.train")

OVERLONG = (StopReason.LIMIT, StopReason.OUT_OF_STEPS, StopReason.OUT_OF_SUMMARIES)
"""Limits that end a run before its answer. Other ends without an answer are the policy's fault, and scored."""
ALONE = Running("", seed=0)
"""Takes the place of the rollout where there is none."""


class SessionSettings(WorkingSettings):
    """[agent.tools]: how the tool agent works (see `memagent.ToolAgent`)."""

    protocol: Literal["native", "text", "compact"] = "native"
    """How calls are sent: `native` as the chat template writes them, `text` as JSON in messages, `compact` as lines
    such as `cell(3, 4)`, for small policies and windows (`memagent_train.compact`)."""
    prompts: Path | None = None
    """A TOML file with the prompts; None: memagent's, or the short ones with `compact`."""

    @model_validator(mode="after")
    def _reply_fits(self) -> Self:
        if self.working_context is not None and (self.reply_tokens or 0) >= self.working_context:
            raise ConfigError(
                f"agent.tools.reply_tokens={self.reply_tokens!r} must be below "
                f"agent.tools.working_context={self.working_context!r}, which the prompt shares with the reply"
            )
        return self

    def wording(self) -> SessionPrompts:
        """Loads the prompts. Blocks.

        Raises:
            PromptSetError: the prompts can't be read.
        """
        compact = self.protocol == "compact"
        return SessionPrompts.load(self.prompts or (compact_wording() if compact else None))


@runtime_checkable
class Playable(Protocol):
    """A sample that is a game, such as `memagent_train.data.games.GameSample`."""

    def deal(self) -> Environment:
        """Deals the game from its start. May block."""
        ...


class SessionFunction:
    """The tool agent as an `AgentFunction`: each rollout is one run, and the game's verdict its reward.

    Args:
        settings: the agent's settings.
        max_calls: calls after which a rollout is stopped, as overlong; None: no limit.
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
        tools = WatchedTools(game)
        agent = self._agent(model, tools.tools, running.seed)
        if running is ALONE:
            return judge(game, await agent.arun(game.task), tools.failed)
        async with self._runs.run(running.rollout_id):
            result = await agent.arun(game.task, run_id=running.rollout_id)
            return judge(game, result, tools.failed)

    def _agent(self, model: ChatModel, tools: Sequence[Tool], seed: int) -> ToolAgent:
        settings, compact = self._settings, self._settings.protocol == "compact"
        return ToolAgent(
            CompactCalls(model) if compact else model,
            tools,
            protocol="text" if settings.protocol == "text" else "native",
            **settings.model_dump(exclude={"protocol", "prompts"}),
            prompts=self._prompts,
            sampling=Sampling(temperature=1.0, top_p=1.0),
            seed=seed,
            limits=self._limits,
            store=self._runs.store,
        )


class WatchedTools:
    """A game's tools, watched for bugs: errors other than a `ToolError`, and results that are not texts.

    The model sees them like any failed call. The first one of each tool is logged.
    """

    def __init__(self, game: Environment) -> None:
        self._game, self._calls, self._broken = type(game), 0, 0
        self.tools = [self._watch(tool) for tool in Toolset(game.tools).values()]

    @property
    def failed(self) -> float:
        """Share of calls that showed a bug."""
        return self._broken / max(1, self._calls)

    def _watch(self, tool: Tool) -> Tool:
        async def run(*arguments: Any) -> str:
            self._calls += 1
            try:
                text: Any = await tool.run(*arguments)
            except ToolError:
                raise
            except Exception as error:  # the game's code may raise anything
                self._note(tool.name, error)
                raise
            if not isinstance(text, str):  # the session tells the model about it
                self._note(tool.name, TypeError(f"it returned {quote(text)}, not a text"))
            return text

        return replace(tool, run=run)

    def _note(self, tool: str, error: Exception) -> None:
        self._broken += 1
        if (self._game, tool) in _warned:
            return
        _warned.add((self._game, tool))
        logger.warning(
            "tool %r of %s failed: %s. The policy sees a failed call, and training continues: fix the tool, or let it "
            "raise ToolError where the policy is to blame. The metric %s has the share of such calls",
            *(tool, self._game.__name__, name_error(error), TOOLS_FAILED),
        )


_warned: set[tuple[type, str]] = set()
"""Games and tools whose bug was already logged: each has many sessions."""


def judge(game: Environment, result: SessionResult, failed: float) -> Outcome:
    """Returns the outcome of a game whose session has ended.

    Hands in the answer if that wasn't done yet. A session is overlong if a limit ended it, including a token limit that
    cut off its last reply. It isn't if it ended with another unusable reply, or in circles: it gets the verdict, 0.

    Args:
        game: the game.
        result: result of its session.
        failed: share of tool calls that showed a bug.
    """
    if result.answer is not None:
        game.finish(result.answer)
    return Outcome(
        result.answer,
        reward=verdict_of(game),
        overlong=result.truncated or result.stop_reason in OVERLONG,
        scores={
            "steps": float(game.steps),
            "summaries": float(result.summaries),
            TOOLS_FAILED: failed,
        },
    )


def verdict_of(game: Environment) -> float:
    """Returns the verdict, a number: without one, the reward would be looked for elsewhere.

    Raises:
        ConfigError: the game gives no verdict.
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
