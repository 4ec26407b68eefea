"""The loop of a tool session: lets the model act, runs its calls, keeps the working context below its limit."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from memagent.compaction import conversation_of
from memagent.errors import CompactionFailed, LimitReached, OutOfSummaries, QuestionTooLong
from memagent.events import CUT_OFF, Answered, Compacted, MessageSent, Stopped
from memagent.messages import Message, Usage
from memagent.prompts.output import Output
from memagent.run.caller import Caller
from memagent.run.exchange import Unusable
from memagent.run.log import Log
from memagent.run.result import SessionResult
from memagent.run.stream import Loop
from memagent.runstore import RunRecord
from memagent.runstore.lock import busy
from memagent.session.asking import Asking, Stop
from memagent.session.plan import ToolPlan, bind_tools
from memagent.session.progress import Progress
from memagent.session.step import ToolCalls
from memagent.session.user_messages import Offer, UserMessage, check_limits, find_place, find_tools
from memagent.texts import plural
from memagent.threads import in_thread
from memagent.tokens.byte_bound import note_bytes
from memagent.trajectory import Conversation, StopReason, Trajectory

if TYPE_CHECKING:
    from memagent.session.agent import ToolAgent

logger = logging.getLogger("memagent")

SAVE_EVERY = 64
"""Number of replies after which the state is saved: replaying them takes a fifth of a second."""
Followed = tuple[Message, bool, Usage | None]
"""A message, whether it is a success, and the usage that the server reported for the prompt before it."""
FORMAT = 1
"""Format of saved states: those in another format are ignored, and the run is replayed."""


class ToolLoop(Loop[SessionResult]):
    """Works on one message of a run. What came before it is replayed: committed effects are returned, not repeated."""

    agent: ClassVar[str] = "tools"

    def __init__(
        self,
        agent: ToolAgent,
        text: str | None,
        *,
        first: bool = False,
        output: Output | None = None,
    ) -> None:
        """`text` is the next message of a session, or with `first` its task; None resumes the last message."""
        self.host = self._agent = agent
        self._text, self._first, self._output = text, first, output
        self._schema = None if output is None else output.schema
        self.source = {"name": "", "path": None}
        self._number = 0
        """Number of the current message; earlier ones are replayed."""
        self._steps = 0
        """Number of replies in the session so far."""
        self._segments = 0
        self._saved = 0
        """Number of replies when the state was last saved."""
        self._left: list[Followed] = []
        """Messages that followed the last prompt."""
        self._unfinished: tuple[Conversation, ...] = ()
        """The conversation in the working context when the session stopped."""

    async def prepare(self, known: RunRecord | None) -> ToolPlan:
        """See `Loop.prepare`."""
        working_context, task, output, tools = None, self._text, self._schema, None
        if known is not None:
            working_context = known.binding["budget"]["window"]
            message = await in_thread(UserMessage.find, self.host.store, known.id, 0)
            output = output if message is None else message.output
            if not self._first:  # the run is bound to its task
                task = known.binding["questions"][0]
            # Those of its last message are compared in `begin`, which says what differs.
            tools = await in_thread(find_tools, self.host.store, known.id, 0)
        self.plan = await self._agent.plan(task or "", working_context, output)
        if tools is not None:
            self.plan = replace(self.plan, tools=tools)
        return self.plan

    async def begin(self, log: Log) -> int:
        """See `Loop.begin`."""
        arguments = (log.store, log.run_id, self.plan.task, self._text, self._schema)
        self._place = await in_thread(find_place, *arguments, self._agent.tools, first=self._first)
        self._said = self._place.said or UserMessage(text=self.plan.task)
        return self._place.seq

    async def run(self, log: Log, caller: Caller, *, fresh: bool) -> SessionResult:
        """See `Loop.run`.

        Raises:
            ConfigError: the message has taken more steps or summaries than this agent allows.
            QuestionTooLong: the message is too long to be kept word for word.
            OutputInvalid: no answer matched the output type.
        """
        self._log, self._caller, plan, place = log, caller, self.plan, self._place
        if place.answer is not None:
            # This agent's limits don't matter: the message has its answer, and no calls are made.
            return await in_thread(self._result, place.answer)
        if not log.held:
            raise busy(log.run_id)
        if place.said is not None or not place.number:
            await in_thread(check_limits, log.store, log.run_id, self._said, plan.settings)
        if fresh and not place.number:
            await log.add(plan.start(log.run_id))
        _, state = await in_thread(log.store.latest, log.run_id, "state") or (0, {})
        state = state if state.get("format") == FORMAT else {}
        self.plan = plan = await self._offering(state.get("at", 0))
        async with plan.buffer(caller.model, log) as buffer:
            await buffer.open(plan.prompt, saved=state.get("context"))
            self._buffer = buffer
            stop, effect = None, {}
            try:
                effect = await self._answer(state)
            except LimitReached as limit:
                stop = Stop(StopReason.LIMIT, str(limit))
            except Stop as error:
                stop = error
            if stop is not None:
                effect = {"summaries": self._summaries, "truncated": stop.cut_off}
                self._unfinished = conversation_of(buffer.messages)
                await log.add_stop(Stopped(reason=stop.reason, detail=stop.detail, usage=Usage()))
        # A summary started early has ended by now, so its cost is counted.
        return await in_thread(self._result, effect, stop)

    # --- messages

    async def _answer(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Works on one message after another, replaying earlier ones; returns the effect of the last answer."""
        if state:
            self._number, self._segments = state["at"], state["segments"]
            self._steps = self._saved = state["steps"]
        await self._hear(state.get("progress"))
        while True:
            answer = await self._act_until_answered()
            if self._is_last:
                return answer
            self._number += 1
            await self._hear()

    async def _hear(self, progress: Mapping[str, Any] | None = None) -> None:
        """Adds the next message to the context, and commits it if it is new; with `progress` the context has it."""
        log, buffer, old_tools = self._log, self._buffer, bind_tools(self.plan.tools)
        self.plan = plan = await self._offering(self._number)
        self._tools = copy(plan.tools)  # of its own class: it may be traced
        self._tools |= {buffer.archive_tool.name: buffer.archive_tool}
        if is_changed := bind_tools(plan.tools) != old_tools:
            await buffer.change(plan.prompt, **plan.offer)
        key = f"said-{self._number}"
        said = await in_thread(UserMessage.find, log.store, log.run_id, self._number)
        if said is None and not self._number:
            if not self._first and not buffer.takes_more:
                logger.warning(
                    "session %s takes only one message, since later ones stay word for word: a working context of %d "
                    "tokens has no room for them%s; use a larger one, a shorter prompt or fewer tools",
                    *(log.run_id, plan.window, note_bytes(plan.counter)),
                )
            said = UserMessage(text=plan.task, output=self._schema, offer=Offer.of(plan.tools, 0))
            await log.commit(key, said.model_dump(mode="json"))
        elif said is None:
            assert self._text is not None, "only a new message has a number of its own"
            message = plan.message(self._text, self._schema)
            try:
                await buffer.check_said(message.content)
            except QuestionTooLong as error:
                note = "" if self._schema is None else "; the schema of output_type is a part of it"
                raise QuestionTooLong(f"{error}{note}") from None
            paid = await in_thread(log.store.usage, log.run_id)
            now = {"step": self._steps, "stage": buffer.summaries, "seq": self._place.seq}
            offer, tool_names = Offer(since=self._said.offer.since), None
            if is_changed:
                offer, tool_names = Offer.of(plan.tools, self._number), tuple(plan.tools)
            said = UserMessage(text=self._text, output=self._schema, usage=paid, offer=offer, **now)
            event = MessageSent(number=self._number, text=self._text, tools=tool_names)
            await log.commit(key, said.model_dump(mode="json"), events=[event])
        self._said = said
        max_summaries = self.plan.settings.max_summaries if self._is_last else sys.maxsize
        buffer.max_summaries = said.stage + max_summaries
        stops = await in_thread(said.count_stops, log.store, log.run_id)
        self._progress = Progress(stops, progress)
        if self._number and progress is None:
            for message, ok, usage in self._left:
                # Its prompt was counted with other tools.
                await buffer.append(message, ok=ok, usage=None if is_changed else usage)
            await buffer.append(plan.message(said.text, said.output))

    async def _offering(self, number: int) -> ToolPlan:
        """Returns the plan of a message; earlier ones have the tools that they offered, which are not run again."""
        find = partial(find_tools, self._log.store, self._log.run_id, number)
        tools = None if number == self._place.number else await in_thread(find)
        return replace(self.plan, tools=self._agent.tools if tools is None else tools)

    @property
    def _is_last(self) -> bool:
        """Whether the current message is the one that was sent; earlier ones have their answers."""
        return self._number == self._place.number

    @property
    def _summaries(self) -> int:
        return self._buffer.summaries - self._said.stage

    async def _save(self) -> None:
        soon = self._steps - self._saved < SAVE_EVERY
        if soon or (context := await self._buffer.dump()) is None:
            return
        body = {
            "format": FORMAT,
            "at": self._number,
            "steps": self._steps,
            "segments": self._segments,
            "progress": self._progress.dump(),
            "context": context,
        }
        await self._log.commit(f"state-{self._steps}", body)
        self._saved = self._steps

    # --- steps

    async def _act_until_answered(self) -> dict[str, Any]:
        """Runs steps until there is an answer, and returns its effect. Raises `Stop` if none is reached."""
        buffer = self._buffer
        output = self._output if self._is_last else None
        room = partial(self._compact, force=True)
        arguments = (self.plan, self._said.text, self._caller, buffer)
        asking = Asking(*arguments, tuple(self._tools), output, room, self._log.effect)
        calls = ToolCalls(self._tools, self._log, self.plan.neutraliser, asking.check)
        while True:
            steps, max_steps = self._steps - self._said.step, self.plan.settings.max_steps
            if steps >= max_steps and self._is_last:
                raise Stop(
                    StopReason.OUT_OF_STEPS,
                    f"no answer after {plural(max_steps, 'step')}; resume the run with a larger max_steps=",
                )
            while buffer.due and await self._compact():
                if (reminder := self._progress.end_context()) is not None:
                    await buffer.append(Message(role="user", content=reminder), ok=False)
                if self._progress.is_over:
                    raise Stop(
                        StopReason.NO_PROGRESS,
                        "the same calls were made with the same results over and over, also after the model was told; "
                        "use a larger working_context or summary_tokens, or resume the run to let it continue",
                    )
            await self._save()
            act, usage = await asking.next(self._steps)
            if act.answers:
                self._left = [(act.message, True, usage)]
                conversation = (*buffer.messages, act.message)
                body = await self._end(conversation, act.said, truncated=act.truncated)
                self._steps += 1
                return body
            outputs = await calls.run(self._steps, act.calls)
            self._steps += 1
            results = list(zip(act.calls, outputs, strict=True))
            messages: list[Followed] = [
                (Message(role="tool", content=o.text, tool_call_id=c.id), o.ok, None)
                for c, o in results
            ]
            if answers := [output.text for call, output in results if calls.ends(call, output)]:
                self._left = messages
                return await self._end(buffer.messages, answers[0], truncated=False)
            for (call, output), (message, ok, _) in zip(results, messages, strict=True):
                self._progress.note(call, output)
                await buffer.append(message, ok=ok)
            if act.problem is not None:
                await buffer.append(Message(role="user", content=act.problem), ok=False)

    # --- the context

    async def _compact(self, *, force: bool = False) -> bool:
        """Compacts once, and returns whether anything was done. `force` is for a reply that was cut off."""
        buffer = self._buffer
        messages = buffer.messages
        try:
            compaction = await buffer.compact(force=force)
        except OutOfSummaries as error:
            prefix = f"step {self._steps}: {CUT_OFF}, and " if force else ""
            raise Stop(StopReason.OUT_OF_SUMMARIES, f"{prefix}{error}") from error
        except CompactionFailed as error:
            # This is deterministic, so a replay also returns here, unless a summary reply was unusable.
            if force and not isinstance(error.__cause__, Unusable):
                return False
            raise Stop(StopReason.UNUSABLE_REPLY, str(error), error.__cause__) from error
        if compaction is None:
            return False
        # The conversations are stored as segments.
        report = compaction.model_copy(update={"conversations": ()})
        parts = compaction.segments(messages)
        for place, conversation in enumerate(parts, start=1):
            events = [Compacted(step=self._steps, compaction=report)] if place == len(parts) else []
            key, body = f"segment-{self._segments}", {"conversation": conversation.dump()}
            await self._log.commit(key, body, events=events)
            self._segments += 1
        return True

    async def _end(
        self, messages: tuple[Message, ...], answer: str, *, truncated: bool
    ) -> dict[str, Any]:
        """Commits the answer with the last conversation, and returns its effect."""
        (conversation,) = conversation_of(messages)
        body = {
            "answer": answer,
            "steps": self._steps - self._said.step,
            "summaries": self._summaries,
            "truncated": truncated,
            "segments": self._segments,
            "conversation": conversation.dump(),
        }
        event = Answered(answer=answer, form_found=True, truncated=truncated, usage=Usage())
        await self._log.commit(f"answer-{self._number}/q0", body, events=[event])
        return body

    def _result(self, effect: Mapping[str, Any], stop: Stop | None = None) -> SessionResult:
        """Returns the message's result, from its answer's effect unless it was stopped. Blocks."""
        store, run_id = self._log.store, self._log.run_id
        limits, message = self.host.limits, self._said
        later = UserMessage.find(store, run_id, self._place.number + 1)
        usage = (later.usage if later else store.usage(run_id)) - message.usage
        reason = StopReason.ANSWERED if stop is None else stop.reason
        conversations = store.conversations(run_id)
        if stop is not None:
            conversations = [*conversations[: self._segments], *self._unfinished]
        answer: str | None = effect.get("answer")
        output = None if answer is None or self._output is None else self._output.read(answer)
        return SessionResult(
            task=message.text,
            answer=answer,
            stop_reason=reason,
            usage=usage,
            steps=effect.get("steps", self._steps - message.step),
            summaries=effect["summaries"],
            run_id=run_id,
            trajectory=Trajectory(conversations, answer, reason),
            detail=stop.detail if stop else CUT_OFF * effect.get("truncated", False),
            truncated=effect.get("truncated", False),
            cost=None if limits is None else limits.price(usage),
            output=output,
        )
