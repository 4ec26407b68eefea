"""Running the calls of a session: each once, whatever happens in between."""

from __future__ import annotations

from dataclasses import asdict

from memagent.events import Event, ToolInterrupted, ToolReturned
from memagent.messages import ToolCall, Usage
from memagent.prompts import Neutraliser
from memagent.run.log import Log
from memagent.run.sync import together
from memagent.threads import in_thread
from memagent.tools import Toolset
from memagent.tools.base import ToolOutput

INTERRUPTED = (
    "{name} was under way when the session was interrupted. Whether it had its effect is not known, and it was not "
    "run again: find out before you repeat it."
)


class ToolCalls:
    """Runs calls, and commits what came of them; the neutraliser counts what is made harmless in an output."""

    def __init__(self, tools: Toolset, log: Log, neutraliser: Neutraliser) -> None:
        self._tools, self._log, self._neutraliser = tools, log, neutraliser

    async def run(self, step: int, calls: tuple[ToolCall, ...]) -> list[ToolOutput]:
        """Runs the calls of one reply: together where none of them changes anything, else one after the other."""
        if calls and all(self._idempotent(call) for call in calls):
            return await together(self._once(step, *numbered) for numbered in enumerate(calls))
        return [await self._once(step, *numbered) for numbered in enumerate(calls)]

    def ends(self, call: ToolCall, output: ToolOutput) -> bool:
        """Whether a call's output is the answer of the session."""
        return output.ok and call.name in self._tools and self._tools[call.name].final

    async def _once(self, step: int, place: int, call: ToolCall) -> ToolOutput:
        key = f"tool-{step}-{place}"
        begun = await self._log.begin(key)
        if begun.body is not None:
            return ToolOutput(**begun.body)
        events: list[Event] = []
        if begun.sent and not self._idempotent(call):
            output = ToolOutput(INTERRUPTED.format(name=call.name), ok=False)
            events.append(ToolInterrupted(step=step, call=call))
        else:
            output = await self._tools.run(call)
        _, joiners = await in_thread(self._neutraliser, output.text)
        returned = ToolReturned(
            step=step, call=call, output=output.text, ok=output.ok, neutralised=len(joiners)
        )
        await self._log.commit(key, asdict(output), Usage(), [*events, returned])
        return output

    def _idempotent(self, call: ToolCall) -> bool:
        # A tool that is not there does nothing, however often.
        return call.name not in self._tools or self._tools[call.name].idempotent
