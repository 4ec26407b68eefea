"""Asks a model as the memory agent asks it (plan, prompts, retries, seeds), and adds up what that costs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from memagent.documents import open_document
from memagent.errors import LimitReached
from memagent.memory.agent import MemoryAgent
from memagent.memory.plan import MemoryPlan
from memagent.messages import CallKind, Completion, Message, Usage
from memagent.models.base import ChatModel
from memagent.prompts import read_answer, read_update
from memagent.prompts.reply import visible
from memagent.run.caller import Caller
from memagent.run.exchange import Exchange, Unusable
from memagent.tasks import Sample
from memagent_bench.systems.base import Outcome, Setting, Status

MOST_CALLS = 1 << 16
"""Calls that an agent may run at once: the shared model sets the bound, and a second one would hold it back."""
T = TypeVar("T")


def agent_of(setting: Setting, *, model: ChatModel | None = None, **changes: Any) -> MemoryAgent:
    """Returns a memory agent with the settings that all systems share.

    Don't close it if it uses the shared model: that would close the model too. It has no other resources.

    Args:
        setting: the benchmark's.
        model: replaces the shared model.
        changes: fields of `Settings` to change.
    """
    return MemoryAgent(
        setting.model if model is None else model,
        prompts=setting.prompts,
        store=setting.store,
        concurrency=MOST_CALLS,
        **(dict(setting.settings) | changes),
    )


async def text_of(sample: Sample) -> str:
    """Returns the document, checked as for an agent.

    Raises:
        DocumentError: it is empty, only white space, or not text.
    """
    return "".join([piece async for piece in open_document(sample.context).pieces()])


class Asker:
    """Makes the calls for one sample.

    Each prompt is counted before it is sent, so prompt and output stay within the window, and a reply that is
    empty or ends inside its reasoning is requested again, as by the memory agent. Calls may run concurrently.

    Args:
        plan: the plan for the sample's question.
        model: the shared model.
    """

    def __init__(self, plan: MemoryPlan, model: ChatModel) -> None:
        self.plan = plan
        self.usage = Usage()
        """Usage of all completed calls."""
        sampling, seed = plan.settings.sampling, plan.settings.seed
        self._caller = Caller(model, plan.counter, plan.window, sampling=sampling, seed=seed)

    async def answer(self, memory: str) -> str:
        """Returns the reply to the answer prompt with a text in its memory field.

        Raises:
            Unusable: no reply was an answer.
            ContextOverflow: the text is too long.
            ModelError: the call failed.
            LimitReached: the call wasn't sent.
        """
        plan, safe = self.plan, self.plan.neutraliser.safe(memory)
        answer = await self._ask(
            "answer/q0",
            "answer",
            plan.render("answer", 0, safe),
            lambda completion: read_answer(completion, plan.prompts),
            plan.parts(0, safe),
        )
        return answer.text

    async def note(self, text: str, place: int) -> tuple[str, int]:
        """Returns the update prompt's note on a text, with an empty memory, and its tokens: at most a memory's.

        Args:
            text: takes the place of a chunk; neutralised.
            place: number of the call, which determines its seed.

        Raises:
            MemagentError, Unusable: as `answer`.
        """
        plan = self.plan
        update = await self._ask(
            f"update-{place}/q0",
            "update",
            plan.render("update", 0, "", text),
            lambda completion: read_update(completion, plan.prompts, "off"),
            plan.parts(0, "", text),
        )
        # With the gate off, a reply is always a memory.
        note, tokens, _ = await plan.counting(
            plan.bound_memory, update.memory or "", cut_off=update.cut_off
        )
        return note, tokens

    async def reply(self, messages: tuple[Message, ...], place: int) -> str:
        """Returns the reply to other messages than memagent's, without its reasoning.

        Args:
            messages: the prompt.
            place: number of the call, which determines its seed.

        Raises:
            MemagentError, Unusable: as `answer`.
        """
        return await self._ask(f"other-{place}", "other", messages, visible, {})

    async def conclude(self, work: Awaitable[str], known: Outcome) -> Outcome:
        """Awaits the answer; if a limit or an unusable reply stops it, the outcome says so.

        Args:
            work: the work that produces the answer.
            known: the parts of the outcome known beforehand.

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
        key: str,
        kind: CallKind,
        messages: tuple[Message, ...],
        read: Callable[[Completion], T],
        parts: dict[str, str],
    ) -> T:
        exchange = Exchange(
            key=key,
            kind=kind,
            messages=messages,
            read=read,
            most=self.plan.budget.output,
            stop=getattr(self.plan.prompts.stop, kind, ()),
            parts=parts,
        )
        try:
            return (await self._caller.ask(exchange)).value
        finally:
            self.usage += exchange.usage
