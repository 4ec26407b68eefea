"""The expert that the policy imitates: plays perfectly, except that its summaries sometimes forget."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from memagent.messages import FinishReason, Sampling
from memagent_draws.game import LAST
from memagent_draws.tokenizer import CALL
from memagent_engines.transformers.sampler import Sampled
from memagent_train.smoke.tokenizer import KINDS, NOTHING

SUM_UP, NOTE = "write", "note"
"""Words of prompts.toml: the request for a summary, and what precedes one."""


class Expert:
    """Continues the prompts of a session, as if it were an engine with a policy.

    Args:
        tokenizer: of the policy.
        window: tokens of prompt plus reply.
        forgets: probability that a summary loses the value, 0 to 1.
        seed: seed of the forgetting.
    """

    def __init__(self, tokenizer: Any, *, window: int, forgets: float, seed: int) -> None:
        self._tokenizer = tokenizer
        self.window = window
        self._forgets, self._seed = forgets, seed

    def generating(self) -> AbstractContextManager[None]:
        """Does nothing: there is no engine."""
        return nullcontext()

    async def sample(
        self, prompt_ids: Sequence[int], *, max_tokens: int, sampling: Sampling, seed: int | None
    ) -> Sampled:
        """Returns the expert's reply as ids, with log-probabilities of 0."""
        text = self._tokenizer.decode(list(prompt_ids))
        reply: list[int] = self._tokenizer.encode(self.reply(text), add_special_tokens=False)
        ids = [*reply, self._tokenizer.eos_token_id]
        return Sampled(tuple(ids), (0.0,) * len(ids), FinishReason.STOP)

    def reply(self, prompt: str) -> str:
        """Returns a call, the answer, or a summary: one word."""
        messages = [message.split() for message in prompt.split(self._tokenizer.eos_token)]
        task = next(words for words in messages if "ask" in words)
        values = KINDS[task[task.index("ask") + 1]]
        value = next((word for word in _list_seen(messages, task) if word in values), NOTHING)
        last = messages[-2]
        if SUM_UP in last:
            forgets = random.Random(f"{self._seed}:{prompt}").random() < self._forgets
            return NOTHING if forgets else value
        return value if LAST in last else CALL


def _list_seen(messages: Sequence[Sequence[str]], task: Sequence[str]) -> Iterator[str]:
    """Yields the words of results and of the last summary."""
    if NOTE in task:
        yield task[task.index(NOTE) + 1]
    for words in messages:
        if words[1:2] == ["->"]:
            yield from words
