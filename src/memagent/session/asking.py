"""Asks the model of a session what to do next, until its reply can be used."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from memagent.errors import OutputInvalid
from memagent.events import CUT_OFF, Acted
from memagent.messages import Completion, FinishReason, Message, Usage
from memagent.prompts import UnusableReply
from memagent.prompts.output import Output
from memagent.run.caller import UNUSABLE_RETRIES, Caller
from memagent.run.exchange import Exchange, Record, Reply, Unusable
from memagent.session.context.buffer import SummaryBuffer
from memagent.session.plan import ToolPlan
from memagent.session.step import Act, read_act
from memagent.texts import MESSAGE_CHARS, clip
from memagent.trajectory import StopReason


class Stop(Exception):
    """Ends the session without an answer."""

    def __init__(self, reason: StopReason, detail: str, cause: BaseException | None = None) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail
        self.cut_off = isinstance(cause, Unusable) and cause.cut_off
        """Whether the cause was a reply that its token limit cut off in its reasoning."""


@dataclass
class Asking:
    """Asks the model for each next step while it works on one message."""

    plan: ToolPlan
    task: str
    """Text of the message."""
    caller: Caller
    buffer: SummaryBuffer
    tools: tuple[str, ...]
    output: Output | None
    make_room: Callable[[], Awaitable[bool]]
    """Compacts the context even if it isn't due; returns whether anything was done."""
    effect: Callable[[str], Awaitable[object]]
    """Returns the body committed under a key, or None."""
    rejected: list[str] = field(default_factory=list[str])
    """What the model was told about answers, and results of final tools, that didn't match the output type."""

    async def next(self, step: int) -> tuple[Act, Usage | None]:
        """Returns the next usable reply, added to the context if it calls a tool, and the usage the server reported.

        A reply that its token limit cuts off before it calls a tool is requested once more, with more room. After an
        answer that doesn't match the output type, the model is told and asked again. Neither stays in the context.
        """
        buffer, key, tries = self.buffer, f"act-{step}", 0
        reply = await self._ask(step, key)
        if reply.value.is_cut_off:
            cap = min(self.plan.window, 2 * (self.plan.settings.reply_tokens or self.plan.window))
            made_room = 2 * buffer.room < cap and await self.make_room()
            reply = await self._ask(step, f"{key}/room", after=0 if made_room else 1)
        while (act := reply.value).answers:
            retry_key, chars = f"{key}/form{tries}", buffer.room // 4
            problem = self._judge(act.said, chars)
            # A replay doesn't know the output types of earlier messages.
            if problem is None and await self.effect(retry_key) is None:
                break
            safe, tries = self.plan.neutraliser.safe, tries + 1
            answer = Message(role="assistant", content=safe(clip(act.content, chars)))
            pair = (answer, Message(role="user", content=safe(problem or "")))
            reply = await self._ask(step, retry_key, after=1, more=pair)
        # Retries disable reasoning, and some templates then render another prompt.
        usage = reply.completion.usage if reply.attempt == 0 else None
        if not act.answers:
            await buffer.append(act.message, usage=usage)
        return act, usage

    def check(self, answer: str) -> str | None:
        """Returns what to tell the model if an answer doesn't match the output type, or None; the third is an error."""
        problem = self._judge(answer)
        self.rejected += filter(None, (problem,))
        return problem

    def _judge(self, answer: str, chars: int = MESSAGE_CHARS) -> str | None:
        try:
            if self.output is not None:
                self.output.read(answer)
        except UnusableReply as error:
            return self.plan.prompts.render("invalid", problem=clip(str(error), chars))
        return None

    async def _ask(
        self, step: int, key: str, *, after: int | None = None, more: Sequence[Message] = ()
    ) -> Reply[Act]:
        """Asks what to do next. With `after` (attempts so far) a cut-off reply is accepted: others would be cut off."""
        if len(self.rejected) > UNUSABLE_RETRIES:
            raise OutputInvalid(
                f"step {step}: {len(self.rejected)} answers, or results of final tools, were not of the output type; "
                f"send the message again with the same output_type. The model was told: {self.rejected[-1]}"
            )
        buffer, final = self.buffer, after is not None
        problem: str | None = None

        def rejects(act: Act) -> str | None:
            nonlocal problem
            is_cut = act.is_cut_off and not final
            problem = CUT_OFF if is_cut else self.check(act.said) if act.answers else None
            return problem

        def record(reply: Reply[Act]) -> Record:
            act, usage = reply.value, reply.completion.usage
            event = Acted(
                step=step, text=act.said, calls=act.calls, prompt_tokens=buffer.tokens, usage=usage
            )
            return {}, () if problem else (event,)

        exchange = Exchange(
            key=key,
            kind="act",
            messages=(*buffer.messages, *more),
            read=partial(self._read, step=step, final=final),
            attempts=after or 0,
            rejects=rejects,
            most=max(1, min(buffer.room, self.plan.settings.reply_tokens or buffer.room)),
            least=1,
            bound=None if more else buffer.tokens,
            near=0,
            count=buffer.count,
            tools=buffer.tools,
            parts={"task": self.task} | ({"again": "yes"} if final else {}),
            record=record,
        )
        try:
            return await self.caller.ask(exchange)
        except (Unusable, UnusableReply) as error:
            raise Stop(StopReason.UNUSABLE_REPLY, f"step {step}: {error}", error) from error

    def _read(self, completion: Completion, step: int, *, final: bool) -> Act:
        """Parses a reply. One cut off in its reasoning is unusable only if `final`, that is, not to be retried."""
        native, tools = self.plan.settings.protocol == "native", self.tools
        try:
            return read_act(completion, native=native, step=step, tools=tools)
        except UnusableReply as error:
            if completion.finish_reason is not FinishReason.LENGTH:
                raise
            if final:
                raise UnusableReply(f"{error} (use a larger working_context)") from error
            return Act("", "", truncated=True)
