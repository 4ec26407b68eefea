"""One OpenAI-compatible server: its connections, and what is known about it."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit, urlunsplit

from pydantic import JsonValue

from memagent.errors import (
    AuthenticationFailed,
    BadResponse,
    ConnectionFailed,
    ModelError,
    ModelNotFound,
    RequestRefused,
    RequestTimeout,
    ServerBusy,
    ServerFailed,
    TLSFailed,
)
from memagent.models.dialects import DIALECTS, Dialect, Parameters
from memagent.models.openai_client import Clients, speaks_tls
from memagent.models.openai_errors import (
    Endpoint,
    broke,
    says_no_model,
    server_message,
    translate,
    where_models_are,
)
from memagent.models.openai_reply import ServedModel, read_models, served_window
from memagent.models.sharing import Once
from memagent.threads import run_sync

T = TypeVar("T")

logger = logging.getLogger("memagent")

STRICT = {"vllm", "library"}
"""`owned_by` of servers that serve exactly what they list: vLLM, Ollama."""
LM_STUDIO = "organization_owner"
"""`owned_by` of all LM Studio's models. Only its own list has windows."""
OPENAI = "https://api.openai.com/"
VERSION = "/v1"
LIST_SECONDS = 30.0
"""Seconds: a model list, a count or a version needs no computing, so a server that takes longer hangs."""
_NO_LIST = {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED}
FRESH = 1.0
"""Seconds that a list is reused, so that runs started together ask for it once."""
UNREACHED = (ConnectionFailed, RequestTimeout, ServerBusy)
"""Errors after which a server may answer later."""


class Server:
    """One server of one model. Methods that ask it raise a `ModelError` if it can't be reached."""

    def __init__(self, model: str, clients: Clients, presumed: Dialect) -> None:
        self.model = model
        self.clients = clients
        self._presumed = presumed  # used if the server can't be identified
        self._parameters = Parameters(self.endpoint)
        self.outstanding = 0
        """Tokens of its requests in progress: prompts plus the maximum that may be generated."""
        self.failures = 0
        """Consecutive failures."""
        self.rests_until = 0.0
        """Time on the monotonic clock when its pause ends; 0 if it isn't paused, or has answered a check since."""
        self._names: list[str] | None = None
        """Models in the latest list."""
        self._astray: str | None = None
        """Why the base URL seems wrong; None if it doesn't."""
        self.forget()

    @property
    def endpoint(self) -> Endpoint:
        """The server and the base URL in use, as named in errors."""
        return self.clients.endpoint

    @property
    def root(self) -> str:
        """The base URL without `/v1`."""
        parts = urlsplit(self.endpoint.base_url)
        return urlunsplit(parts._replace(path=parts.path.rstrip("/").removesuffix(VERSION)))

    def forget(self) -> None:
        """Drops what is cached: after a restart a server may have another model or window."""
        self._list = Once(self._ask_list)
        self._listed_at: float | None = None
        self._list_refused = False

    async def listing(self) -> tuple[ServedModel, ...] | None:
        """Returns its model list, requested once; None if it has none."""
        return await self._list.get()

    async def listing_if_any(self, *, required: bool = False) -> tuple[ServedModel, ...] | None:
        """Returns its model list; None also if it refuses to send it: some gateways guard the list more than the chat.

        A possibly temporary failure (`ServerFailed`) counts as no list this time, unless it is `required`.
        """
        if self._list_refused:
            return None
        try:
            return await self.listing()
        except UNREACHED:
            raise
        except ServerFailed:
            if required:
                raise
            return None  # not remembered
        except ModelError as error:
            self._list_refused = True
            logger.info("%s: assumed to be %s: %s", self.endpoint, self._presumed.name, error)
            return None

    async def window(self) -> int | None:
        """Returns the window in tokens, None if not listed. Reuses a list for `FRESH` seconds: the server may restart.

        Raises a `ModelNotFound` like `check_name`, a `RequestRefused` if the base URL looks incomplete.
        """
        if self._listed_at is not None and time.monotonic() - self._listed_at > FRESH:
            self.forget()
        listing = await self.listing()
        if listing is None:
            if self._astray is not None:
                raise RequestRefused(self._astray)
            return None
        await self.check_name(guess=len(listing) > 1)
        return served_window(self.model, listing)

    async def known_window(self) -> int | None:
        """Returns its window; None also without a list, since then chat requests report errors."""
        return served_window(self.model, await self.listing_if_any() or ())

    async def dialect(self) -> Dialect:
        """Returns its dialect: identified by its list, else the assumed one."""
        owners = {entry.owned_by for entry in await self.listing_if_any() or ()}
        dialects = [d for d in DIALECTS.values() if d.engine and d.name in owners]
        return dialects[0] if len(dialects) == 1 else self._presumed

    async def check_name(self, *, guess: bool = False) -> None:
        """Raises a `ModelNotFound` if the model isn't listed and the server serves only listed names, or ignores names.

        With `guess`, also if unlisted names may work, as with gateways.
        """
        listing = await self.listing_if_any()
        names = {entry.id for entry in listing or ()}
        # SGLang: `model:adapter`; Ollama: the tag may be left out; LiteLLM lists `openai/*`.
        aliases = {self.model, self.model.partition(":")[0], f"{self.model}:latest"}
        if not names or names & aliases or any("*" in name for name in names):
            return
        owners = {entry.owned_by for entry in listing or ()}
        strict = owners <= STRICT or self.endpoint.base_url.startswith(OPENAI)
        if guess or strict or (await self.dialect()).any_name:
            hint = where_models_are(self.endpoint, self._names)
            self.forget()  # it may come back with the right one
            raise ModelNotFound(f"{self.endpoint}: no model of that name; {hint}")

    async def _ask_list(self) -> tuple[ServedModel, ...] | None:
        """Requests the list. If the base URL has none but adding `/v1` gives one, that becomes the base URL."""
        url = self.endpoint.base_url.rstrip("/")
        v1_endpoint = replace(self.endpoint, base_url=url + VERSION)
        failure: BadResponse | None = None
        listing = None
        try:
            listing = await _ask_at(self.clients, self.endpoint)
        except BadResponse as error:
            failure = error
        if listing is None and not url.endswith(VERSION):
            try:
                listing = await _ask_at(self.clients, v1_endpoint)
            except AuthenticationFailed:
                self._move(v1_endpoint)
                raise
            except (RequestRefused, BadResponse):
                pass
            if listing is not None:
                self._move(v1_endpoint)
            else:
                self._astray = (
                    f"{self.endpoint}: neither GET {url}/models nor GET {v1_endpoint.base_url}/models returns a list "
                    f"of models. Most base URLs end in /v1: correct it, or give the window (--window) if it is right"
                )
        if listing is None:
            if failure is not None:
                raise failure
            logger.info("%s: no list of models there", self.endpoint)
            return None
        if {entry.owned_by for entry in listing} == {LM_STUDIO}:
            native_endpoint = replace(self.endpoint, base_url=f"{self.root}/api/v0")
            listing = await _ask_at(self.clients, native_endpoint) or listing
        self._names = [entry.id for entry in listing]
        self._listed_at = time.monotonic()
        return listing

    def _move(self, endpoint: Endpoint) -> None:
        logger.info("%s: the base URL is %s", self.endpoint, endpoint.base_url)
        self.clients.endpoint = endpoint

    async def chat(self, fields: Mapping[str, object]) -> bytes:
        """Sends a chat request, once, and returns the reply's body."""
        client = await self.clients.get()
        import openai

        limit = self.clients.timeout(self.endpoint.timeout)
        try:
            while True:  # again for each parameter that the server turns out to reject
                sent_fields = self._parameters.adapt(fields)
                try:
                    return await _in_time(limit, self._post(client, sent_fields))
                except openai.APIError as error:
                    if not self._parameters.learn(error, sent_fields):
                        raise
        except openai.APIError as error:
            names = None
            if says_no_model(error):
                with suppress(ModelError):  # rather than a second error
                    names = [entry.id for entry in await self._ask_list() or ()]
            raise translate(error, self.endpoint, names) from self.endpoint.cause(error)
        except UnicodeEncodeError as error:
            raise RequestRefused(
                f"{self.endpoint}: the prompt contains a lone surrogate "
                f"({error.object[error.start]!r}), which cannot be sent; decode the document with errors='replace'"
            ) from None

    async def _post(self, client: Any, fields: Mapping[str, object]) -> bytes:
        """Posts the fields of a chat request; returns a body in OpenAI's form."""
        arguments = {"model": fields["model"], "messages": fields["messages"]}
        extra_fields = {name: value for name, value in fields.items() if name not in arguments}
        create = client.chat.completions.with_raw_response.create
        return (await create(**arguments, extra_body=extra_fields)).content

    def ask(self, path: str, body: Mapping[str, object] | None = None) -> dict[str, JsonValue]:
        """Sends a request other than chat to a path from the server's root: a POST with `body`, or a GET. Blocks.

        A `ModelNotFound` means that there is no such path.
        """
        text = self.text(path, body)
        try:
            reply: object = json.loads(text)
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            raise BadResponse(
                f"{self.endpoint}: the reply to {path} is not a JSON object: {self.endpoint.quote(text)!r}"
            )
        return cast("dict[str, JsonValue]", reply)

    def text(self, path: str, body: Mapping[str, object] | None = None) -> str:
        """Like `ask`, for a reply in any format."""
        return run_sync(self._ask(path, body))

    async def _ask(self, path: str, body: Mapping[str, object] | None) -> str:
        client = await self.clients.get()
        import openai

        quick = replace(self.endpoint, timeout=min(LIST_SECONDS, self.endpoint.timeout))
        limit = self.clients.timeout(quick.timeout)
        url, form = self.root + path, cast("Any", {"cast_to": str, "options": {"timeout": limit}})
        request = client.get(url, **form) if body is None else client.post(url, body=body, **form)
        try:
            return await _in_time(limit, request)
        except openai.APIError as error:
            raise translate(error, quick, self._names) from self.endpoint.cause(error)

    async def aclose(self) -> None:
        """Closes the connections of all event loops."""
        await self.clients.aclose()


async def _in_time(limit: Any, reply: Awaitable[T]) -> T:
    """Limits the total time of a reply: some gateways send blanks until it is ready."""
    import openai

    try:
        async with asyncio.timeout(limit.connect + limit.read):
            return await reply
    except TimeoutError:
        request: Any = None  # there is no request to show
        raise openai.APITimeoutError(request) from None


async def _ask_at(clients: Clients, endpoint: Endpoint) -> tuple[ServedModel, ...] | None:
    """Requests the list at a base URL, once; None if there is none. Raises `BadResponse` if it is something else."""
    client = await clients.get()
    import openai

    url_client = client.with_options(base_url=endpoint.base_url)
    quick = replace(endpoint, timeout=min(LIST_SECONDS, endpoint.timeout))
    limit = clients.timeout(quick.timeout)
    try:
        response = await _in_time(limit, url_client.models.with_raw_response.list(timeout=limit))
    except openai.APIStatusError as error:
        if error.status_code in _NO_LIST:
            return None
        if error.status_code == HTTPStatus.INTERNAL_SERVER_ERROR:
            message = endpoint.quote(server_message(error.body))
            raise RequestRefused(
                f"{endpoint}: the server answered 500 to GET /models: {message}; give the window (--window) to "
                f"do without its list"
            ) from endpoint.cause(error)
        raise translate(error, endpoint) from endpoint.cause(error)
    except openai.APIError as error:
        if broke(error) and await asyncio.to_thread(speaks_tls, endpoint.base_url):
            raise TLSFailed(
                f"{endpoint}: the server speaks TLS there; start the base URL with https://"
            ) from None
        raise translate(error, quick) from endpoint.cause(error)
    return read_models(response.content, endpoint)
