"""One OpenAI-compatible server: its connections, and what is known of it."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel, JsonValue

from memagent.errors import (
    BadResponse,
    ConnectionFailed,
    ModelError,
    ModelNotFound,
    RequestRefused,
    RequestTimeout,
    ServerBusy,
    ServerFailed,
)
from memagent.models.dialects import Dialect, owned_by
from memagent.models.once import Once
from memagent.models.openai_client import Clients
from memagent.models.openai_errors import says_no_model, translate, where_models_are
from memagent.models.openai_reply import ServedModel, read_models, served_window

if TYPE_CHECKING:
    import openai

logger = logging.getLogger("memagent")

LIST_SECONDS = 30.0
"""A model list, a count or a version needs no computing: a server that has not sent it by then hangs."""
FRESH = 1.0
"""Seconds for which a list is not asked for again, so that many runs that begin together ask once."""
UNREACHED = (ConnectionFailed, RequestTimeout, ServerBusy)
"""Errors after which a server may say another time what it was asked."""
_NO_LIST = {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED}


class Server:
    """One server that serves one model.

    Args:
        name: the model as errors name it.
        model: the name under which the server serves it.
        clients: connections to the server.
        timeout: seconds that a chat request may take.
        presumed: the dialect for a server that does not give itself away.
    """

    def __init__(
        self, name: str, model: str, clients: Clients, timeout: float, presumed: Dialect
    ) -> None:
        self.model = model
        self.endpoint = clients.endpoint(name)
        self._clients = clients
        self._quick = replace(self.endpoint, timeout=min(LIST_SECONDS, timeout))
        self._presumed = presumed
        self._listing = Once(self._list)
        self._unlisted = False
        self._serves: list[str] | None = None
        self._listed_at: float | None = None

    # --- what it says of itself

    async def listing(self) -> tuple[ServedModel, ...] | None:
        """Its model list, asked for once; None where it keeps none.

        Raises:
            ModelError: the list was asked for and did not come.
        """
        return await self._listing.get()

    async def window(self) -> int | None:
        """Most tokens of prompt plus output, None where the list does not say. Asked anew: it may have restarted.

        Raises:
            ModelError: the list was asked for and did not come.
        """
        if self._listed_at is not None and time.monotonic() - self._listed_at > FRESH:
            self.forget()
        listed = await self.listing()
        return None if listed is None else served_window(self.model, listed)

    async def dialect(self) -> Dialect:
        """How to speak to it: as its list gives away, else as presumed.

        Raises:
            ModelError: it cannot be reached.
        """
        return await self.gives_away() or self._presumed

    async def gives_away(self) -> Dialect | None:
        """The dialect that its list gives away, None where it says nothing.

        Raises:
            ModelError: it cannot be reached.
        """
        owners = {entry.owned_by for entry in await self._lenient() or ()}
        found = {dialect for owner in owners if (dialect := owned_by(owner)) is not None}
        return found.pop() if len(found) == 1 else None

    async def settled(self) -> None:
        """Makes sure that what its list says is known, or that there is none.

        Raises:
            ModelError: it cannot be reached, or failed: another time it may say more.
        """
        await self._lenient(for_good=True)

    async def known_window(self) -> int | None:
        """Its window, None where its list does not come either: chat requests then have their say.

        Raises:
            ModelError: it cannot be reached.
        """
        listed = await self._lenient()
        return None if listed is None else served_window(self.model, listed)

    async def check_name(self) -> None:
        """Compares the model's name with the list, for servers that answer to every name.

        Raises:
            ModelNotFound: the list names other models only.
        """
        base = self.model.partition(":")[0]  # SGLang: `model:adapter`
        if await self.lists_others() and base not in (self._serves or ()):
            raise ModelNotFound(
                f"{self.endpoint}: no model of that name; {where_models_are(self.endpoint, self._serves)}"
            )

    async def lists_others(self) -> bool:
        """Whether its list names models, and not this one."""
        listed = await self._lenient()
        return bool(listed) and all(entry.id != self.model for entry in listed)

    def forget(self) -> None:
        """Asks again next time: after a restart a server may serve another model or window."""
        self._listing = Once(self._list)
        self._unlisted = False
        self._listed_at = None

    async def _lenient(self, *, for_good: bool = False) -> tuple[ServedModel, ...] | None:
        """Its model list, None also where it refuses to send it: some gateways guard the list more than the chat.

        Args:
            for_good: raises what may be otherwise another time.
        """
        if self._unlisted:
            return None
        try:
            return await self.listing()
        except UNREACHED:
            raise
        except ServerFailed:
            if for_good:
                raise
            return None  # not remembered
        except ModelError as error:
            self._unlisted = True
            logger.info("%s: taken for %s: %s", self.endpoint, self._presumed.name, error)
            return None

    # --- calls

    async def chat(self, fields: Mapping[str, object]) -> bytes:
        """Sends a chat request, once, and returns the reply's body.

        Raises:
            ModelError: one of its subclasses for whatever went wrong.
        """
        client = await self._clients.get()
        import openai

        try:
            create: Any = client.chat.completions.with_raw_response.create
            raw = await create(**_arguments(fields))
        except openai.APIError as error:
            raise await self._translated(error) from self._cause(error)
        except UnicodeEncodeError as error:
            raise self._surrogate(error) from None
        return raw.content

    async def chat_stream(self, fields: Mapping[str, object]) -> AsyncGenerator[dict[str, Any]]:
        """Sends a chat request and yields its chunks as they come. The connection closes with the generator.

        Raises:
            ModelError: as `chat`, also in the middle.
        """
        client = await self._clients.get()
        import openai

        try:
            create: Any = client.chat.completions.create
            stream = await create(
                **_arguments(fields), stream=True, stream_options={"include_usage": True}
            )
            async with stream:
                async for chunk in stream:
                    yield self._piece(chunk)
        except openai.APIError as error:
            raise await self._translated(error) from self._cause(error)
        except UnicodeEncodeError as error:
            raise self._surrogate(error) from None
        except Exception as error:
            broken = self._broken(error)
            if broken is None:
                raise
            raise broken from None

    def ask(self, path: str, body: Mapping[str, object] | None = None) -> dict[str, JsonValue]:
        """Asks for something beside the chat, from the server's root. Blocks.

        Args:
            path: `/tokenize`, say.
            body: sent with POST; None for a GET.

        Raises:
            ModelError: `ModelNotFound` where there is no such path.
        """
        client = self._clients.blocking()
        import openai

        options: Any = {"timeout": self._quick.timeout}
        url = self._root + path
        try:
            if body is None:
                reply = client.get(url, cast_to=object, options=options)
            else:
                reply = client.post(url, cast_to=object, body=dict(body), options=options)
        except openai.APIError as error:
            raise translate(error, self._quick, self._serves) from self._cause(error)
        except ValueError as error:  # it said that it is JSON, and is not
            reply = str(error)
        if not isinstance(reply, dict):
            raise BadResponse(
                f"{self.endpoint}: the reply to {path} is no JSON object: "
                f"{self.endpoint.quote(str(reply))!r}"
            )
        return cast("dict[str, JsonValue]", reply)

    async def aclose(self) -> None:
        """Closes the connections of all event loops."""
        await self._clients.aclose()

    # --- inside

    @property
    def _root(self) -> str:
        """Where the paths beside `/v1` begin."""
        parts = urlsplit(self.endpoint.base_url)
        return urlunsplit(parts._replace(path=parts.path.rstrip("/").removesuffix("/v1")))

    async def _list(self) -> tuple[ServedModel, ...] | None:
        client = await self._clients.get()
        import openai

        try:
            raw = await client.models.with_raw_response.list(timeout=self._quick.timeout)
        except openai.APIStatusError as error:
            if error.status_code in _NO_LIST:
                logger.info(
                    "%s: no list of models there (status %d)", self.endpoint, error.status_code
                )
                return None
            raise translate(error, self.endpoint) from self._cause(error)
        except openai.APIError as error:
            raise translate(error, self._quick) from self._cause(error)
        listed = read_models(raw.content, self.endpoint)
        self._serves = [entry.id for entry in listed]
        self._listed_at = time.monotonic()
        return listed

    async def _translated(self, error: openai.APIError) -> ModelError:
        served = await self._served() if says_no_model(error) else None
        return translate(error, self.endpoint, served)

    async def _served(self) -> list[str] | None:
        """The ids that it lists, for an error message: None rather than a second error."""
        try:
            listed = await self._list()
        except ModelError:
            return None
        return None if listed is None else [entry.id for entry in listed]

    def _cause(self, error: openai.APIError) -> BaseException | None:
        """The original error, unless a traceback would show a secret that the server echoed."""
        return None if self.endpoint.leaks(error) else error

    def _piece(self, chunk: object) -> dict[str, Any]:
        if not isinstance(chunk, BaseModel):
            raise BadResponse(
                f"{self.endpoint}: a piece of the reply is no JSON object: "
                f"{self.endpoint.quote(repr(chunk))}"
            )
        return chunk.model_dump(warnings=False)  # the client takes what it does not expect

    def _broken(self, error: Exception) -> ModelError | None:
        """What broke a stream, where the client passes it on as it is: openai 2 does with httpx's errors."""
        timeout = type(error).__name__.endswith("Timeout")
        if timeout and type(error).__module__ == "httpx":
            return RequestTimeout(
                f"{self.endpoint}: no more of the reply within {self.endpoint.timeout:g} s; "
                f"allow more with timeout=, or send fewer calls at once"
            )
        if type(error).__module__ == "httpx" or isinstance(error, (OSError, ValueError)):
            said = self.endpoint.quote(f"{type(error).__name__}: {error}")
            return ConnectionFailed(f"{self.endpoint}: the reply broke off ({said})")
        return None

    def _surrogate(self, error: UnicodeEncodeError) -> RequestRefused:
        return RequestRefused(
            f"{self.endpoint}: the prompt holds half a surrogate pair "
            f"({error.object[error.start]!r}), which cannot be sent; "
            f"decode the document with errors='replace'"
        )


def _arguments(fields: Mapping[str, object]) -> dict[str, Any]:
    """The client's own arguments, and the rest as it takes fields that it does not know."""
    known = ("model", "messages")
    rest = {name: value for name, value in fields.items() if name not in known}
    return cast("dict[str, Any]", {name: fields[name] for name in known} | {"extra_body": rest})
