"""`ToolAgent`: settings, and the ways to run the loop (`session.py`) with them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from os import PathLike
from pathlib import Path
from typing import Any

from memagent.errors import ConfigError, RunMismatch
from memagent.events import Event, SessionStarted
from memagent.messages import Sampling
from memagent.models.base import ChatModel
from memagent.models.limit import Limits, UsageLimit
from memagent.models.spec import open_model
from memagent.prompts.session import SessionPrompts
from memagent.run.agent import Agent
from memagent.run.result import SessionResult
from memagent.run.runner import Journal
from memagent.run.stream import EventStream
from memagent.runstore import RunStore
from memagent.runstore.effects import ANSWER
from memagent.session.context.archive import READ_ARCHIVED
from memagent.session.loop import Session
from memagent.session.plan import Protocol, ToolPlan, ToolSettings
from memagent.threads import in_thread
from memagent.tokens import TokenCounter
from memagent.tools import Tool, Toolset
from memagent.trajectory import StopReason, Trajectory


class ToolAgent(Agent):
    """Works on a task with tools, for as many steps as it takes, within a working context of fixed size.

    When the context is full, its older part is replaced by a summary that the model writes (see `SummaryBuffer`).

    Args:
        model: a spec (`vllm:NAME`, `sglang:NAME`, `openai:NAME`, `transformers:FOLDER`), any `ChatModel`, or None for
            `MEMAGENT_MODEL`.
        tools: functions with type hints, or `Tool`s (`memagent.tools.tool`, an MCP server's).
        working_context: most tokens of prompt plus output of a call; default the smaller of the model's window and
            8192.
        max_summaries: how often turns may be summarised.
        max_steps: how many replies may call tools.
        summary_tokens: most tokens of a summary; default an eighth of the working context.
        protocol: `native` (the default) uses the server's own tool calls; `text` writes them into messages, for
            models and servers without.
        instructions: stands behind memagent's own in the system message.
        early: share of the limit from which a summary is begun in the background; default: when it is due.
        prompts: the wording: a TOML file or `SessionPrompts`; default memagent's own.
        base_url: the server's address, or a list of several; default as `memagent.models.spec.open_model` finds it.
        api_key: the server's key; default from `MEMAGENT_API_KEY` or `OPENAI_API_KEY`.
        tokenizer: what counts tokens instead of the model's own counter.
        sampling: temperature and top_p.
        seed: of the run; each call's seed is derived from it.
        limits: stop a run (resumably) at so many calls, tokens, seconds, or so much money.
        concurrency: most calls in flight at once (several runs).
        store: where runs are kept: a file, a `RunStore`, or None for a temporary one; `"default"` is a file in the
            user's state folder.

    Raises:
        ConfigError: a setting has a bad value, or a tool is none.
        NoModel: no model was named or found.
        PromptSetError: the prompts cannot be read.
    """

    def __init__(
        self,
        model: str | ChatModel | None = None,
        tools: Iterable[Tool | Callable[..., Any]] = (),
        *,
        working_context: int | None = None,
        max_summaries: int | None = None,
        max_steps: int | None = None,
        summary_tokens: int | None = None,
        protocol: Protocol | None = None,
        instructions: str | None = None,
        early: float | None = None,
        prompts: SessionPrompts | str | PathLike[str] | None = None,
        base_url: str | Sequence[str] | None = None,
        api_key: str | None = None,
        tokenizer: str | Path | TokenCounter | None = None,
        sampling: Sampling | None = None,
        seed: int = 0,
        limits: Limits | None = None,
        concurrency: int = 16,
        store: RunStore | str | Path | None = "default",
    ) -> None:
        self.tools = Toolset(tools)
        if READ_ARCHIVED.name in self.tools:
            raise ConfigError(
                f"a tool is named {READ_ARCHIVED.name!r}, as is the one that every session has: give it another name"
            )
        self.prompts = SessionPrompts.load(prompts)
        self.settings = ToolSettings.chosen(
            working_context=working_context,
            max_summaries=max_summaries,
            max_steps=max_steps,
            summary_tokens=summary_tokens,
            protocol=protocol,
            instructions=instructions,
            early=early,
            sampling=sampling,
            seed=seed,
        )
        opened = open_model(model, base_url=base_url, api_key=api_key, tokenizer=tokenizer)
        super().__init__(opened, concurrency=concurrency, limits=limits, store=store)

    def run(self, task: str, *, run_id: str | None = None) -> SessionResult:
        """Works on the task until it is answered, or a limit is reached.

        Args:
            task: what to do.
            run_id: names the run. An existing run of the same task, tools and settings is finished, or its result
                returned.

        Raises:
            MemagentError: see `memagent.errors`; `error.run_id` names the run that can be resumed.
        """
        stream = self.stream(task, run_id=run_id)
        return self._finish(stream.run_id, stream.finish())

    async def arun(self, task: str, *, run_id: str | None = None) -> SessionResult:
        """`run`, awaited."""
        return await self.stream(task, run_id=run_id).finish()

    def stream(self, task: str, *, run_id: str | None = None) -> SessionStream:
        """Runs the session as an async iterator of events; `.result` when it is through."""
        return SessionStream(self, task, run_id)

    def resume(self, run_id: str) -> SessionResult:
        """Finishes a run of this agent: no committed call is sent again, and no finished tool runs again.

        A tool that was under way runs again if it is idempotent; else the model is told that it was interrupted.

        Raises:
            RunNotFound: the store has no such run.
            RunMismatch: this agent's settings or tools differ from the run's.
            ConfigError: the run has more steps or summaries than `max_steps` or `max_summaries` allow.
        """
        stream = self.resume_stream(run_id)
        return self._finish(stream.run_id, stream.finish())

    async def aresume(self, run_id: str) -> SessionResult:
        """`resume`, awaited."""
        stream = await in_thread(self.resume_stream, run_id)
        return await stream.finish()

    def resume_stream(self, run_id: str) -> SessionStream:
        """`resume` as an async iterator of events: the committed ones first."""
        binding = self.store.get(run_id).binding
        if binding["agent"] != "tools":
            raise RunMismatch(
                f"run {run_id!r} reads a document: resume it with MemoryAgent, or `memagent resume`"
            )
        return SessionStream(self, binding["questions"][0], run_id)

    async def plan(self, task: str, *, working_context: int | None = None) -> ToolPlan:
        """Asks the model for its window and counter, and renders the prompt.

        Args:
            task: what to do.
            working_context: that of the run that is resumed, used unless this agent was given one: a server's window
                may have grown since.

        Raises:
            ConfigError: the task is no text, or the working context is over the window.
            ModelError: the server had to be asked and did not answer.
        """
        settings = self.settings
        window = await self.reported_window(settings.working_context)
        if settings.working_context is None:
            settings = settings.model_copy(update={"working_context": working_context})
        return await in_thread(
            ToolPlan.make,
            task,
            settings,
            self.prompts,
            self.tools,
            model=self.model.name,
            counter=await self.model.counter(),
            window=window,
        )

    def __repr__(self) -> str:
        return f"ToolAgent({self.model.name!r}, tools={list(self.tools)})"


class SessionStream(EventStream[SessionResult]):
    """One tool session as an async iterator of events; `result` when it is through."""

    def __init__(self, agent: ToolAgent, task: str, run_id: str | None) -> None:
        super().__init__(run_id)
        self._agent, self._task_text = agent, task

    @property
    def result(self) -> SessionResult:
        """What came of the session.

        Raises:
            ConfigError: the events were not consumed to the end.
        """
        return self.outcome

    async def _run(self) -> AsyncGenerator[Event]:
        agent = self._agent
        store = await in_thread(lambda: agent.store)
        known = await in_thread(store.find, self.run_id)
        window = None
        # A document's run has another window, and is refused for what it is.
        if known is not None and known.binding["agent"] == "tools":
            window = known.binding["budget"]["window"]
        plan = await agent.plan(self._task_text, working_context=window)
        opened = Journal.open(
            store,
            self.run_id,
            binding=plan.binding(),
            settings={"model": agent.model.name, **agent.settings.model_dump(mode="json")},
            source={"name": "", "path": None},
        )
        async with opened as journal:
            model = agent.model
            if agent.limits is not None:
                spent = await in_thread(store.usage, self.run_id)
                model = model.around(UsageLimit(model.inner, agent.limits, spent=spent))
            session = Session(plan, model, journal)
            started = SessionStarted(
                run_id=self.run_id,
                model=plan.model,
                task=plan.task,
                tools=tuple(plan.tools),
                counter=plan.counter.name,
                working_context=plan.working_context,
            )
            async with aclosing(session.events(started)) as events:
                async for event in events:
                    yield event
            self._outcome = await in_thread(_result, store, self.run_id, session)


def _result(store: RunStore, run_id: str, session: Session) -> SessionResult:
    """Reads a session's result from the store. Blocks."""
    effects = store.effects(run_id)
    ended = effects.find(ANSWER)
    answer = None if ended is None else ended["answer"]
    reason, detail = session.stopped or (StopReason.ANSWERED, "")
    segments = effects.segments()
    if session.unfinished:
        segments = [*segments, *session.unfinished]
    return SessionResult(
        task=session.plan.task,
        answer=answer,
        stop_reason=reason,
        usage=store.usage(run_id),
        steps=session.steps,
        summaries=session.summaries,
        run_id=run_id,
        trajectory=Trajectory(segments, answer, reason),
        detail=detail,
        truncated=session.truncated,
    )
