"""Who counts the tokens of a served model: its server, a tokenizer on this machine, or neither."""

import asyncio
import logging
from collections.abc import Mapping
from os import PathLike
from pathlib import Path

from memagent.errors import ModelError, PromptTruncated, ServerFailed, TokenizerError
from memagent.messages import ChatRequest, Usage
from memagent.models.base import ChatModel, Wrapper
from memagent.models.dialects import Dialect
from memagent.models.router import Router
from memagent.models.server import UNREACHED
from memagent.models.server_counter import LlamaCounter, ServerCounter
from memagent.models.sharing import Once, once_in_thread
from memagent.threads import in_thread
from memagent.tokens import load_counter
from memagent.tokens.base import TokenCounter
from memagent.tokens.byte_bound import ByteBound

logger = logging.getLogger("memagent")

TEMPLATE_FIELDS = (
    "add_generation_prompt",
    "add_special_tokens",
    "chat_template",
    "chat_template_kwargs",
    "continue_final_message",
    "documents",
    "tools",
)
"""Fields of a request's `extra_body` that change the prompt."""

CUT_SHARE, CUT_TOKENS = 0.05, 32
"""A prompt with at least this share missing was truncated: servers' templates differ by less."""


def _is_cut(prompt_tokens: int, count: int) -> bool:
    return prompt_tokens < count * (1 - CUT_SHARE) - CUT_TOKENS


def _least(counter: TokenCounter, request: ChatRequest, prompt_tokens: int) -> int:
    """Returns a prompt's minimum tokens, whatever the server's template adds around its texts. Blocks."""
    try:
        thinking, tools = request.thinking, request.tools
        count = counter.count_messages(request.messages, thinking=thinking, tools=tools)
    except TokenizerError:  # the template rejects it, but the server didn't
        return 0
    if not _is_cut(prompt_tokens, count):
        return count
    return min(count, sum(counter.count(message.content) for message in request.messages))


def local_counter(
    model: str, tokenizer: str | PathLike[str] | TokenCounter | None
) -> TokenCounter | None:
    """Loads the requested tokenizer (or raises a `TokenizerError`), else the model's own, else None. Blocks.

    The model's own is never downloaded, only looked up in the folder `model` and the local Hugging Face cache.
    """
    if tokenizer is not None:
        return load_counter(tokenizer)
    folder = Path(model)
    try:
        # An unrelated file or folder may happen to have the name of a served model.
        strange = folder.exists() and not (folder / "tokenizer.json").is_file()
        return None if strange else load_counter(model)
    except (TokenizerError, OSError, ValueError) as error:  # OSError, ValueError: not a valid path
        logger.debug("no tokenizer of %r: %s", model, error)
        return None


class Counting:
    """Finds a served model's counter, once. Methods that ask the server raise a `ModelError` if that fails."""

    def __init__(
        self,
        model: str,
        router: Router,
        tokenizer: str | PathLike[str] | TokenCounter | None,
        extra_body: Mapping[str, object],
    ) -> None:
        self._model, self._router, self._tokenizer = model, router, tokenizer
        fields = extra_body.items()
        self._template = {k: v for k, v in fields if k in TEMPLATE_FIELDS and v is not None}
        self._remote = Once(self._find_remote)
        self._counter = Once(self._find)
        self._wanted = False
        """Whether anyone except this model has asked for the counter."""

    async def counter(self) -> TokenCounter:
        """Returns the best counter available. Raises a `TokenizerError` if the given tokenizer can't be loaded."""
        counter = await self._counter.get()
        self._wanted = True
        return counter

    async def prompt(self, request: ChatRequest) -> int | None:
        """Returns the prompt's tokens, counted by the sender, else by the server; None if the server doesn't count."""
        try:
            if await self._remote.get() is None:
                return None
        except ServerFailed:  # not remembered: the next request asks again
            return None
        return request.prompt_tokens or await self.exact(request)

    async def exact(self, request: ChatRequest) -> int:
        """Like `prompt`, ignoring the sender's count. Raises a `TokenizerError` if the chat template lacks tools."""
        count = (await self._counter.get()).count_messages
        thinking, tools = request.thinking, request.tools
        return await in_thread(count, request.messages, thinking=thinking, tools=tools)

    async def compare(self, request: ChatRequest, counted: int | None, usage: Usage) -> None:
        """Compares the count of a prompt (`prompt`) with the server's report.

        A tokenizer may agree on the test texts and disagree on others: a fine-tune may have added tokens. At the
        first mismatch, counting switches to the server. Raises a `PromptTruncated` if the prompt has far more tokens.
        """
        tokens = usage.prompt_tokens
        if tokens <= 0:
            return
        if counted is not None and counted < tokens:
            remote = await self._remote.get()
            if remote and (count := await self.exact(request)) < tokens and remote.distrust():
                logger.warning(
                    "%r: a prompt was counted as %d tokens, but the server reports %d: the tokenizer on this machine "
                    "is a different one, so the server will be asked for every count; name the model's own tokenizer",
                    *(self._model, count, tokens),
                )
            return
        tokens += usage.cached_tokens  # some servers don't include them in the prompt's
        upper_bound = counted or request.prompt_tokens
        if upper_bound is not None and not _is_cut(tokens, upper_bound):
            return
        if counted is None and self._tokenizer is None and not self._wanted:
            return  # nothing is counted here
        counter = await self._counter.get()
        if not getattr(counter, "exact", False):
            return
        lower_bound = await in_thread(_least, counter, request, tokens)
        if _is_cut(tokens, lower_bound):
            raise PromptTruncated(
                f"{self._model!r}: the server read only {usage.prompt_tokens} tokens of a prompt of {lower_bound}: it "
                f"silently truncated the prompt, so its context length is smaller than the window in use. Give the "
                f"server a larger one (Ollama: 'ollama:NAME' sets its num_ctx), or use a smaller window "
                f"(--window). If {counter.name!r} is not the model's tokenizer, name the right one (--tokenizer)"
            )

    async def _find(self) -> TokenCounter:
        if (remote := await self._remote.get()) is not None:
            return remote
        local = await asyncio.to_thread(local_counter, self._model, self._tokenizer)
        if local is None:
            logger.warning(
                "there is no tokenizer for %r on this machine, and its server does not count tokens: counting UTF-8 "
                "bytes instead, which is safe but makes about 4x the calls; name its tokenizer "
                "(--tokenizer, tokenizer=) to avoid that",
                self._model,
            )
        return local or ByteBound()

    async def _find_remote(self) -> ServerCounter | None:
        """Returns the servers' own counter; None if they have none."""
        failures: list[ModelError] = []
        for server in self._router.servers:
            try:
                await server.listing_if_any(required=True)
                dialect = await server.dialect()
            except ModelError as error:
                failures.append(error)
                continue
            await server.check_name()
            if not dialect.engine:  # or it hides its list, and another server shows its own
                continue
            try:
                return await asyncio.to_thread(self._make_remote, dialect)
            except (*UNREACHED, ServerFailed):
                raise
            except ModelError as error:
                logger.info("%s does not count: %s", server.endpoint, error)
                return None
        if len(failures) == len(self._router.servers):
            raise failures[0]
        return None

    def _make_remote(self, dialect: Dialect) -> ServerCounter:
        local = local_counter(self._model, self._tokenizer)
        kind = LlamaCounter if dialect.name == "llamacpp" else ServerCounter
        remote = kind(self._router.ask, self._model, self._template, local)
        if local is not None and remote.who == "server":
            logger.warning(
                "the tokenizer %s disagrees with the server of %r, so the server is asked for every "
                "count; name the model's own tokenizer to save those requests",
                self._tokenizer if isinstance(self._tokenizer, (str, PathLike)) else local.name,
                self._model,
            )
        return remote


class Counted(Wrapper):
    """Replaces the wrapped model's counter by a tokenizer (see `load_counter`), loaded on first use."""

    def __init__(self, inner: ChatModel, tokenizer: str | PathLike[str] | TokenCounter) -> None:
        super().__init__(inner)
        self._loaded = once_in_thread(lambda: load_counter(tokenizer))

    async def counter(self) -> TokenCounter:
        """Returns the given counter. Raises a `TokenizerError` if it can't be loaded."""
        return await self._loaded.get()
