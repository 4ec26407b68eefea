"""What is trained: an async function of a model and a sample, such as the memory agent or your own."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields
from typing import Any

from pydantic import Field

from memagent.chunking import Cuts
from memagent.errors import ConfigError
from memagent.events import ChunkRead, MemoryKept, MemoryUpdated
from memagent.memory.agent import MemoryAgent
from memagent.messages import Sampling
from memagent.models.base import ChatModel
from memagent.models.limit import Limits
from memagent.models.policy import Degenerate, ReadingSettings
from memagent.models.scripted import ScriptedModel
from memagent.named import load_function
from memagent.run.result import Result, RunResult
from memagent.runstore import RunStore
from memagent.tasks import Sample
from memagent.threads import in_thread
from memagent_train.fresh_runs import FreshRuns
from memagent_train.rollouts import ROLLOUT, Outcome
from memagent_train.sessions import SessionFunction, SessionSettings

AgentFunction = Callable[[ChatModel, Sample], Awaitable["str | RunResult | Outcome | None"]]
"""`async def agent(model, sample)`: returns the answer, None if it found none, the result of a memagent agent, or an
`Outcome`."""

MEMORY, TOOLS = "memory", "tools"
SHARED = frozenset({"use", "max_calls"})
"""Settings that both of memagent's agents have."""
ONE_AT_A_TIME = 1
"""The memory agent's limit on calls in flight: it has one question, and concurrency is limited across rollouts."""


@dataclass(frozen=True)
class Read:
    """One chunk shown to an agent with an update gate, and what the agent did with it."""

    ids: tuple[int, ...]
    """Token ids of the call whose reply was used: prompt, then reply."""
    span: tuple[int, int]
    """First character of the chunk in the document, and one past the last."""
    kept: bool
    """Whether the reply kept the memory."""


@dataclass(frozen=True, repr=False, kw_only=True)
class GatedResult(Result):
    """The result of a run with an update gate."""

    reads: tuple[Read, ...] = ()


class AgentSettings(ReadingSettings):
    """The agent to train, and how the memory agent reads (see `memagent.MemoryAgent`)."""

    use: str = MEMORY
    """`memory`, `tools` (plays the games of data of kind `game`), or `module:function` for an async function of your
    own; modules in the current folder are found."""
    prompts: str = "plain"
    """A shipped prompt set, or a TOML file."""
    cuts: Cuts = "exact"
    degenerate: Degenerate = "take"
    """`take` by default: rewards judge degenerate memories, and a retried reply wouldn't be the policy's."""
    max_calls: int | None = Field(default=None, gt=0)
    """Maximum calls of a rollout, which is then stopped without an answer, as overlong."""
    tools: SessionSettings | None = None
    """Settings of the tool agent; the others are the memory agent's."""


def load_agent(settings: AgentSettings, *, store: RunStore | None) -> AgentFunction:
    """Loads the agent that the settings name.

    Args:
        settings: the agent's settings.
        store: where memagent's agents store their runs, under the rollouts' ids; None keeps them only while they run.

    Raises:
        ConfigError: the prompt set or function can't be loaded, or a setting has a bad value or belongs to another
            agent.
    """
    _check_belonging(settings)
    if settings.use == MEMORY:
        return MemoryFunction(settings, store)
    if settings.use == TOOLS:
        return SessionFunction(settings.tools or SessionSettings(), settings.max_calls, store)
    function = load_function(settings.use, "agent")
    if not is_async(function):
        raise ConfigError(
            f"the agent {settings.use!r} must be an async function: write `async def agent(model, sample):`"
        )
    try:
        inspect.signature(function).bind("model", "sample")
    except TypeError as error:
        raise ConfigError(
            f"the agent {settings.use!r} cannot be called with a model and a sample ({error}): write "
            f"`async def agent(model, sample):`"
        ) from error
    return function


def _check_belonging(settings: AgentSettings) -> None:
    """Raises a `ConfigError` if a setting belongs to an agent other than the one used."""
    names = settings.model_fields_set - {"use"}
    others = {MEMORY: names & {"tools"}, TOOLS: names - SHARED - {"tools"}}.get(settings.use, names)
    if others:
        owner = "tool" if others == {"tools"} else "memory"
        raise ConfigError(
            f"{', '.join(sorted(others))}: these are settings of the {owner} agent, but use={settings.use!r} names "
            f"another agent; leave them out"
        )


class MemoryFunction:
    """The memory agent as an `AgentFunction`: each rollout is one run.

    Args:
        settings: the agent's settings.
        store: where runs are kept; None keeps them only while they run.

    Raises:
        ConfigError: a setting has a bad value.
    """

    def __init__(self, settings: AgentSettings, store: RunStore | None) -> None:
        self._may_keep = settings.gate in ("update", "both")
        self._runs = FreshRuns(store)
        self._agent = MemoryAgent(
            ScriptedModel([]),  # a placeholder for the rollouts' models
            prompts=settings.prompts,
            **settings.model_dump(include=set(ReadingSettings.model_fields)),
            sampling=Sampling(temperature=1.0, top_p=1.0),
            limits=None if settings.max_calls is None else Limits(calls=settings.max_calls),
            concurrency=ONE_AT_A_TIME,
            store=self._runs.store,
        )

    async def __call__(self, model: ChatModel, sample: Sample) -> Result:
        """Reads the sample's document, and answers its question."""
        running = ROLLOUT.get()
        agent = self._agent.with_model(model, seed=0 if running is None else running.seed)
        if running is None:
            return await agent.aask(sample.context, sample.question)
        run_id = running.rollout_id
        async with self._runs.run(run_id):
            result = await agent.aask(sample.context, sample.question, run_id=run_id)
            return await in_thread(self._with_reads, result) if self._may_keep else result

    def _with_reads(self, result: Result) -> GatedResult:
        """Adds what the run's log says about its chunks to the result. Blocks."""
        spans: dict[int, tuple[int, int]] = {}
        decisions: list[bool] = []
        for event in self._runs.store.events(result.run_id):
            if isinstance(event, ChunkRead):
                spans[event.chunk] = event.start, event.end
            elif isinstance(event, (MemoryKept, MemoryUpdated)):
                decisions.append(isinstance(event, MemoryKept))
        conversations = (
            conversation
            for conversation in result.trajectory.conversations
            if conversation.chunk is not None
        )
        reads = tuple(
            Read(
                conversation.tokens.prompt + conversation.tokens.sampled,
                spans[conversation.chunk or 0],
                keeps,
            )
            for conversation, keeps in zip(
                conversations, decisions, strict=True
            )  # in order, including those read again
            if conversation.tokens is not None
        )
        return GatedResult(**{f.name: getattr(result, f.name) for f in fields(Result)}, reads=reads)


def is_async(function: Callable[..., Any]) -> bool:
    """Returns whether the function is an `async def`, or an object whose `__call__` is one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        type(function).__call__
    )
