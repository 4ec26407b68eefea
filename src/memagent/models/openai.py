"""Any OpenAI-compatible server, or several of them, through the openai client."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from numbers import Real
from os import PathLike
from typing import cast

from memagent.errors import AuthenticationFailed, ConfigError, ContextOverflow, ModelError
from memagent.messages import ChatRequest, Completion, FinishReason
from memagent.models.base import check_window, refuse_overflow
from memagent.models.counting import Counting
from memagent.models.dialects import DIALECTS, OTHER_LIMIT, DialectName, merge_fields, write_message
from memagent.models.openai_client import Clients
from memagent.models.openai_reply import read_completion
from memagent.models.router import Router
from memagent.models.server import Server
from memagent.tokens.base import TokenCounter


class OpenAIModel:
    """A model behind an OpenAI-compatible server, or behind several identical ones.

    It asks the server (`memagent probe` prints the answers) for its window, its dialect, and whether it counts
    tokens. If it does, memagent trusts the server's counts: a tokenizer on this machine is used only if it
    agrees, and a request that would not fit the window is refused before it is sent.

    Each request is sent once: wrap it in `Retry`, as `open_model` does. There is one client, with
    its connections, per event loop; `aclose` closes them, and so does the end of `asyncio.run`.

    Args:
        model: the name under which the server serves it.
        base_url: URL up to and including `/v1`; a list for several servers (see `Router`). A user and password in
            it are sent as basic authentication.
        api_key: the bearer token; None for servers without one. The environment is not read here.
        dialect: what to assume for a server that can't be identified.
        window: maximum tokens of prompt plus output, instead of the server's (but never above it).
        tokenizer: what `load_counter` accepts, instead of looking for the model's own.
        timeout: seconds after which a call without a reply fails.
        default_headers: sent with every request; never shown.
        extra_body: fields added to every chat request; they override those that memagent sets. None leaves a
            field out; for `max_tokens` it sends `max_completion_tokens` instead, and vice versa.
        tokens: also asks for token ids and log-probabilities, if the server supports it.

    Raises:
        ConfigError: an argument is invalid.
    """

    _server = Server

    def __init__(
        self,
        model: str,
        *,
        base_url: str | Sequence[str],
        api_key: str | None = None,
        dialect: DialectName = "plain",
        window: int | None = None,
        tokenizer: str | PathLike[str] | TokenCounter | None = None,
        timeout: float = 600.0,
        default_headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, object] | None = None,
        tokens: bool = False,
    ) -> None:
        urls = [base_url] if isinstance(base_url, str) else list(base_url)
        if not model.strip():
            raise ConfigError(f"the model name {model!r} is empty; give the server's name for it")
        check_window(window)
        if not (isinstance(timeout, Real) and timeout > 0):
            raise ConfigError(f"timeout must be over 0 seconds, got {timeout!r}")
        if dialect not in DIALECTS:
            raise ConfigError(f"the dialect {dialect!r} is unknown; use {', '.join(DIALECTS)}")
        for option, mapping in (("headers", default_headers), ("extra_body", extra_body)):
            names = cast("Mapping[object, object]", mapping or {})
            if not (isinstance(names, Mapping) and all(isinstance(name, str) for name in names)):  # pyright: ignore[reportUnnecessaryIsInstance] - users give anything
                raise ConfigError(
                    f"{option} must be a mapping whose keys are texts, got a {type(mapping).__name__}"
                )
        extra_body = dict(extra_body or {})
        if conflicts := {"messages", "model", "n", "stream", "stream_options"} & extra_body.keys():
            raise ConfigError(
                f"extra_body={sorted(conflicts)!r} would replace fields that memagent counts; leave them out"
            )
        for field, value in extra_body.items():
            try:
                json.dumps(value, allow_nan=False, sort_keys=True)
            except (TypeError, ValueError) as error:
                raise ConfigError(
                    f"extra_body[{field!r}]={value!r:.80} is not JSON ({error}): give another value"
                ) from None
        if not urls:
            raise ConfigError("base_url is an empty list; give at least one server")
        self.model = model
        self.name = f"{'openai' if dialect == 'plain' else dialect}:{model}"
        """Dialect and model, `vllm:Qwen/Qwen3-4B`; `openai:` for plain servers too."""
        self._window = window
        self._tokenizer = tokenizer
        self.extra_body = extra_body
        self.recipe = {"model": self.name}
        """See `Wrapper.recipe`. The extra body may hold secrets, so it is only named, with a fingerprint."""
        if extra_body:
            digest = hashlib.sha256(json.dumps(extra_body, sort_keys=True).encode()).hexdigest()
            self.recipe["extra_body"] = f"{', '.join(sorted(extra_body))} ({digest[:16]})"
        self._tokens = tokens
        pools = [Clients(self.name, url, api_key, default_headers or {}, timeout) for url in urls]
        self._route([self._server(model, clients, DIALECTS[dialect]) for clients in pools])

    def _route(self, servers: Sequence[Server]) -> None:
        self.router = Router(servers)
        self._counting = Counting(self.model, self.router, self._tokenizer, self.extra_body)

    @property
    def servers(self) -> list[Server]:
        """The model's servers."""
        return self.router.servers

    async def complete(self, request: ChatRequest) -> Completion:
        """Sends the request, once.

        Raises:
            ContextOverflow: it does not fit the window; nothing was sent if the server counts tokens.
            TokenizerError: it has tools, but the model's chat template doesn't support them.
            ModelError: the subclass says what went wrong.
        """
        prompt = await self._counting.prompt(request)
        tokens = (prompt or request.prompt_tokens or 0) + request.max_tokens
        async with self.router.turn(request.messages, tokens) as server:
            fields = await self._fields(request, prompt, server)
            body = await server.chat(fields)
            completion = read_completion(body, server.endpoint, request)
            await self._check(request, prompt, completion, server)
        return completion

    async def counter(self) -> TokenCounter:
        """Returns a counter that agrees with the server. If the server doesn't count, the tokenizer is trusted.

        Without a tokenizer, UTF-8 bytes are counted as an upper bound, with a warning on the logger `memagent`.

        Raises:
            TokenizerError: the given tokenizer can't be loaded.
            ModelError: the server can't be asked.
        """
        return await self._counting.counter()

    async def window(self) -> int | None:
        """Finds the smallest window, in tokens. Raises a `ModelError` if no server answers, or one refuses the key."""
        window = self._window
        failure: ModelError | None = None
        for server in self.servers:
            try:
                window = _least(window, await server.window())
            except ModelError as error:
                if isinstance(error, AuthenticationFailed) and self._window is None:
                    raise  # it would also refuse calls, after others were paid for
                failure = failure or error
        if failure is not None and window is None:
            raise failure
        return window

    def only(self, server: Server) -> OpenAIModel:
        """Returns the same model at only one of its servers, sharing connections."""
        model = copy.copy(self)
        model._route([server])
        return model

    async def aclose(self) -> None:
        """Closes the connections of all event loops."""
        for server in self.servers:
            await server.aclose()

    def __repr__(self) -> str:
        urls = [server.endpoint.base_url for server in self.servers]
        return f"OpenAIModel({self.name!r}, base_url={urls if len(urls) > 1 else urls[0]!r})"

    async def _fields(
        self, request: ChatRequest, prompt: int | None, server: Server
    ) -> dict[str, object]:
        """Builds the request's body. Raises a `ContextOverflow` if it does not fit this server's window."""
        await server.check_name()  # a server that ignores it would answer with another model
        dialect = await server.dialect()
        fields: dict[str, object] = {
            "model": self.model,
            "messages": [write_message(message) for message in request.messages],
            **dialect.fields(request, tokens=self._tokens),
        }
        if self.extra_body.get(dialect.limit, 0) is None:
            fields[OTHER_LIMIT[dialect.limit]] = request.max_tokens
        fields = merge_fields(fields, self.extra_body)
        fields = {name: value for name, value in fields.items() if value is not None}
        if prompt:
            # Use the value that is sent: extra_body may ask for more.
            limit = max((v for k in OTHER_LIMIT if isinstance(v := fields.get(k), int)), default=0)
            window = await self._known_window(server)
            if window is not None and prompt + limit > window:
                server.forget()  # it may have come back with a larger one
                window = await self._known_window(server)
                if request.prompt_tokens is not None:  # which may be a bound
                    prompt = await self._counting.exact(request)
            refuse_overflow(str(server.endpoint), prompt, limit, window)
        return fields

    async def _known_window(self, server: Server) -> int | None:
        """Returns a server's window; None without a list, since then the chat request reports errors."""
        return _least(await server.known_window(), self._window)

    async def _check(
        self, request: ChatRequest, prompt: int | None, completion: Completion, server: Server
    ) -> None:
        """Checks whether the server truncated the prompt or the reply: vLLM clips what exceeds its window."""
        usage = completion.usage
        await self._counting.compare(request, prompt, usage)
        early = 0 < usage.completion_tokens < request.max_tokens
        if not early or completion.finish_reason is not FinishReason.LENGTH:
            return
        server.forget()
        try:
            window = await self._known_window(server)
        except ModelError:  # the reply counts, whatever happened to its server
            return
        if window is not None and usage.prompt_tokens + request.max_tokens > window:
            raise ContextOverflow(
                f"{server.endpoint}: its window is now {window} tokens, too few for a prompt of "
                f"{usage.prompt_tokens} and {request.max_tokens} for the output; start the server with its previous "
                f"window, or start a new run with --window {window}"
            )


def _least(*windows: int | None) -> int | None:
    return min((window for window in windows if window is not None), default=None)
