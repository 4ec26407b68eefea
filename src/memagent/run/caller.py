"""Messages in, usable reply out: handles a call's room, seed, retries and cost, and commits it if the run has a log."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, TypeVar

from memagent.errors import ContextOverflow, LimitReached, ModelError, NoReply, RunMismatch
from memagent.events import Event
from memagent.messages import ChatRequest, Completion, FinishReason, Message, Sampling, Usage
from memagent.models.base import ChatModel
from memagent.models.limit import complete_usage
from memagent.models.retry import count_in_thread, patiently
from memagent.prompts import UnusableReply
from memagent.run.exchange import Exchange, Record, Reply, Unusable
from memagent.run.log import Log
from memagent.texts import digest
from memagent.threads import in_thread
from memagent.tokens import TokenCounter

UNUSABLE_RETRIES = 2
"""How many times a call is retried if its reply is empty, cut off in its reasoning, or otherwise unusable."""
NOT_EMPTY = r"\S[\s\S]*"
"""Pattern that a reply must match after an unusable one."""
WARM = Sampling()
"""Sampling for retrying a doubted reply: a greedy retry would return the same."""
T = TypeVar("T")


@dataclass(eq=False)
class Caller:
    """Makes the exchanges of one run. Safe for concurrent use."""

    model: ChatModel
    counter: TokenCounter
    window: int
    """Maximum tokens of prompt plus output."""
    _: KW_ONLY
    sampling: Sampling
    seed: int
    """Seed of the run, from which those of calls are derived."""
    log: Log | None = None
    """Commits each reply, and in a replay returns it instead of sending the request; None stores nothing."""
    trusts_bounds: bool = True
    """Whether bounds are relied on: until a prompt exceeds its bound, after which prompts are counted whole."""

    async def ask(self, exchange: Exchange[T]) -> Reply[T]:
        """Sends a request until a reply is usable, and commits that reply.

        Raises:
            Unusable: no reply was usable.
            ModelError: the call failed.
            LimitReached: a usage limit prevented the call.
            ContextOverflow: the prompt leaves no room for a reply.
        """
        wasted_attempts = 0
        if self.log is not None:
            start = await self.log.begin(exchange.key)
            if start.body is not None:
                return self._replay(exchange, start.body)
            exchange.charge(Usage(repeated=start.sent))
            wasted_attempts = start.wasted
        detail, fallback, cut_off = "", None, False
        for attempt in range(exchange.attempts, 1 + UNUSABLE_RETRIES):
            if detail:
                exchange.note(detail)
                exchange.wasted += 1
                await self._spend(exchange, again=True)
            completion = await self._complete(exchange, wasted_attempts + attempt)
            cost, reply_attempt, last = completion.usage, attempt, attempt == UNUSABLE_RETRIES
            try:
                value = exchange.read(completion)
                doubt = exchange.doubts(value) if exchange.doubts else None
            except UnusableReply as error:
                if not last or fallback is None:
                    detail, cut_off = str(error), completion.finish_reason is FinishReason.LENGTH
                    exchange.charge(waste(cost))
                    if exchange.tool_choice and completion.tool_calls:  # "none" was ignored
                        exchange.tools, exchange.tool_choice = (), None
                    continue
                # A doubted reply is better than none. It was charged as wasted; this one's cost takes its place.
                value, completion, reply_attempt, doubt = fallback
            if doubt is not None and not last:
                fallback = value, completion, attempt, doubt
                detail, exchange.warm = doubt, True
                exchange.charge(waste(cost))
                continue
            if exchange.turn is not None:
                await exchange.turn
            if exchange.rejects is not None and (reason := exchange.rejects(value)) is not None:
                exchange.note(reason)
                cost = waste(cost)
            exchange.charge(cost)
            fields = value, completion, exchange.usage, exchange.messages, exchange.kind
            reply = Reply(*fields, attempt=wasted_attempts + reply_attempt, doubt=doubt)
            if self.log is not None:
                make = partial(_make_record, exchange, reply)
                commit = partial(self.log.write, self.log.store.commit, exchange.key, made=make)
                await patiently(commit, name=f"run {self.log.run_id}", model=self.model)
            return reply
        await self._fail(exchange, detail, 0, wasted=1)
        raise Unusable(f"{detail}, {1 + UNUSABLE_RETRIES} times in a row", cut_off)

    async def discard(self, exchange: Exchange[Any]) -> None:
        """Commits the cost of an exchange whose turn never came; a call without a reply costs its prompt."""
        if (cost := exchange.uncharged) is not None:
            tokens = cost.prompt_tokens + cost.completion_tokens + cost.retry_tokens
            exchange.charge(Usage(discarded=1, retries=cost.retries, retry_tokens=tokens))
        # Another prompt will be sent under this key, and unusable replies to this one say nothing about it.
        exchange.wasted = 0
        await self._spend(exchange, again=False)

    async def _complete(self, exchange: Exchange[Any], attempt: int) -> Completion:
        """Sends the request once."""
        # After an unusable reply: without reasoning, which may have used up the output, and not empty.
        thinking = False if attempt else None
        try:
            prompt = await self._count(exchange, thinking)
            room = min(exchange.most, self.window - prompt)
            least = (exchange.most + 1) // 2 if exchange.least is None else exchange.least
            if room < least:  # no call exceeds the window, however its parts were counted
                raise ContextOverflow(
                    f"{exchange.key}: the prompt takes {prompt} tokens of a window of {self.window}, which leaves "
                    f"{max(room, 0)} for the reply, which needs {least}: the counter {self.counter.name!r} does "
                    f"not match this model (name the model's own with --tokenizer), or its chat template has grown",
                    attempts=0,
                )
        except ModelError as error:  # nothing was sent
            await self._fail(exchange, str(error), error.attempts)
            raise
        request = ChatRequest(
            messages=exchange.messages,
            max_tokens=room,
            sampling=WARM if exchange.warm and not self.sampling.temperature else self.sampling,
            seed=seed_of(self.seed, exchange.key, attempt),
            thinking=thinking,
            # With native tool calls, a pattern would prevent the model from making them.
            pattern=NOT_EMPTY if attempt and not exchange.tools else None,
            stop=exchange.stop,
            tools=exchange.tools,
            tool_choice=exchange.tool_choice,
            kind=exchange.kind,
            parts=exchange.parts,
            prompt_tokens=prompt,
        )
        exchange.uncharged = Usage(prompt_tokens=prompt)
        try:
            completion = await self.model.complete(request)
        except (ModelError, LimitReached) as error:
            attempts = error.attempts if isinstance(error, ModelError) else 0
            exchange.charge(Usage(retries=attempts))
            # Counted as an attempt: another seed may give a reply.
            await self._fail(exchange, str(error), attempts, wasted=isinstance(error, NoReply))
            raise
        if min(completion.usage.prompt_tokens, completion.usage.completion_tokens) <= 0:
            completion = await in_thread(complete_usage, request, completion, self.counter)
        for failure in completion.failures:
            exchange.note(failure.error, failure.waited)
        if exchange.bound is not None and completion.usage.prompt_tokens > exchange.bound:
            self.trusts_bounds = False
        exchange.uncharged = completion.usage
        return completion

    async def _count(self, exchange: Exchange[Any], thinking: bool | None) -> int:
        """Returns the tokens of the prompt: an upper bound from its parts if that leaves enough room, else a count."""
        bound = exchange.bound
        # Some templates add text if reasoning is turned off.
        trusts = thinking is None and self.trusts_bounds
        if trusts and bound is not None and bound + exchange.most + exchange.near <= self.window:
            return bound
        count = exchange.count or partial(self.counter.count_messages, tools=exchange.tools)
        return await count_in_thread(self.model, count, exchange.messages, thinking=thinking)

    async def _fail(
        self, exchange: Exchange[Any], reason: str, attempts: int, *, wasted: int = 0
    ) -> None:
        """Commits the cost of a failed call; the call is still pending, unless its failure is committed."""
        if self.log is not None and exchange.keeps_failure:
            body = {"failed": reason, "attempts": attempts}
            await self.log.commit(exchange.key, body, exchange.unsaved, exchange.retried)
        else:
            exchange.wasted += wasted
            await self._spend(exchange, again=False)
            if exchange.turn is not None:  # only then its failure counts
                await exchange.turn
                await self._spend(exchange, again=False)

    async def _spend(self, exchange: Exchange[Any], *, again: bool) -> None:
        """Commits the cost of failed attempts so far, so that a kill loses none of it."""
        if self.log is not None:
            wasted = 0
            if exchange.turn is None or exchange.turn.done():  # else the prompt may still change
                wasted, exchange.wasted = exchange.wasted, 0
            spent, exchange.unsaved = exchange.unsaved, Usage()
            events, exchange.retried = exchange.retried, []
            spend = self.log.store.spend
            await self.log.write(spend, exchange.key, spent, events, wasted=wasted, again=again)

    def _replay(self, exchange: Exchange[T], body: Mapping[str, Any]) -> Reply[T]:
        """Returns the committed reply. Raises the committed failure, or `RunMismatch` if it was for other messages."""
        if "failed" in body:
            raise ModelError(body["failed"], attempts=body["attempts"])
        if exchange.kind == "summary" and body.get("prompt") != digest_prompt(exchange.messages):
            raise RunMismatch(
                f"{exchange.key} of this run summarises different turns than a replay would: the run was made by "
                f"an earlier version of memagent, or tokens are counted differently; start a new run"
            )
        reply = body["reply"]
        if "conversation" in body:
            reply = reply | {"text": body["conversation"]["messages"][-1]["content"]}
        completion = Completion.model_validate(reply)
        exchange.usage = completion.usage  # what depends on it is reported as in the first session
        attempt = body.get("attempt", 0)
        value = exchange.read(completion)
        return Reply(value, completion, Usage(), exchange.messages, exchange.kind, attempt)


def _make_record(
    exchange: Exchange[T], reply: Reply[T]
) -> tuple[dict[str, Any], Usage, Sequence[Event], Mapping[str, Mapping[str, Any]]]:
    """Returns body, cost, events and further effects of a reply. Blocks."""
    record: Record = ({}, ()) if exchange.record is None else exchange.record(reply)
    more, events = record
    # The conversation holds the text and the token ids already.
    exclusions = {"text", "tokens"} if "conversation" in more else set[str]()
    dump = reply.completion.model_dump(mode="json", exclude_defaults=True, exclude=exclusions)
    attempt_field = {"attempt": reply.attempt} if reply.attempt else {}
    # Which turns a summary covers depends on token counts, so a replay must notice a difference.
    digest = {"prompt": digest_prompt(exchange.messages)} if exchange.kind == "summary" else {}
    body = {"reply": dump, **attempt_field, **digest, **more}
    return body, exchange.unsaved, (*exchange.retried, *events), exchange.also


def waste(usage: Usage) -> Usage:
    """Converts the cost of a reply to that of a discarded one."""
    return Usage(
        retries=usage.retries + 1,
        retry_tokens=usage.retry_tokens + usage.prompt_tokens + usage.completion_tokens,
    )


def digest_prompt(messages: tuple[Message, ...]) -> str:
    """Returns a digest that identifies a prompt: 64 bits in hex."""
    return digest("\0".join(message.model_dump_json() for message in messages), 8)


def seed_of(run_seed: int, key: str, attempt: int) -> int:
    """Derives the engine's seed for one call: 31 bits, the same in every process and after every resume."""
    raw = hashlib.blake2b(f"{run_seed}:{key}:{attempt}".encode(), digest_size=4).digest()
    return int.from_bytes(raw) & 0x7FFFFFFF
