"""Any OpenAI-compatible server, through the openai client."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal, cast

from memagent.errors import ConfigError, ModelError, RequestRefused
from memagent.messages import ChatRequest, Completion
from memagent.models.local_counter import local_counter
from memagent.models.once import Once
from memagent.models.openai_client import Clients
from memagent.models.openai_errors import says_no_model, translate
from memagent.models.openai_reply import (
    ServedModel,
    read_completion,
    read_models,
    served_window,
)
from memagent.tokens.base import TokenCounter

if TYPE_CHECKING:
    import openai
    from openai.types.chat import ChatCompletionMessageParam

logger = logging.getLogger("memagent")

Dialect = Literal["plain", "openai", "vllm", "sglang"]
"""Which fields a server takes beyond the common ones: unknown fields are a 422 on some servers."""

LIST_SECONDS = 30.0
"""A model list needs no computing: a server that has not sent it by then hangs."""


class OpenAIModel:
    """A model behind an OpenAI-compatible server.

    It sends each request once: put `Retry` around it, as `open_model` does. It keeps one client, with
    its connections, for each event loop; `aclose` closes them, and so does the end of `asyncio.run`.

    Args:
        model: the name under which the server serves it.
        base_url: up to and including `/v1`. User and password in it become basic authorisation.
        api_key: the bearer token, None for servers that want none. The environment is not read here.
        dialect: `plain` sends what every server knows; `openai` names the output limit as the OpenAI
            API wants it; `vllm` and `sglang` can switch a model's reasoning off.
        window: most tokens of prompt plus output, instead of asking the server.
        tokenizer: what `load_counter` takes, instead of looking for the model's own.
        timeout: seconds after which a call without a reply is given up.
        default_headers: sent with every request.
        extra_body: fields added to every chat request; they win over those that memagent sets.

    Raises:
        ConfigError: an argument cannot be right.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str,
        api_key: str | None = None,
        dialect: Dialect = "plain",
        window: int | None = None,
        tokenizer: str | None = None,
        timeout: float = 600.0,
        default_headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, object] | None = None,
    ) -> None:
        if not model.strip():
            raise ConfigError(f"the model name {model!r} is empty; give the name that is served")
        if window is not None and window < 1:
            raise ConfigError(f"window {window!r} is no number of tokens; give one such as 8192")
        if not timeout > 0:
            raise ConfigError(f"timeout {timeout!r} is no number of seconds above 0")
        self.model = model
        self._dialect: Dialect = dialect
        self._window = window
        self._tokenizer = tokenizer
        self._extra_body = dict(extra_body or {})
        self._timeout = timeout
        self._clients = Clients(base_url, api_key, default_headers or {}, timeout)
        self._endpoint = self._clients.endpoint(self.name)
        self._listing = Once(self._list_models)
        self._counter = Once(self._find_counter)

    @property
    def name(self) -> str:
        """Dialect and model, `vllm:Qwen/Qwen3-4B`; `openai:` for plain servers too."""
        scheme = "openai" if self._dialect == "plain" else self._dialect
        return f"{scheme}:{self.model}"

    async def complete(self, request: ChatRequest) -> Completion:
        """Sends the request, once.

        Raises:
            ModelError: one of its subclasses for whatever went wrong.
        """
        client = await self._clients.get()
        import openai

        try:
            raw = await client.chat.completions.with_raw_response.create(
                model=self.model,
                messages=cast(
                    "list[ChatCompletionMessageParam]",
                    [{"role": m.role, "content": m.content} for m in request.messages],
                ),
                temperature=request.sampling.temperature,
                top_p=request.sampling.top_p,
                extra_body=self._fields(request),
            )
        except openai.APIError as error:
            served = await self._served() if says_no_model(error) else None
            raise translate(error, self._endpoint, served) from self._cause(error)
        except UnicodeEncodeError as error:
            raise RequestRefused(
                f"{self._endpoint}: the prompt holds half a surrogate pair "
                f"({error.object[error.start]!r}), which cannot be sent; "
                f"decode the document with errors='replace'"
            ) from None
        return read_completion(raw.content, self._endpoint)

    async def counter(self) -> TokenCounter:
        """The tokenizer that was given, else the model's own where it lies on this machine.

        Without either it counts UTF-8 bytes, an upper bound, and says so on the logger `memagent`.

        Raises:
            TokenizerError: the tokenizer that was given cannot be had.
        """
        return await self._counter.get()

    async def window(self) -> int | None:
        """What the constructor was given, else what the server's model list says, asked once.

        Raises:
            ModelError: the list was asked for and did not come.
        """
        if self._window is not None:
            return self._window
        listed = await self._listing.get()
        if listed is None:
            return None
        return served_window(self.model, listed)

    async def aclose(self) -> None:
        """Closes the connections of all event loops."""
        await self._clients.aclose()

    def __repr__(self) -> str:
        return f"OpenAIModel({self.name!r}, base_url={self._endpoint.base_url!r})"

    def _fields(self, request: ChatRequest) -> dict[str, object]:
        """The fields that differ between servers, or that are left out when unset."""
        limit = "max_completion_tokens" if self._dialect == "openai" else "max_tokens"
        fields: dict[str, object] = {limit: request.max_tokens}
        if request.seed is not None:
            fields["seed"] = request.seed
        if request.thinking is False and self._dialect in ("vllm", "sglang"):
            fields["chat_template_kwargs"] = {"enable_thinking": False}
        return fields | self._extra_body

    async def _find_counter(self) -> TokenCounter:
        return await local_counter(self.model, self._tokenizer)

    async def _list_models(self) -> tuple[ServedModel, ...] | None:
        """The server's model list, None where it keeps none."""
        client = await self._clients.get()
        import openai

        seconds = min(LIST_SECONDS, self._timeout)
        try:
            raw = await client.models.with_raw_response.list(timeout=seconds)
        except openai.APIStatusError as error:
            if error.status_code in _NO_LIST:
                logger.info(
                    "%s: no list of models there (status %d)", self._endpoint, error.status_code
                )
                return None
            raise translate(error, self._endpoint) from self._cause(error)
        except openai.APIError as error:
            asked = replace(self._endpoint, timeout=seconds)
            raise translate(error, asked) from self._cause(error)
        return read_models(raw.content, self._endpoint)

    async def _served(self) -> list[str] | None:
        """The ids that the server lists, for an error message: None rather than a second error."""
        try:
            listed = await self._list_models()
        except ModelError:
            return None
        return None if listed is None else [entry.id for entry in listed]

    def _cause(self, error: openai.APIError) -> BaseException | None:
        """The original error, unless a traceback would show a secret that the server echoed."""
        return None if self._endpoint.leaks(error) else error


_NO_LIST = {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED}
