"""One step of a session: parses a reply, runs its calls and commits each result once, despite interruptions."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from memagent.events import Event, ToolInterrupted, ToolReturned
from memagent.messages import Completion, FinishReason, Message, ToolCall, Usage
from memagent.prompts import Neutraliser
from memagent.prompts.reply import UnusableReply, visible
from memagent.run.log import Log
from memagent.run.sync import together
from memagent.texts import digest
from memagent.threads import in_thread
from memagent.tools import ToolContext, ToolOutput, Toolset
from memagent.tools.protocol import read_calls

Check = Callable[[str], str | None]
"""Returns what to tell the model if a final tool's result isn't a valid answer, so the call failed; None if it is."""
INTERRUPTED = (
    "{name} was under way when the session was interrupted. Whether it had its effect is not known, and it was not "
    "run again: find out before you repeat it."
)
AT_ONCE = 32
"""Maximum calls of a reply that run concurrently: each may take a thread, and models have made 800."""
LOST = "Your last tool call was cut off by the token limit before its arguments were there, and was not run."
OVER = "{name} was not run: the session has its answer"


@dataclass(frozen=True)
class Act:
    """The content of a model's reply."""

    said: str
    """Its text without calls and reasoning; the answer, if it is one."""
    content: str
    """The reply as shown in the context: without reasoning, but with calls in text form."""
    calls: tuple[ToolCall, ...] = ()
    problem: str | None = None
    """Why an attempted call could not be parsed, as told to the model."""
    truncated: bool = False
    """Whether the reply was cut off by its token limit."""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Other fields of the reply, which its server may need back."""

    @property
    def message(self) -> Message:
        """The reply as a message of the context."""
        return Message(
            role="assistant", content=self.content, tool_calls=self.calls, extra=dict(self.extra)
        )

    @property
    def answers(self) -> bool:
        """Whether it is the final answer."""
        return not self.calls and self.problem is None

    @property
    def is_cut_off(self) -> bool:
        """Whether its token limit cut it off before it called a tool or answered."""
        return self.truncated and not self.calls


def read_act(completion: Completion, *, native: bool, step: int, tools: Iterable[str] = ()) -> Act:
    """Parses a reply. Raises an `UnusableReply` if it is empty, cut off in its reasoning, or stopped by the engine.

    With `native`, calls come in the server's fields, else in the text, with ids derived from `step`. If a
    call can't be parsed, the model is told the names of the `tools`.
    """
    is_cut = completion.finish_reason is FinishReason.LENGTH
    if native:
        calls, problem = completion.tool_calls, None
        if is_cut and calls and not calls[-1].values():
            calls, problem = calls[:-1], LOST
        try:
            prose = visible(completion)
        except UnusableReply:  # calls need no text beside them
            if not calls or completion.finish_reason is FinishReason.OTHER:
                raise
            prose = ""
        return Act(prose, prose, calls, problem, truncated=is_cut, extra=completion.extra)
    text = visible(completion)
    prose, calls, problem = read_calls(text, tools)
    # The step makes ids unique within a context.
    calls = tuple(
        call.model_copy(update={"id": f"call-{step}-{place}"}) for place, call in enumerate(calls)
    )
    return Act(prose, text, calls, problem, truncated=is_cut, extra=completion.extra)


class ToolCalls:
    """Runs calls and commits their results; counts what is neutralised in an output."""

    def __init__(self, tools: Toolset, log: Log, neutraliser: Neutraliser, check: Check) -> None:
        self._tools, self._log, self._neutraliser, self._check = tools, log, neutraliser, check
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def run(self, step: int, calls: tuple[ToolCall, ...]) -> list[ToolOutput]:
        """Runs the calls of one reply: concurrently if none of them changes or ends anything, else one after the other.

        Calls after the answer are not run.
        """
        tools = map(self._tools.get, (call.name for call in calls))
        if all(tool is None or (tool.read_only and not tool.final) for tool in tools):
            return await together(self._once(step, *entry) for entry in enumerate(calls))
        outputs: list[ToolOutput] = []
        is_over = False
        for place, call in enumerate(calls):
            outputs.append(await self._once(step, place, call, over=is_over))
            is_over = is_over or self.ends(call, outputs[-1])
        return outputs

    def ends(self, call: ToolCall, output: ToolOutput) -> bool:
        """Returns whether a call's output is the session's answer."""
        return output.ok and call.name in self._tools and self._tools[call.name].final

    async def _once(
        self, step: int, place: int, call: ToolCall, *, over: bool = False
    ) -> ToolOutput:
        key, tool = f"tool-{step}-{place}", self._tools.get(call.name)
        start = await self._log.begin(key)
        if start.body is not None:
            return ToolOutput(**start.body)
        events: list[Event] = []
        if over:
            output = ToolOutput(OVER.format(name=call.name), ok=False)
        # A missing tool does nothing, however often it is called.
        elif start.sent and tool and not (tool.idempotent or tool.takes_context):
            output = ToolOutput(INTERRUPTED.format(name=call.name), ok=False)
            events.append(ToolInterrupted(step=step, call=call))
        else:
            context = await self._context(call, key, 1 + start.sent)
            async with self._turns:
                output = await self._tools.run(call, context)
            if self.ends(call, output) and (problem := self._check(output.text)) is not None:
                output = ToolOutput(f"{output.text}\n\n{problem}", ok=False)
        _, joiners = await in_thread(self._neutraliser, output.text)
        event = ToolReturned(
            step=step, call=call, output=output.text, ok=output.ok, neutralised=len(joiners)
        )
        await self._log.commit(key, asdict(output), Usage(), [*events, event])
        return output

    async def _context(self, call: ToolCall, effect: str, attempt: int) -> ToolContext | None:
        """Returns the context for a tool that takes one; None for others."""
        if call.name not in self._tools or not self._tools[call.name].takes_context:
            return None
        run = await in_thread(self._log.store.get, self._log.run_id)
        # Another store may have a run with the same name, but not created at the same time.
        return ToolContext(call.id, attempt, digest(f"{run.id}\0{run.created!r}\0{effect}"))
