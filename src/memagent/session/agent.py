"""`ToolAgent`: its settings, and the ways to run its loop (`loop.py`). `Session`: a conversation with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from os import PathLike
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from memagent.errors import ConfigError, RunMismatch
from memagent.messages import Sampling
from memagent.models.base import ChatModel
from memagent.models.limit import Limits
from memagent.models.policy import Protocol, policy_of
from memagent.prompts.output import Output
from memagent.prompts.session import SessionPrompts
from memagent.run.agent import Agent, OnEvent
from memagent.run.plan import check_text
from memagent.run.result import SessionResult
from memagent.run.stream import EventStream
from memagent.run.sync import check_run_id, new_run_id
from memagent.runstore import RunStore
from memagent.session.context.archive import READ_ARCHIVED
from memagent.session.loop import ToolLoop
from memagent.session.plan import ToolPlan, ToolSettings
from memagent.session.user_messages import UserMessage
from memagent.threads import in_thread
from memagent.tools import Tool, Toolset


class ToolAgent(Agent[ToolSettings]):
    """Works on a task with tools, for as many steps as it takes, within a fixed-size working context.

    When the context is full, the model replaces its older part with a summary (see `SummaryBuffer`). For a model that
    comes with settings (`memagent.models.policy`), those replace the defaults below.

    Args:
        model: a spec, as in `open_model` (`vllm:NAME`), any `ChatModel`, or None for `MEMAGENT_MODEL`.
        tools: functions with type hints, or `Tool`s (`memagent.tools.tool`, an MCP server's).
        working_context: maximum tokens of prompt plus output per call; default the smaller of the model's window and
            8192.
        max_summaries: maximum number of summaries for the task, and for each later message of a session.
        max_steps: maximum number of replies that call tools, counted the same way.
        summary_tokens: maximum tokens of a summary; default an eighth of the working context.
        reply_tokens: maximum tokens of a reply, including reasoning; default what the working context has left.
        protocol: `native` (the default) uses the server's tool calls; `text` writes them into messages if it has none.
        instructions: appended to memagent's instructions in the system message.
        early: share of the limit at which a summary is started in the background; default: when it is due.
        prompts: the wording: a TOML file or `SessionPrompts`; default memagent's.
        sampling: temperature and top_p.
        seed: seed of the run; each call's seed is derived from it.
        limits: stop a run (resumably) at a number of calls, tokens or seconds, or at a cost.
        concurrency: maximum calls in flight (several runs).
        store: where runs are kept: a file, a `RunStore`, or None for a temporary one; `"default"` is a file in the
            user's state folder.

    Raises:
        ConfigError: a setting has a bad value, or a tool is invalid.
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
        reply_tokens: int | None = None,
        protocol: Protocol | None = None,
        instructions: str | None = None,
        early: float | None = None,
        prompts: SessionPrompts | str | PathLike[str] | None = None,
        sampling: Sampling | None = None,
        seed: int = 0,
        limits: Limits | None = None,
        concurrency: int = 16,
        store: RunStore | str | Path | None = "default",
    ) -> None:
        self.tools = Toolset(tools)
        if READ_ARCHIVED.name in self.tools:
            raise ConfigError(
                f"the tool name {READ_ARCHIVED.name!r} is reserved for the tool that every session has: rename yours, "
                f"or give prefix= for an MCP server"
            )
        super().__init__(model, concurrency=concurrency, limits=limits, store=store)
        policy = policy_of(self.model).tools
        self.prompts = SessionPrompts.load(policy.prompts if prompts is None else prompts)
        self.settings = ToolSettings.choose(
            policy.model_dump(exclude={"prompts"}, exclude_unset=True),
            working_context=working_context,
            max_summaries=max_summaries,
            max_steps=max_steps,
            summary_tokens=summary_tokens,
            reply_tokens=reply_tokens,
            protocol=protocol,
            instructions=instructions,
            early=early,
            sampling=sampling,
            seed=seed,
        )

    def session(self, run_id: str | None = None) -> Session:
        """Returns a conversation whose messages share one working context and one run.

        Args:
            run_id: name of the run. One with the same settings is reopened; its next message may have other tools.

        Raises:
            ConfigError: the name is not safe as a file name.
        """
        return Session(self, run_id)

    def run(
        self, task: str, *, run_id: str | None = None, on_event: OnEvent | None = None
    ) -> SessionResult:
        """Works on the task until it is answered or a limit is reached: the first `send` of a session.

        Args:
            task: what to do.
            run_id: name of the run. One with the same task, tools and settings is resumed, or its result returned.
            on_event: called with each event, in this thread.

        Raises:
            MemagentError: see `memagent.errors`; `error.run_id` names the run that can be resumed.
        """
        return self._finish(self.stream(task, run_id=run_id), on_event)

    async def arun(self, task: str, *, run_id: str | None = None) -> SessionResult:
        """Async version of `run`."""
        return await self.stream(task, run_id=run_id).finish()

    def stream(self, task: str, *, run_id: str | None = None) -> SessionStream:
        """Runs the task as an async iterator of events; `.result` is available at the end."""
        return SessionStream(ToolLoop(self, check_text("the task", task), first=True), run_id)

    def resume(self, run_id: str, *, on_event: OnEvent | None = None) -> SessionResult:
        """Resumes a run of this agent: committed calls are not sent again, and finished tools don't run again.

        A tool call in progress is repeated if the tool is idempotent or takes a `ToolContext`; otherwise the model
        learns of the interruption. In a session, the last message is resumed.

        Raises:
            RunNotFound: the store has no such run.
            RunMismatch: this agent's settings or tools differ from the run's.
            ConfigError: the run has more steps or summaries than `max_steps` or `max_summaries` allow.
        """
        return self._finish(self.resume_stream(run_id), on_event)

    async def aresume(self, run_id: str) -> SessionResult:
        """Async version of `resume`."""
        stream = await in_thread(self.resume_stream, run_id)
        return await stream.finish()

    def resume_stream(self, run_id: str) -> SessionStream:
        """`resume` as an async iterator of events: the committed ones first."""
        binding = self.store.get(run_id).binding
        if binding["agent"] != "tools":
            remedy = "use MemoryAgent or `memagent resume`"
            raise RunMismatch(f"run {run_id!r} reads a document: {remedy}")
        return SessionStream(ToolLoop(self, None), run_id)

    async def plan(
        self, task: str, working_context: int | None = None, output: dict[str, Any] | None = None
    ) -> ToolPlan:
        """Makes the plan of a session: asks the model for its window and counter.

        Args:
            task: what to do.
            working_context: the resumed run's working context.
            output: JSON schema of the answer, if it has an output type.

        Raises:
            ConfigError: the task is not text, or the working context exceeds the window.
            ModelError: the server did not answer.
        """
        arguments = (ToolPlan.make, task, self.settings, self.prompts, self.tools, output)
        return await self._resolve(*arguments, window="working_context", resumed=working_context)

    def __repr__(self) -> str:
        return f"ToolAgent({self.model.name!r}, tools={list(self.tools)})"


class SessionStream(EventStream[SessionResult]):
    """One tool session as an async iterator of events; `result` is available at the end."""

    @property
    def result(self) -> SessionResult:
        """The result of the session. Raises like `outcome`."""
        return self.outcome


class Session:
    """A conversation in one working context, stored as one run: `ToolAgent.session` makes or reopens it.

    It holds only its id, so it needs no closing, and any process may reopen it between messages or after a crash.
    """

    def __init__(self, agent: ToolAgent, run_id: str | None) -> None:
        self.run_id = new_run_id() if run_id is None else check_run_id(run_id)
        self._agent = agent

    def send(
        self,
        text: str,
        output_type: type[BaseModel] | None = None,
        *,
        on_event: OnEvent | None = None,
    ) -> SessionResult:
        """Sends a message, and works until it is answered or a limit is reached.

        If the last message has no answer yet, the same text resumes it; otherwise it is a new message.

        Args:
            text: the task, or what to say next. It stays in the context word for word, however often that is
                summarised, for as long as later messages leave room.
            output_type: a pydantic model: the answer is an instance of it (`result.output`). An answer that doesn't
                validate is shown to the model with the problem, up to twice; so is a final tool's result.
            on_event: called with each event since the message was sent, in this thread.

        Raises:
            RunMismatch: another message is unanswered; or the settings, or this message's tools or output type, differ.
            RunBusy: the session is already working on a message.
            QuestionTooLong: the text is too long to be kept word for word.
            OutputInvalid: no answer validated.
            MemagentError: see `memagent.errors`; `error.run_id` names a session that can be resumed.
        """
        return self._agent._finish(self.stream(text, output_type), on_event)  # pyright: ignore[reportPrivateUsage]

    async def asend(self, text: str, output_type: type[BaseModel] | None = None) -> SessionResult:
        """Async version of `send`."""
        return await self.stream(text, output_type).finish()

    def stream(self, text: str, output_type: type[BaseModel] | None = None) -> SessionStream:
        """`send` as an async iterator of events; `.result` is available at the end."""
        output = None if output_type is None else Output(output_type)
        loop = ToolLoop(self._agent, check_text("the message", text), output=output)
        stream = SessionStream(loop, self.run_id)
        if output is not None:  # `resume` doesn't have it
            stream.again = "the same call of send"
        return stream

    @property
    def history(self) -> list[tuple[str, str | None]]:
        """Each message sent so far with its answer, None if it has none yet. Reads the store."""
        store, exchanges = self._agent.store, list[tuple[str, str | None]]()
        run = store.find(self.run_id)
        while run is not None:
            number = len(exchanges)
            message = UserMessage.find(store, self.run_id, number)
            if number and message is None:
                break
            answer = store.effect(self.run_id, f"answer-{number}/q0")
            text: str = message.text if message else run.binding["questions"][0]
            exchanges.append((text, None if answer is None else answer["answer"]))
        return exchanges

    def __repr__(self) -> str:
        return f"<Session {self.run_id!r}>"
