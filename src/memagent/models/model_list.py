"""A server's list of models, and the base URL at which it is."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from http import HTTPStatus

from memagent.errors import (
    AuthenticationFailed,
    BadResponse,
    RequestRefused,
    TLSFailed,
)
from memagent.models.once import Once
from memagent.models.openai_client import Clients, speaks_tls
from memagent.models.openai_errors import Endpoint, broke, server_message, translate
from memagent.models.openai_reply import ServedModel, read_models

logger = logging.getLogger("memagent")

LIST_SECONDS = 30.0
"""A model list, a count or a version needs no computing: a server that has not sent it by then hangs."""
VERSION = "/v1"
_NO_LIST = {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED}


class ModelList:
    """Asks for a server's list, once; a `ModelError` where that fails.

    Where the base URL has none and `/v1` behind it has, that is the base URL.
    """

    def __init__(self, clients: Clients, endpoint: Endpoint) -> None:
        self._clients = clients
        self.endpoint = endpoint
        """The server at the base URL that is used."""
        self.names: list[str] | None = None
        """Models of the latest list."""
        self.astray: str | None = None
        """Why the base URL seems to lead elsewhere."""
        self.asked_at: float | None = None
        """When the list came, on the monotonic clock; None where it has to be asked for."""
        self._found = Once(self.ask)

    @property
    def quick(self) -> Endpoint:
        """The server as it is asked for what needs no computing."""
        return replace(self.endpoint, timeout=min(LIST_SECONDS, self.endpoint.timeout))

    async def get(self) -> tuple[ServedModel, ...] | None:
        """The list, asked for unless it is known."""
        return await self._found.get()

    def forget(self) -> None:
        """Asks again next time."""
        self._found = Once(self.ask)
        self.asked_at = None

    async def ask(self) -> tuple[ServedModel, ...] | None:
        """The list as it is now, None where the server keeps none."""
        url = self.endpoint.base_url.rstrip("/")
        failure: BadResponse | None = None
        try:
            listed = await self._ask_at(self.endpoint)
        except BadResponse as error:
            listed, failure = None, error
        if listed is None and not url.endswith(VERSION):
            below = replace(self.endpoint, base_url=url + VERSION)
            try:
                listed = await self._ask_at(below)
            except AuthenticationFailed:
                self._move(below)
                raise
            except (RequestRefused, BadResponse):
                listed = None
            if listed is not None:
                self._move(below)
            elif failure is None:
                self.astray = (
                    f"{self.endpoint}: neither GET {url}/models nor GET {below.base_url}/models gives a list of "
                    f"models. Most base URLs end in /v1: correct it, or give the window (--window) if it is right"
                )
        if listed is None:
            if failure is not None:
                raise failure
            logger.info("%s: no list of models there", self.endpoint)
            return None
        self.names = [entry.id for entry in listed]
        self.asked_at = time.monotonic()
        return listed

    async def _ask_at(self, endpoint: Endpoint) -> tuple[ServedModel, ...] | None:
        """The list at a base URL, None where there is none."""
        client = await self._clients.get()
        import openai

        there = client.with_options(base_url=endpoint.base_url)
        quick = self.quick.timeout
        try:
            raw = await there.models.with_raw_response.list(timeout=self._clients.timeout(quick))
        except openai.APIStatusError as error:
            if error.status_code in _NO_LIST:
                return None
            if error.status_code == HTTPStatus.INTERNAL_SERVER_ERROR:
                said = endpoint.quote(server_message(error.body))
                raise RequestRefused(
                    f"{endpoint}: the server answered 500 to GET /models: {said}; give the window (--window) if "
                    f"it can do without its list"
                ) from endpoint.cause(error)
            raise translate(error, endpoint) from endpoint.cause(error)
        except openai.APIError as error:
            if broke(error) and await asyncio.to_thread(speaks_tls, endpoint.base_url):
                raise TLSFailed(
                    f"{endpoint}: the server speaks TLS there; begin the base URL with https://"
                ) from None
            raise translate(error, replace(endpoint, timeout=quick)) from endpoint.cause(error)
        try:
            return read_models(raw.content, endpoint)
        except BadResponse as error:
            error.retryable = False  # it is a page of something else, and will be
            raise

    def _move(self, endpoint: Endpoint) -> None:
        logger.info("%s: the base URL is %s", self.endpoint, endpoint.base_url)
        self._clients.move(endpoint.base_url)
        self.endpoint = endpoint
