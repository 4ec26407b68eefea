"""`RolloutModel`: the policy as a chat model, tokens in and tokens out."""

from __future__ import annotations

import copy
import hashlib
import itertools
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from memagent.errors import ConfigError
from memagent.messages import (
    ChatRequest,
    Completion,
    FinishReason,
    Sampling,
    TokenIds,
    ToolCall,
    Usage,
)
from memagent.models.base import refuse_overflow
from memagent.models.sharing import once_in_thread
from memagent.threads import in_thread
from memagent_engines.transformers.loading import text_counter
from memagent_train.rollout.conversations import Conversations, Prompt
from memagent_train.rollout.counter import RolloutCounter
from memagent_train.rollout.meter import Meter
from memagent_train.rollout.sampler import Sampler
from memagent_train.rollout.template import Template

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SHORT = 4096
"""Characters to tokenise directly: it takes less time than the 0.1 ms or so of handing work to a thread."""
AS_TRAINED = Sampling(temperature=1.0, top_p=1.0)
"""Sampling of the published rollouts, and the only one whose log-probs are the model's own."""


class RolloutModel:
    """The policy as a `ChatModel`: any agent runs on it unchanged.

    A prompt is the messages rendered by the tokenizer's chat template. If it continues a conversation, it is that
    conversation's ids verbatim, followed by what the template renders for the new messages.
    Replies include their ids and log-probabilities.

    Args:
        sampler: the engine.
        tokenizer: the policy's tokenizer, with a chat template.
        window: maximum tokens of prompt plus output; default: the engine's.
        name: the model's name in records.
        sampling: overrides the requests' sampling, since training must match it; None keeps it.
        chat_template: overrides the tokenizer's template.

    Raises:
        ConfigError: there is no chat template, or the window exceeds the engine's.
    """

    def __init__(
        self,
        sampler: Sampler,
        tokenizer: PreTrainedTokenizerBase,
        *,
        window: int | None = None,
        name: str = "policy",
        sampling: Sampling | None = AS_TRAINED,
        chat_template: str | None = None,
    ) -> None:
        if window is not None and not 0 < window <= sampler.window:
            raise ConfigError(
                f"window={window!r} is out of range: the policy takes 1 to {sampler.window} tokens"
            )
        self.name = name
        self.sampler = sampler
        self.sampling = sampling
        engine = getattr(sampler, "meter", None)
        self.meter: Meter = engine if isinstance(engine, Meter) else Meter()
        """Utilisation of the engine: idle share, tokens per second, conversations in flight. An engine without a meter
        counts as busy while a call is in flight."""
        self._seen_from_outside = self.meter is not engine
        self._window = sampler.window if window is None else window
        self._template = Template(tokenizer, chat_template)
        self._texts = once_in_thread(lambda: text_counter(tokenizer))
        self._conversations = Conversations(self._template)
        self._seed: int | None = None
        self._calls = itertools.count()

    def clone(self, seed: int | None = None) -> RolloutModel:
        """Returns the same model, engine and meter without open conversations, for a new rollout.

        Args:
            seed: requests without a seed get one derived from this and their number; None: random seeds.
        """
        other = copy.copy(self)
        other._conversations = Conversations(self._template)
        other._seed, other._calls = seed, itertools.count()
        return other

    async def complete(self, request: ChatRequest) -> Completion:
        """Draws a reply.

        Raises:
            ContextOverflow: prompt plus `max_tokens` exceed the window.
            TokenizerError: the chat template rejects the messages.
            ConfigError: the request has tools, but it isn't known how the chat template writes calls.
            ModelError: the engine failed, or isn't serving.
            DeviceFull: the prompt is too long for the device.
        """
        prompt = await self._prompt(request)
        refuse_overflow(self.name, len(prompt.ids), request.max_tokens, self._window)
        with self.meter.call(), self._computing():
            sampled = await self.sampler.sample(
                prompt.ids,
                max_tokens=request.max_tokens,
                sampling=self.sampling or request.sampling,
                seed=self._seed_of(request),
            )
        self.meter.count_call(len(prompt.ids), len(sampled.ids))
        text, calls = self._read(sampled.ids, prompt, request)
        self._conversations.add_reply(
            request.messages,
            prompt,
            text,
            sampled.ids,
            ended=sampled.finish is FinishReason.STOP,
            thinking=request.thinking,
            calls=calls,
            tools=request.tools,
        )
        return Completion(
            text=text,
            tool_calls=calls,
            finish_reason=sampled.finish,
            usage=Usage(calls=1, prompt_tokens=len(prompt.ids), completion_tokens=len(sampled.ids)),
            tokens=TokenIds(prompt=prompt.ids, sampled=sampled.ids, logprobs=sampled.logprobs),
        )

    async def counter(self) -> RolloutCounter:
        """Returns an exact counter: it counts the actual prompts."""
        return RolloutCounter(await self._texts.get(), self._conversations)

    async def window(self) -> int:
        """Returns the constructor's window, else the engine's."""
        return self._window

    async def aclose(self) -> None:
        """Does nothing: the engine belongs to its owner."""

    def __repr__(self) -> str:
        return f"RolloutModel({self.name!r}, {type(self.sampler).__name__}, window={self._window})"

    async def _prompt(self, request: ChatRequest) -> Prompt:
        messages = request.messages
        make = partial(
            self._conversations.prompt, messages, thinking=request.thinking, tools=request.tools
        )
        short = sum(len(message.content) for message in messages) <= SHORT
        if short or self._conversations.has_prompt(
            messages, thinking=request.thinking, tools=request.tools
        ):
            return make()
        return await in_thread(make)

    def _read(
        self, ids: Sequence[int], prompt: Prompt, request: ChatRequest
    ) -> tuple[str, tuple[ToolCall, ...]]:
        """Parses the text and the calls of a reply; without tools, all of it is text."""
        if not request.tools:
            return self._template.decode(ids), ()
        text, calls = self._template.read_calls(ids, request.tools, prompt=prompt.ids)
        # Nine letters and digits, which every template accepts; unique in the context.
        numbered = enumerate(calls, start=100 * len(request.messages))
        named = (call.model_copy(update={"id": f"c{n % 10**8:08d}"}) for n, call in numbered)
        return text, tuple(named)

    def _computing(self) -> AbstractContextManager[None]:
        return self.meter.computing() if self._seen_from_outside else nullcontext()

    def _seed_of(self, request: ChatRequest) -> int | None:
        if request.seed is not None or self._seed is None:
            return request.seed
        key = f"{self._seed}:{next(self._calls)}".encode()
        return int.from_bytes(hashlib.blake2b(key, digest_size=4).digest()) & 0x7FFFFFFF
