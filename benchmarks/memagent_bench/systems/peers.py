"""Refine loops of other frameworks, over memagent's chunks and with the shared model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from memagent.budget import JOINT_SLACK, MIN_CHUNK
from memagent.chunking import Chunker, chunks
from memagent.documents import open_document
from memagent.errors import MemagentError, WindowTooSmall
from memagent.memory.plan import MemoryPlan
from memagent.messages import Message
from memagent.run.exchange import Unusable
from memagent.tasks import Sample
from memagent_bench.systems.asking import Asker, agent_of
from memagent_bench.systems.base import Outcome, Setting

Send = Callable[[tuple[Message, ...]], Awaitable[str]]
"""Messages -> reply."""


class Refine(Protocol):
    """A framework's loop: an answer from the first text, refined with each further one."""

    def frames(self, question: str) -> Sequence[tuple[Message, ...]]:
        """Returns its prompts, with the question and without text and answer."""
        ...

    async def run(self, question: str, texts: Sequence[str], send: Send) -> str:
        """Returns the last answer; each text takes one call."""
        ...


class Peer:
    """A framework's refine loop with its own prompts.

    The document is cut as for the memory agent, into chunks small enough that a prompt with the answer so far
    fits the same window; the answer may have as many tokens as a memory. The loop's last answer is the
    outcome: memagent's answer prompt isn't used. Calls are retried, counted and refused like all others, so a
    prompt that doesn't fit is a `ContextOverflow`, never a shorter text.

    A loop stores no runs: an interrupted sample starts again.

    Args:
        name: name in `--systems`.
        setting: the benchmark's.
        refine: the loop.
    """

    def __init__(self, name: str, setting: Setting, refine: Refine) -> None:
        self.name = name
        self._model, self._refine = setting.model, refine
        self._agent = agent_of(setting, gate="off")

    async def answer(self, sample: Sample, run_id: str) -> Outcome:
        """See `System.answer`.

        Raises:
            WindowTooSmall: the framework's prompts leave no room for a chunk.
        """
        plan = await self._agent.plan((sample.question,))
        question = plan.neutraliser.safe(sample.question)
        frame = await plan.counting(self._frame, plan, question)
        output = plan.budget.output
        limit = min(plan.budget.chunk, plan.budget.window - frame - 2 * output)
        if limit < MIN_CHUNK:
            raise WindowTooSmall(
                f"{self.name}: its prompts take {frame} tokens; with {output} each for the answer so far and the "
                f"new one, a window of {plan.budget.window} leaves no room for a chunk; use a larger window (--window)"
            )
        settings = plan.settings
        chunker = Chunker(
            plan.counter,
            limit,
            cuts=settings.cuts,
            neutralise=plan.neutraliser,
        )
        stream = chunks(open_document(sample.context), chunker, run=plan.counting)
        read = [(chunk.text, chunk.tokens) async for chunk in stream]
        outcome = Outcome(
            answer=None,
            chunks=len(read),
            predicted_calls=len(read),
            predicted_tokens=sum(tokens for _, tokens in read) + len(read) * (frame + 2 * output),
        )
        asker = Asker(plan, self._model)
        texts = [text for text, _ in read]
        return await asker.conclude(self._run(question, texts, asker), outcome)

    def _frame(self, plan: MemoryPlan, question: str) -> int:
        """Returns the tokens of the largest prompt without text and answer. Blocks."""
        frames = self._refine.frames(question)
        return max(map(plan.counter.count_messages, frames)) + JOINT_SLACK

    async def _run(self, question: str, texts: Sequence[str], asker: Asker) -> str:
        replies = 0

        async def send(messages: tuple[Message, ...]) -> str:
            nonlocal replies
            reply = await asker.reply(messages, replies)
            replies += 1
            # It becomes part of the next prompt, as a memory does.
            return asker.plan.neutraliser.safe(reply)

        try:
            answer = await self._refine.run(question, texts, send)
        except (MemagentError, Unusable):
            raise
        except Exception as error:
            raise MemagentError(
                f"{self.name} itself failed: {type(error).__name__}: {error}"
            ) from error
        if replies != len(texts):  # some frameworks log an error and continue without that text
            raise MemagentError(
                f"{self.name} made {replies} calls for {len(texts)} chunks: it skipped some, so its answer doesn't "
                f"count"
            )
        return answer
