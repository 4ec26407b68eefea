"""Asks the model of a session what to do next, until its reply can be used."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from memagent.errors import OutputInvalid
from memagent.events import Acted
from memagent.messages import Completion, FinishReason, Message, Usage
from memagent.prompts import UnusableReply
from memagent.prompts.output import Output
from memagent.run.caller import UNUSABLE_RETRIES, Caller
from memagent.run.exchange import Exchange, Record, Reply, Unusable
from memagent.session.context.buffer import SummaryBuffer
from memagent.session.plan import ToolPlan
from memagent.session.step import Act, read_act
from memagent.texts import clip
from memagent.trajectory import StopReason

ASK_AGAIN = "send the message again with the same output_type"
CUT_OFF = "the reply was cut off by its token limit"


class Stop(Exception):
    """The session ends here without an answer."""

    def __init__(self, reason: StopReason, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


@dataclass
class Asking:
    """Makes the act exchanges of one message."""

    plan: ToolPlan
    task: str
    """The message."""
    caller: Caller
    buffer: SummaryBuffer
    tools: tuple[str, ...]
    output: Output | None
    make_room: Callable[[], Awaitable[bool]]
    """Compacts the context although it isn't due, and returns whether anything was done."""
    rejected: int = 0
    """Results of final tools that weren't of the output type."""

    async def next(self, step: int) -> tuple[Act, Usage | None]:
        """The model's next usable reply, added to the context if it calls a tool, and what the server said it took.

        A reply that its token limit cut off before it called a tool is requested again, once, with more room.
        """
        if self.rejected > UNUSABLE_RETRIES:
            raise OutputInvalid(f"step {step}: no final tool's result had the form; {ASK_AGAIN}")
        buffer = self.buffer
        reply = await self._ask(step, f"act-{step}")
        if reply.value.is_cut_off:
            most = min(self.plan.window, 2 * (self.plan.settings.reply_tokens or self.plan.window))
            tight = 2 * buffer.room < most
            made_room = tight and await self.make_room()
            reply = await self._ask(step, f"act-{step}/room", after=0 if made_room else 1)
        act = reply.value
        # Without reasoning, some templates render another prompt.
        usage = reply.completion.usage if reply.attempt == 0 else None
        if not act.answers:
            await buffer.append(act.message, usage=usage)
        return act, usage

    def check(self, answer: str) -> str | None:
        """What to tell the model of a final tool's result that isn't of the output type; the third is an error."""
        try:
            if self.output is not None:
                self.output.read(answer)
        except UnusableReply as error:
            self.rejected += 1
            return self.plan.prompts.render("invalid", problem=clip(str(error)))
        return None

    async def _ask(self, step: int, key: str, *, after: int | None = None) -> Reply[Act]:
        """Asks what to do next. After `after` attempts a cut-off reply is accepted: others would be cut off too."""
        buffer, final = self.buffer, after is not None
        most = min(buffer.room, self.plan.settings.reply_tokens or buffer.room)

        def record(reply: Reply[Act]) -> Record:
            act, usage = reply.value, reply.completion.usage
            if act.is_cut_off and not final:
                return {}, ()
            tokens = buffer.tokens
            return {}, [
                Acted(step=step, text=act.said, calls=act.calls, prompt_tokens=tokens, usage=usage)
            ]

        invalid = False

        def read(completion: Completion) -> Act:
            nonlocal invalid
            invalid = False
            act, output = self._read(completion, step, final=final), self.output
            if output is None or not act.answers or (act.is_cut_off and not final):
                return act
            try:
                output.read(act.said)
            except UnusableReply as error:
                # The model is shown what is wrong. It stays out of the context, as all unusable replies do.
                invalid, safe, chars = True, self.plan.neutraliser.safe, buffer.room // 4
                told = self.plan.prompts.render("invalid", problem=clip(str(error), chars))
                pair = (("assistant", clip(act.content, chars)), ("user", told))
                more = [Message.from_openai({"role": r, "content": safe(text)}) for r, text in pair]
                exchange.messages = (*buffer.messages, *more)
                exchange.bound = None
                raise UnusableReply(f"the answer is not of the output type: {error}") from error
            return act

        exchange = Exchange(
            key=key,
            kind="act",
            messages=buffer.messages,
            read=read,
            attempts=after or 0,
            rejects=lambda act: CUT_OFF if act.is_cut_off and not final else None,
            most=max(1, most),
            least=1,
            bound=buffer.tokens,
            near=0,
            count=buffer.count,
            tools=buffer.tools,
            parts={"task": self.task},
            record=record,
        )
        try:
            return await self.caller.ask(exchange)
        except (Unusable, UnusableReply) as error:
            if invalid:
                raise OutputInvalid(f"step {step}: {error}; {ASK_AGAIN}") from error
            raise Stop(StopReason.UNUSABLE_REPLY, f"step {step}: {error}") from error

    def _read(self, completion: Completion, step: int, *, final: bool) -> Act:
        """Parses a reply; one cut off in its reasoning is unusable only if a retry would be too."""
        native, tools = self.plan.settings.protocol == "native", self.tools
        try:
            return read_act(completion, native=native, step=step, tools=tools)
        except UnusableReply as error:
            if completion.finish_reason is not FinishReason.LENGTH:
                raise
            if final:
                raise UnusableReply(f"{error} (use a larger working_context)") from error
            return Act("", "", truncated=True)
