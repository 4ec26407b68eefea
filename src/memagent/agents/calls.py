"""One call: what is sent, how often, and what its reply is worth."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from memagent.agents.plan import Plan
from memagent.chunking import Chunk
from memagent.chunking.cuts import grapheme_floor, last_sentence_end
from memagent.errors import ContextOverflow
from memagent.events import Event, Retried
from memagent.messages import CallKind, ChatRequest, Completion, Message, Usage
from memagent.models.base import ChatModel
from memagent.prompts import UnusableReply
from memagent.runstore import QuestionState
from memagent.trajectory import Conversation

UNUSABLE_RETRIES = 2
"""How often a call is sent again when its reply is empty or ends inside its reasoning."""
T = TypeVar("T")


@dataclass(frozen=True)
class Call:
    """One request that is about to be sent, and is noted as such in the store."""

    kind: CallKind
    state: QuestionState
    chunk: Chunk | None
    messages: tuple[Message, ...]
    room: int
    """Tokens that may be generated."""
    repeated: int
    """How often it was already sent, in sessions that ended before its commit."""

    @property
    def place(self) -> int | None:
        """Index of the chunk, None for an answer."""
        return None if self.chunk is None else self.chunk.index


@dataclass(frozen=True)
class Reply(Generic[T]):
    """A usable reply, and what it took to get it."""

    parsed: T
    conversation: Conversation
    usage: Usage
    retried: list[Event]


class Unusable(Exception):
    """All replies to one call were unusable."""

    def __init__(self, detail: str, usage: Usage, retried: list[Event]) -> None:
        super().__init__(detail)
        self.detail, self.usage, self.retried = detail, usage, retried


class Caller:
    """Sends the calls of one reading.

    Args:
        plan: the reading's.
        model: where requests go.
    """

    def __init__(self, plan: Plan, model: ChatModel) -> None:
        self._plan, self._model = plan, model

    async def ask(self, call: Call, parse: Callable[[Completion], T]) -> Reply[T]:
        """Sends one request until its reply is usable.

        Raises:
            Unusable: it never was.
        """
        plan, question = self._plan, call.state.question
        seed_place = "answer" if call.place is None else call.place
        usage, retried, detail = Usage(repeated=call.repeated), list[Event](), ""
        for attempt in range(1 + UNUSABLE_RETRIES):
            if attempt:
                retried.append(Retried(question=question, chunk=call.place, reason=detail))
            request = ChatRequest(
                messages=call.messages,
                max_tokens=call.room,
                sampling=plan.settings.sampling,
                seed=seed_of(plan.settings.seed, question, seed_place, attempt),
                thinking=None if attempt == 0 else False,
                kind=call.kind,
                parts=self._parts(call),
            )
            completion = await self._model.complete(request)
            retried += [
                Retried(
                    question=question,
                    chunk=call.place,
                    reason=failure.error,
                    waited=failure.waited,
                )
                for failure in completion.failures
            ]
            try:
                parsed = parse(completion)
            except UnusableReply as error:
                detail = str(error)
            else:
                reply = Message(role="assistant", content=completion.text)
                conversation = Conversation(
                    messages=(*call.messages, reply),
                    kind=call.kind,
                    chunk=call.place,
                    tokens=completion.tokens,
                )
                return Reply(parsed, conversation, usage + completion.usage, retried)
            spent = completion.usage
            usage += Usage(
                retries=spent.retries + 1,
                retry_tokens=spent.retry_tokens + spent.prompt_tokens + spent.completion_tokens,
            )
        where = "the answer call" if call.place is None else f"chunk {call.place}"
        detail = f"{where}: {detail}, {1 + UNUSABLE_RETRIES} times in a row"
        raise Unusable(detail, usage, retried)

    def room(self, messages: tuple[Message, ...]) -> int:
        """Tokens left for the output: promise 1 is kept here, whatever the parts were counted as.

        Raises:
            ContextOverflow: hardly any, though the parts were within their budgets.
        """
        budget = self._plan.budget
        prompt = self._plan.counter.count_messages(messages)
        room = min(budget.output, budget.window - prompt)
        if room < (budget.output + 1) // 2:
            raise ContextOverflow(
                f"the prompt takes {prompt} tokens of a window of {budget.window}, at most {budget.prompt} were "
                f"planned: the counter {self._plan.counter.name!r} does not count as this model does; name the "
                f"model's own with --tokenizer"
            )
        return room

    def _parts(self, call: Call) -> dict[str, str]:
        prompts, gate = self._plan.prompts, self._plan.settings.gate
        parts = {
            "question": self._plan.questions[call.state.question],
            "memory": call.state.memory,
            "empty_memory": prompts.empty_memory,
            "answer_form": prompts.answer_form,
        }
        if call.chunk is not None:
            parts["chunk"] = call.chunk.text
            if gate in ("update", "both"):
                parts["keep"] = prompts.keep
        return parts


def bound_memory(text: str, plan: Plan, *, cut_off: bool) -> tuple[str, int, int]:
    """Makes a memory safe to show again, and cuts it at the last sentence end within the budget.

    Args:
        text: the memory as the model wrote it.
        plan: names the counter, the budget and what is neutralised.
        cut_off: the reply ended in the middle, so its last sentence is no sentence.

    Returns:
        The memory, its tokens (at most the budget's), and the tokens that it had before.
    """
    safe = plan.neutraliser.safe(text)
    measured = plan.counter.measure(safe)
    before, limit = measured.tokens, plan.budget.memory
    if before <= limit and not cut_off:
        return safe, before, before
    chars = len(safe) if before <= limit else measured.chars_within(limit)
    while True:
        # The space lets a full stop at the very end count as the end of a sentence.
        end = last_sentence_end(safe + " ", chars) or grapheme_floor(safe, chars)
        kept = safe[:end].rstrip()
        tokens = plan.counter.count(kept)
        if tokens <= limit:
            return kept, tokens, before
        chars = end - 1


def seed_of(run_seed: int, question: int, place: int | str, attempt: int) -> int:
    """The engine's seed for one call: 31 bits, the same in every process and on every resume."""
    key = f"{run_seed}:{question}:{place}:{attempt}".encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=4).digest()) & 0x7FFFFFFF
