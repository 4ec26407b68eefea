"""Asks a model as the memory agent asks it (plan, prompts, retries, seeds), and adds up what that costs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from memagent.agents.calls import Call, Caller, Unusable, bound_memory
from memagent.agents.memory import MemoryAgent
from memagent.agents.plan import Plan
from memagent.chunking import Chunk
from memagent.documents import open_document
from memagent.errors import LimitReached
from memagent.messages import CallKind, Completion, Message, Usage
from memagent.models.base import ChatModel
from memagent.prompts import read_answer, read_update
from memagent.prompts.reply import visible
from memagent.runstore import QuestionState
from memagent.tasks import Sample
from memagent_bench.systems.base import Outcome, Setting, Status

MOST_CALLS = 1 << 16
"""Calls that an agent lets run at once: the bound is the shared model's, and a second one would hold it back."""
T = TypeVar("T")


def agent_of(setting: Setting, *, model: ChatModel | None = None, **changes: Any) -> MemoryAgent:
    """A memory agent with the settings that all systems share.

    It must not be closed where the model is the shared one: it would close that, too. It holds nothing else.

    Args:
        setting: the benchmark's.
        model: instead of the shared model.
        changes: fields of `Settings` that are others.
    """
    return MemoryAgent(
        setting.model if model is None else model,
        prompts=setting.prompts,
        store=setting.store,
        concurrency=MOST_CALLS,
        **(dict(setting.settings) | changes),
    )


async def text_of(sample: Sample) -> str:
    """The document, checked as it is for an agent.

    Raises:
        DocumentError: it is empty, only white space, or no text.
    """
    return "".join([piece async for piece in open_document(sample.context).pieces()])


def part(index: int, text: str) -> Chunk:
    """Text that is shown in the place of a chunk; its index numbers the call, and so makes its seed."""
    return Chunk(
        index=index,
        text=text,
        start=0,
        end=len(text),
        tokens=0,
        last=False,
        next_start=len(text),
        digest="",
        neutralised=0,
    )


class Asker:
    """The calls about one sample.

    Each prompt is counted before it is sent, so prompt and output stay within the window, and a reply that is
    empty or ends inside its reasoning is asked for again, as by the memory agent. Calls are safe to make at once.

    Args:
        plan: of the sample's question.
        model: the shared one.
    """

    def __init__(self, plan: Plan, model: ChatModel) -> None:
        self.plan = plan
        self.usage = Usage()
        """Of all calls that came to an end."""
        self._caller = Caller(plan, model)

    async def answer(self, memory: str) -> str:
        """The reply to the answer prompt with a text in its memory field.

        Raises:
            Unusable: the reply never was an answer.
            ContextOverflow: the text is too long.
            ModelError: the call failed.
            LimitReached: it was not sent.
        """
        safe = self.plan.neutraliser.safe(memory)
        messages = self.plan.render("answer", self.plan.questions[0], safe)
        prompts = self.plan.prompts
        reply = await self._ask("answer", messages, lambda c: read_answer(c, prompts), memory=safe)
        return reply.text

    async def note(self, chunk: Chunk) -> tuple[str, int]:
        """What the update prompt makes of a chunk and an empty memory: at most the memory's tokens, and how many.

        Raises:
            MemagentError, Unusable: as `answer`.
        """
        plan = self.plan
        messages = plan.render("update", plan.questions[0], "", chunk.text)
        update = await self._ask(
            "update", messages, lambda c: read_update(c, plan.prompts, "off"), chunk=chunk
        )
        # With the gate off, a reply always is a memory.
        text, tokens, _ = await plan.counting(
            bound_memory, update.memory or "", plan, cut_off=update.cut_off
        )
        return text, tokens

    async def reply(self, messages: tuple[Message, ...], place: int) -> str:
        """The reply to messages of another's making, without its reasoning.

        Args:
            messages: the prompt.
            place: the number of the call, which makes its seed.

        Raises:
            MemagentError, Unusable: as `answer`.
        """
        return await self._ask("other", messages, visible, chunk=part(place, ""))

    async def conclude(self, work: Awaitable[str], known: Outcome) -> Outcome:
        """Awaits the answer; where a limit or an unusable reply stops it, the outcome says so.

        Args:
            work: what asks.
            known: what is known of the outcome beforehand.

        Raises:
            MemagentError: a call failed.
        """
        try:
            answer = await work
        except (LimitReached, Unusable) as stop:
            end = {"status": Status.STOPPED, "detail": str(stop), "usage": self.usage}
        else:
            end = {"answer": answer, "usage": self.usage}
        return known.model_copy(update=end)

    async def _ask(
        self,
        kind: CallKind,
        messages: tuple[Message, ...],
        parse: Callable[[Completion], T],
        *,
        memory: str = "",
        chunk: Chunk | None = None,
    ) -> T:
        room = await self.plan.counting(self._caller.room, messages)
        state = QuestionState(0, memory=memory)
        call = Call(kind, state, chunk, messages, room, Usage(), unusable=0)
        try:
            return (await self._caller.ask(call, parse)).parsed
        finally:
            self.usage += call.usage
