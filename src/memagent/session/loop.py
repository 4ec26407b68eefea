"""The loop of a tool session: lets the model act, runs its calls, keeps the working context below its limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memagent.compaction import conversation_of
from memagent.errors import CompactionFailed, ConfigError, LimitReached, OutOfSummaries
from memagent.events import Acted, Answered, Compacted, SessionStarted, Stopped
from memagent.messages import Completion, FinishReason, Message, Usage
from memagent.prompts import UnusableReply
from memagent.run.caller import Caller
from memagent.run.exchange import Exchange, Record, Reply, Unusable
from memagent.run.log import Log
from memagent.run.result import SessionResult
from memagent.run.stream import Loop
from memagent.runstore import RunRecord
from memagent.session.plan import ToolPlan
from memagent.session.progress import Progress
from memagent.session.step import Act, ToolCalls, read_act
from memagent.threads import in_thread
from memagent.tools import Toolset
from memagent.trajectory import Conversation, StopReason, Trajectory

if TYPE_CHECKING:
    from memagent.session.agent import ToolAgent

CUT_OFF = "the reply was cut off by its token limit"
ANSWER = "answer/q0"


class _Stop(Exception):
    """The session ends here without an answer."""

    def __init__(self, reason: StopReason, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


class ToolLoop(Loop[SessionResult]):
    """One run of one task. A resumed run repeats the same steps, with committed effects returned instead of made."""

    agent: ClassVar[str] = "tools"

    def __init__(self, agent: ToolAgent, task: str) -> None:
        self.host = self._agent = agent
        self._task = task
        self.source = {"name": "", "path": None}
        self._steps = 0
        """Replies so far that called a tool, or tried to."""
        self._summaries = 0
        self._segments = 0
        self._answer: str | None = None
        self._truncated = False
        self._stopped: _Stop | None = None
        self._unfinished: tuple[Conversation, ...] = ()
        """The conversation in the working context when the session stopped."""

    async def prepare(self, known: RunRecord | None) -> ToolPlan:
        """See `Loop.prepare`."""
        working_context = None if known is None else known.binding["budget"]["window"]
        self.plan = await self._agent.plan(self._task, working_context)
        return self.plan

    async def run(self, log: Log, caller: Caller, *, fresh: bool) -> SessionResult:
        """See `Loop.run`.

        Raises:
            ConfigError: the run has more steps or summaries than this agent allows.
        """
        self._log, self._caller, plan = log, caller, self.plan
        if (ended := await log.effect(ANSWER)) is not None:
            # Regardless of this agent's limits: it is over, and no calls are made.
            self._steps, self._summaries = ended["steps"], ended["summaries"]
            self._answer, self._truncated = ended["answer"], ended.get("truncated", False)
            return await in_thread(self._result)
        await self._check_limits()
        self._progress = Progress(await in_thread(self._count_stops))
        if fresh:
            started = SessionStarted(
                run_id=log.run_id,
                model=plan.model,
                task=plan.task,
                tools=tuple(plan.tools),
                counter=plan.counter.name,
                working_context=plan.window,
            )
            await log.add(started)
        async with plan.buffer(caller.model, log) as buffer:
            await buffer.open(plan.prompt)
            self._buffer = buffer
            self._tools = Toolset([*plan.tools.values(), buffer.archive_tool])
            try:
                await self._act_until_answered()
            except _Stop as stop:
                self._stopped = stop
                self._unfinished = conversation_of(buffer.messages)
                stopped = Stopped(reason=stop.reason, detail=stop.detail, usage=Usage())
                await log.add_stop(stopped)
        return await in_thread(self._result)

    def _count_stops(self) -> int:
        """How often the session was stopped since it made no progress. Blocks."""
        stops = self._log.store.events(self._log.run_id, kind="stopped")
        return sum(e.type == "stopped" and e.reason is StopReason.NO_PROGRESS for e in stops)

    async def _check_limits(self) -> None:
        """Refuses to replay only a part of the run."""
        log, settings = self._log, self.plan.settings

        def count_stages() -> int:
            events = log.store.events(log.run_id, kind="compacted")
            return max((e.compaction.stage for e in events if e.type == "compacted"), default=0)

        made = (
            ("max_steps", settings.max_steps, await log.count("act")),
            ("max_summaries", settings.max_summaries, await in_thread(count_stages)),
        )
        for name, most, count in made:
            if count > most:
                raise ConfigError(
                    f"{name}={most!r} is too low: run {log.run_id!r} has already used {count}; resume it with "
                    f"{name}={count} or more"
                )

    # --- steps

    async def _act_until_answered(self) -> None:
        """Makes steps until there is an answer, or a `_Stop`."""
        buffer = self._buffer
        calls = ToolCalls(self._tools, self._log, self.plan.neutraliser)
        while True:
            if self._steps >= (most := self.plan.settings.max_steps):
                raise _Stop(
                    StopReason.OUT_OF_STEPS,
                    f"no answer after {most} steps; resume the run with a larger max_steps=",
                )
            while buffer.due and await self._compact():
                if (told := self._progress.end_context()) is not None:
                    await buffer.append(Message(role="user", content=told), ok=False)
                if self._progress.is_over:
                    raise _Stop(
                        StopReason.NO_PROGRESS,
                        "the same calls were made with the same results over and over, also after the model was told; "
                        "use a larger working_context or summary_tokens, or resume the run to let it go on",
                    )
            act = await self._act()
            if act.answers:
                said = (*buffer.messages, Message(role="assistant", content=act.content))
                await self._end(said, act.said, truncated=act.truncated)
                return
            outputs = await calls.run(self._steps, act.calls)
            self._steps += 1
            results = list(zip(act.calls, outputs, strict=True))
            answers = [output.text for call, output in results if calls.ends(call, output)]
            if answers:
                await self._end(buffer.messages, answers[0], truncated=False)
                return
            for call, output in results:
                self._progress.note(call, output)
                message = Message(role="tool", content=output.text, tool_call_id=call.id)
                await buffer.append(message, ok=output.ok)
            if act.problem is not None:
                await buffer.append(Message(role="user", content=act.problem), ok=False)

    async def _act(self) -> Act:
        """The model's next usable reply, added to the context if it calls a tool.

        A reply cut off by its token limit before it called a tool is requested again, once, with as much room as
        possible.
        """
        buffer = self._buffer
        reply = await self._ask(f"act-{self._steps}")
        if reply.value.is_cut_off:
            most = min(self.plan.window, 2 * (self.plan.settings.reply_tokens or self.plan.window))
            tight = 2 * buffer.room < most
            made_room = tight and await self._compact(force=True)
            reply = await self._ask(f"act-{self._steps}/room", after=0 if made_room else 1)
        act = reply.value
        if not act.answers:
            extra = reply.completion.extra
            said = Message(role="assistant", content=act.content, tool_calls=act.calls, extra=extra)
            # Without reasoning, some templates render another prompt.
            await buffer.append(said, usage=reply.completion.usage if reply.attempt == 0 else None)
        return act

    async def _ask(self, key: str, *, after: int | None = None) -> Reply[Act]:
        """Asks what to do next.

        After `after` attempts at a cut-off reply another one would be cut off too, so it is accepted.
        """
        buffer, step, final = self._buffer, self._steps, after is not None
        most = min(buffer.room, self.plan.settings.reply_tokens or buffer.room)

        def record(reply: Reply[Act]) -> Record:
            act, usage = reply.value, reply.completion.usage
            if act.is_cut_off and not final:
                return {}, ()
            tokens = buffer.tokens
            return {}, [
                Acted(step=step, text=act.said, calls=act.calls, prompt_tokens=tokens, usage=usage)
            ]

        exchange = Exchange(
            key=key,
            kind="act",
            messages=buffer.messages,
            read=lambda completion: self._read(completion, final=final),
            attempts=after or 0,
            rejects=lambda act: CUT_OFF if act.is_cut_off and not final else None,
            most=max(1, most),
            least=1,
            bound=buffer.tokens,
            near=0,
            count=buffer.count,
            tools=buffer.tools,
            parts={"task": self.plan.task},
            record=record,
        )
        try:
            return await self._caller.ask(exchange)
        except LimitReached as limit:
            raise _Stop(StopReason.LIMIT, str(limit)) from limit
        except Unusable as error:
            raise _Stop(StopReason.UNUSABLE_REPLY, f"step {self._steps}: {error}") from error

    def _read(self, completion: Completion, *, final: bool) -> Act:
        """Parses a reply; one cut off in its reasoning is unusable only if a retry would be too."""
        native, tools = self.plan.settings.protocol == "native", tuple(self._tools)
        try:
            return read_act(completion, native=native, step=self._steps, tools=tools)
        except UnusableReply as error:
            if completion.finish_reason is not FinishReason.LENGTH:
                raise
            if final:
                raise UnusableReply(f"{error} (use a larger working_context)") from error
            return Act("", "", truncated=True)

    # --- the context

    async def _compact(self, *, force: bool = False) -> bool:
        """Compacts once, and returns whether anything was done; forced after a cut-off reply."""
        buffer = self._buffer
        before = buffer.messages
        try:
            done = await buffer.compact(force=force)
        except OutOfSummaries as error:
            why = f"step {self._steps}: {CUT_OFF}, and " if force else ""
            raise _Stop(StopReason.OUT_OF_SUMMARIES, f"{why}{error}") from error
        except CompactionFailed as error:
            # A replay would end the same way, unless only a summary was lacking.
            if force and not isinstance(error.__cause__, Unusable):
                return False
            raise _Stop(StopReason.UNUSABLE_REPLY, str(error)) from error
        except LimitReached as limit:
            raise _Stop(StopReason.LIMIT, str(limit)) from limit
        if done is None:
            return False
        self._summaries = buffer.summaries
        # The conversations are in the store already.
        bare = done.model_copy(update={"conversations": ()})
        ended = done.segments(before)
        for place, conversation in enumerate(ended, start=1):
            events = [Compacted(step=self._steps, compaction=bare)] if place == len(ended) else []
            key, body = f"segment-{self._segments}", {"conversation": _dump(conversation)}
            await self._log.commit(key, body, events=events)
            self._segments += 1
        return True

    async def _end(self, messages: tuple[Message, ...], answer: str, *, truncated: bool) -> None:
        """Commits the answer with the last conversation."""
        self._answer, self._truncated = answer, truncated
        (conversation,) = conversation_of(messages)
        body = {
            "answer": answer,
            "steps": self._steps,
            "summaries": self._summaries,
            "truncated": truncated,
            "conversation": _dump(conversation),
        }
        answered = Answered(answer=answer, form_found=True, truncated=truncated, usage=Usage())
        await self._log.commit(ANSWER, body, events=[answered])

    def _result(self) -> SessionResult:
        """Blocks."""
        store, run_id = self._log.store, self._log.run_id
        usage, limits = store.usage(run_id), self.host.limits
        reason = StopReason.ANSWERED if self._stopped is None else self._stopped.reason
        conversations = store.conversations(run_id)
        if self._unfinished:
            conversations = [*conversations, *self._unfinished]
        return SessionResult(
            task=self.plan.task,
            answer=self._answer,
            stop_reason=reason,
            usage=usage,
            steps=self._steps,
            summaries=self._summaries,
            run_id=run_id,
            trajectory=Trajectory(conversations, self._answer, reason),
            detail="" if self._stopped is None else self._stopped.detail,
            truncated=self._truncated,
            cost=None if limits is None else limits.price(usage),
        )


def _dump(conversation: Conversation) -> dict[str, object]:
    return conversation.model_dump(mode="json", exclude={"turns"})
