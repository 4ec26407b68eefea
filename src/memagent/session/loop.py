"""The loop of a tool session: let the model act, run its calls, keep the working context below its limit."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from memagent.compaction import Compaction
from memagent.errors import CompactionFailed, ConfigError, LimitReached, OutOfSummaries
from memagent.events import Acted, Answered, Compacted, Event, Stopped
from memagent.messages import (
    ChatRequest,
    Completion,
    FinishReason,
    Message,
    Usage,
)
from memagent.models.base import ChatModel
from memagent.prompts.reply import UnusableReply
from memagent.run.exchange import NOT_EMPTY, UNUSABLE_RETRIES, seed_of
from memagent.run.log import Effects, Remembered
from memagent.run.runner import Journal
from memagent.runstore.effects import ANSWER, SEGMENT
from memagent.session.act import Act, read_act
from memagent.session.context.buffer import SummaryBuffer
from memagent.session.plan import ToolPlan
from memagent.session.segments import sampled, segments
from memagent.session.tool_calls import ToolCalls
from memagent.threads import in_thread
from memagent.tools.base import ToolOutput
from memagent.trajectory import Conversation, StopReason

CUT_OFF = "the reply was cut off by its token limit"


class _Stop(Exception):
    """The session ends here without an answer."""

    def __init__(self, reason: StopReason, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


class Session:
    """One run of one task.

    Args:
        plan: what was resolved before the first call.
        model: where requests go.
        journal: the run that this session commits to.
    """

    def __init__(self, plan: ToolPlan, model: ChatModel, journal: Journal) -> None:
        self.plan, self.journal = plan, journal
        self.steps = 0
        """Made so far: replies of the model that called a tool, or meant to."""
        self.summaries = 0
        self.stopped: tuple[StopReason, str] | None = None
        """Why there is no answer, with a sentence of detail."""
        self.truncated = False
        """The answer was cut off by its token limit."""
        self.unfinished: tuple[Conversation, ...] = ()
        """What was said in the working context in which the session stopped."""
        self._effects = Effects(journal)
        self._segments = 0
        self._has_room = False
        """In this step the context is as small as it can be: what is cut off now would be cut off again."""
        self._model = Remembered(model, self._effects, self._told)
        self._buffer = plan.buffer(self._model)
        self._tools = plan.tools

    async def events(self, started: Event) -> AsyncGenerator[Event]:
        """Runs to the end: the committed events first, verbatim, then the new ones as they are committed.

        Args:
            started: the event that opens a new run's log.

        Raises:
            ModelError: a call failed for good; the run stays resumable.
            StoreError: a step could not be committed.
            ConfigError: more steps or summaries were made than this agent may make.
        """
        replayed, written = False, 0
        async with aclosing(self.journal.replay()) as committed:
            async for event in committed:
                replayed = True
                if event.type == "compacted":
                    written = event.compaction.stage
                yield event
        if (ended := await self._effects.find(ANSWER)) is not None:
            # Whatever this agent's limits are: it is over, and nobody is asked for anything.
            self.steps, self.summaries = ended["steps"], ended["summaries"]
            self.truncated = ended.get("truncated", False)
            return
        await self._check_limits(written)
        if not replayed:
            await self._effects.log(started)
            for event in self._effects.news():
                yield event
        async with self._buffer as buffer:
            await buffer.open(self.plan.prompt)
            self._tools = self.plan.toolset(buffer)
            try:
                async with aclosing(self._steps(buffer)) as news:
                    async for event in news:
                        yield event
            except _Stop as stop:
                self.stopped = stop.reason, stop.detail
                self.unfinished = sampled(buffer.messages)
                await self._log_stop(stop)
        # A summary that was begun early may have ended just now.
        for event in self._effects.news():
            yield event

    async def _check_limits(self, summaries: int) -> None:
        """Refuses to replay a part of what was made.

        Raises:
            ConfigError: more was made than may be.
        """
        settings = self.plan.settings
        made = (
            ("max_steps", settings.max_steps, await self._effects.count("act")),
            ("max_summaries", settings.max_summaries, summaries),
        )
        for name, most, count in made:
            if count > most:
                raise ConfigError(
                    f"{name}={most!r} is less than run {self.journal.run_id!r} has used, which is {count}: "
                    f"resume it with {name}={count} or more"
                )

    async def _log_stop(self, stop: _Stop) -> None:
        """Commits that the session stopped, unless that is the last that the log says."""
        store, run_id = self.journal.store, self.journal.run_id
        stopped = Stopped(reason=stop.reason, detail=stop.detail, usage=Usage())

        def last() -> Event | None:
            return next(store.events(run_id, after=store.last_seq(run_id) - 1), None)

        said = await in_thread(last)
        if said is None or said.model_copy(update={"seq": stopped.seq}) != stopped:
            await self._effects.log(stopped)

    async def _steps(self, buffer: SummaryBuffer) -> AsyncGenerator[Event]:
        """Makes steps until there is an answer.

        Raises:
            _Stop: there is none.
        """
        tools = ToolCalls(self._tools, self._effects, self.plan.neutraliser)
        while True:
            if self.steps >= (most := self.plan.settings.max_steps):
                raise _Stop(
                    StopReason.OUT_OF_STEPS,
                    f"there is no answer after max_steps={most}; allow more and resume the run",
                )
            await self._make_room(buffer)
            for event in self._effects.news():
                yield event
            act = await self._act(buffer)
            for event in self._effects.news():
                yield event
            if act.answers:
                said = (*buffer.messages, Message(role="assistant", content=act.shown))
                await self._end(said, act.said, truncated=act.truncated)
                break
            outputs: dict[int, ToolOutput] = {}
            async with aclosing(tools.run(self.steps, act.calls)) as running:
                async for place, output in running:
                    outputs[place] = output
                    for event in self._effects.news():
                        yield event
            self.steps += 1
            results = [(call, outputs[place]) for place, call in enumerate(act.calls)]
            answers = [output.text for call, output in results if tools.ends(call, output)]
            if answers:
                await self._end(buffer.messages, answers[0], truncated=False)
                break
            for call, output in results:
                message = Message(role="tool", content=output.text, tool_call_id=call.id)
                await buffer.append(message, ok=output.ok)
            if act.problem is not None:
                await buffer.append(Message(role="user", content=act.problem))
        for event in self._effects.news():
            yield event

    # --- the model's turn

    async def _act(self, buffer: SummaryBuffer) -> Act:
        """The model's next usable reply, part of the context when it calls a tool.

        One that its token limit cut off is asked for again, once with as much room as there can be.

        Raises:
            _Stop: a limit is reached, or no reply was usable.
        """
        key, detail, attempt = f"room-{self.steps}", "", 0
        made = await self._effects.find(key)
        self._has_room = made is not None
        if made is not None and made["compact"]:
            await self._compact(buffer, force=True)
        while attempt <= UNUSABLE_RETRIES:
            request = await self._request(buffer, attempt)
            try:
                completion = await self._model.complete(request)
            except LimitReached as limit:
                raise _Stop(StopReason.LIMIT, str(limit)) from limit
            try:
                act = self._read(completion)
            except UnusableReply as error:
                detail, attempt = str(error), attempt + 1
                cut = completion.finish_reason is FinishReason.LENGTH
                if cut and not self._has_room:
                    # Committed first: where a replay finds it, it does the same.
                    body = {"compact": 2 * buffer.room < self.plan.working_context}
                    await self._effects.once(key, body)
                    self._has_room = True
                    if body["compact"] and await self._compact(buffer, force=True):
                        attempt = 0
                if cut:
                    detail += " (a larger working_context gives it more)"
                continue
            if not act.answers:
                said = Message(
                    role="assistant",
                    content=act.shown,
                    tool_calls=act.calls,
                    extra=completion.extra,
                )
                # Without reasoning some templates write another prompt.
                await buffer.append(said, usage=None if attempt else completion.usage)
            return act
        raise _Stop(
            StopReason.UNUSABLE_REPLY,
            f"step {self.steps}: {detail}, {1 + UNUSABLE_RETRIES} times in a row",
        )

    async def _request(self, buffer: SummaryBuffer, attempt: int) -> ChatRequest:
        # After an unusable reply: without reasoning, which may have used up the output, and not empty.
        settings, thinking = self.plan.settings, False if attempt else None
        room = buffer.room
        if thinking is not None:  # some templates write more then
            room = self.plan.working_context - await buffer.count(thinking=thinking)
        return ChatRequest(
            messages=buffer.messages,
            max_tokens=max(1, room),
            sampling=settings.sampling,
            seed=seed_of(settings.seed, 0, f"act-{self.steps}", attempt),
            thinking=thinking,
            # With calls of the server's own, a pattern would keep the model from making them.
            pattern=NOT_EMPTY if attempt and not buffer.tools else None,
            tools=buffer.tools,
            kind="act",
            parts={"task": self.plan.task},
        )

    def _read(self, completion: Completion) -> Act:
        """What a reply says.

        Raises:
            UnusableReply: nothing, or not yet: it was cut off, and might not be with more room.
        """
        act = read_act(
            completion, native=self.plan.native, step=self.steps, tools=tuple(self._tools)
        )
        if act.is_cut_off and not self._has_room:
            raise UnusableReply(CUT_OFF)
        return act

    def _told(self, request: ChatRequest, completion: Completion) -> Sequence[Event]:
        if request.kind != "act":
            self.plan.prompts.read_summary(completion)
            return ()
        act = self._read(completion)
        return [
            Acted(
                step=self.steps,
                text=act.said,
                calls=act.calls,
                prompt_tokens=self._buffer.tokens,
                usage=completion.usage,
            )
        ]

    # --- the context

    async def _make_room(self, buffer: SummaryBuffer) -> None:
        """Compacts while it is due.

        Raises:
            _Stop: it cannot be done.
        """
        while buffer.due and await self._compact(buffer):
            pass

    async def _compact(self, buffer: SummaryBuffer, *, force: bool = False) -> bool:
        """Compacts once, and says whether anything was done.

        Args:
            buffer: the context.
            force: also where it is not due, after a reply that was cut off; it may be that nothing can be spared.

        Raises:
            _Stop: it cannot be done.
        """
        before = buffer.messages
        self._model.unusable.discard("summary")
        try:
            done = await buffer.compact(force=force)
        except OutOfSummaries as error:
            why = f"step {self.steps}: {CUT_OFF}, and " if force else ""
            raise _Stop(StopReason.OUT_OF_SUMMARIES, f"{why}{error}") from error
        except CompactionFailed as error:
            # A replay comes to the same, unless it was for want of a summary.
            if force and "summary" not in self._model.unusable:
                return False
            raise _Stop(StopReason.UNUSABLE_REPLY, str(error)) from error
        except LimitReached as limit:
            raise _Stop(StopReason.LIMIT, str(limit)) from limit
        if done is None:
            return False
        self.summaries = buffer.summaries
        await self._keep(segments(before, done), done)
        return True

    async def _keep(
        self, conversations: Sequence[Conversation], done: Compaction | None = None
    ) -> None:
        """Commits conversations that are over, the last one with what ended it."""
        for place, conversation in enumerate(conversations, start=1):
            events: list[Event] = []
            if done is not None and place == len(conversations):
                # They are in the store already.
                bare = done.model_copy(update={"conversations": ()})
                events.append(Compacted(step=self.steps, compaction=bare))
            body = conversation.model_dump(mode="json", exclude={"turns"})
            await self._effects.once(f"{SEGMENT}-{self._segments}", body, *events)
            self._segments += 1

    async def _end(self, messages: tuple[Message, ...], answer: str, *, truncated: bool) -> None:
        """Commits the last conversation and the answer."""
        await self._keep(sampled(messages))
        answered = Answered(answer=answer, form_found=True, truncated=truncated, usage=Usage())
        self.truncated = truncated
        body = {
            "answer": answer,
            "steps": self.steps,
            "summaries": self.summaries,
            "truncated": truncated,
        }
        await self._effects.once(ANSWER, body, answered)
