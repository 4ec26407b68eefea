"""One call: what is sent, how often, and what its reply is worth."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from memagent.chunking import Chunk
from memagent.chunking.fitting import within
from memagent.errors import ContextOverflow, ModelError
from memagent.events import Event, Retried
from memagent.memory.plan import Plan
from memagent.messages import CallKind, ChatRequest, Completion, Message, Usage
from memagent.models.base import ChatModel
from memagent.prompts import UnusableReply
from memagent.runstore import QuestionState
from memagent.trajectory import Conversation

UNUSABLE_RETRIES = 2
"""How often a call is sent again when its reply is empty or ends inside its reasoning."""
NOT_EMPTY = r"\S[\s\S]*"
"""What a reply has to match after one that was empty."""
T = TypeVar("T")


@dataclass
class Call:
    """One request that is about to be sent, is noted as such in the store, and what it has cost so far."""

    kind: CallKind
    state: QuestionState
    chunk: Chunk | None
    messages: tuple[Message, ...]
    room: int
    """Tokens that may be generated."""
    usage: Usage
    """Of what led to nothing, until the call is through."""
    unusable: int
    """Unusable replies so far, in earlier sessions too: the next attempt's seed goes on from there."""
    retried: list[Event] = field(default_factory=list[Event])

    @property
    def place(self) -> int | None:
        """Index of the chunk, None for an answer."""
        return None if self.chunk is None else self.chunk.index


@dataclass(frozen=True)
class Reply(Generic[T]):
    """A usable reply, and the conversation that it ends."""

    parsed: T
    conversation: Conversation


class Unusable(Exception):
    """All replies to one call were unusable; the message says how."""


class Caller:
    """Sends the calls of one reading.

    Args:
        plan: the reading's.
        model: where requests go.
    """

    def __init__(self, plan: Plan, model: ChatModel) -> None:
        self._plan, self._model = plan, model

    async def ask(self, call: Call, parse: Callable[[Completion], T]) -> Reply[T]:
        """Sends one request until its reply is usable. What that costs adds up in `call`, whatever happens.

        Raises:
            Unusable: it never was.
            ModelError: it failed.
            LimitReached: it was not sent.
        """
        detail = ""
        for attempt in range(1 + UNUSABLE_RETRIES):
            if attempt:
                self._note(call, detail)
            try:
                completion = await self._model.complete(await self._request(call))
            except ModelError as error:
                call.usage += Usage(retries=error.attempts)
                raise
            for failure in completion.failures:
                self._note(call, failure.error, failure.waited)
            try:
                parsed = parse(completion)
            except UnusableReply as error:
                detail = str(error)
            else:
                call.usage += completion.usage
                reply = Message(role="assistant", content=completion.text)
                conversation = Conversation(
                    messages=(*call.messages, reply),
                    kind=call.kind,
                    chunk=call.place,
                    tokens=completion.tokens,
                )
                return Reply(parsed, conversation)
            call.unusable += 1
            spent = completion.usage
            call.usage += Usage(
                retries=spent.retries + 1,
                retry_tokens=spent.retry_tokens + spent.prompt_tokens + spent.completion_tokens,
            )
        where = "the answer call" if call.place is None else f"chunk {call.place}"
        raise Unusable(f"{where}: {detail}, {1 + UNUSABLE_RETRIES} times in a row")

    async def _request(self, call: Call) -> ChatRequest:
        # After an unusable reply: without reasoning, which may have used up the output, and not empty.
        thinking = False if call.unusable else None
        room = call.room
        if thinking is not None:  # some templates write more then
            room = await self._plan.counting(self.room, call.messages, thinking=thinking)
        settings, question = self._plan.settings, call.state.question
        place = "answer" if call.place is None else call.place
        return ChatRequest(
            messages=call.messages,
            max_tokens=room,
            sampling=settings.sampling,
            seed=seed_of(settings.seed, question, place, call.unusable),
            thinking=thinking,
            pattern=NOT_EMPTY if call.unusable else None,
            kind=call.kind,
            parts=self._parts(call),
        )

    @staticmethod
    def _note(call: Call, reason: str, waited: float = 0.0) -> None:
        call.retried.append(
            Retried(question=call.state.question, chunk=call.place, reason=reason, waited=waited)
        )

    def room(self, messages: tuple[Message, ...], *, thinking: bool | None = None) -> int:
        """Tokens left for the output: promise 1 is kept here, whatever the parts were counted as.

        Raises:
            ContextOverflow: hardly any, though the parts were within their budgets.
        """
        budget = self._plan.budget
        prompt = self._plan.counter.count_messages(messages, thinking=thinking)
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
    """Makes a memory safe to show again, and cuts it where a sentence ends within the budget.

    Args:
        text: the memory as the model wrote it.
        plan: names the counter, the budget and what is neutralised.
        cut_off: the reply ended in the middle, so its last sentence is no sentence.

    Returns:
        The memory, its tokens (at most the budget's), and the tokens that it had before.
    """
    safe = plan.neutraliser.safe(text)
    return within(safe, plan.budget.memory, plan.counter, cut_off=cut_off)


def seed_of(run_seed: int, question: int, place: int | str, attempt: int) -> int:
    """The engine's seed for one call: 31 bits, the same in every process and on every resume."""
    key = f"{run_seed}:{question}:{place}:{attempt}".encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=4).digest()) & 0x7FFFFFFF
