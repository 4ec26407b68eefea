"""A server's list of models."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Annotated

from pydantic import AliasPath, BaseModel, Field, TypeAdapter, ValidationError

from memagent.errors import BadResponse, RequestRefused, TLSFailed
from memagent.models.openai_client import Clients, speaks_tls
from memagent.models.openai_errors import Endpoint, broke, server_message, translate
from memagent.models.openai_reply import LenientName, excerpt, or_none

LIST_SECONDS = 30.0
"""A model list, a count or a version needs no computing: a server that has not sent it by then hangs."""
_NO_LIST = {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED}
_Window = Annotated[Annotated[int, Field(strict=True, gt=0)] | None, or_none]


class ServedModel(BaseModel):
    """One entry of a server's model list."""

    id: str
    owned_by: LenientName = None
    """Gives vLLM and SGLang away."""
    max_model_len: _Window = None
    """vLLM, SGLang."""
    context_length: _Window = None
    """Several gateways."""
    n_ctx: _Window = Field(None, validation_alias=AliasPath("meta", "n_ctx"))
    """llama-server."""
    parent: LenientName = None
    """vLLM: the model that a LoRA adapter belongs to; adapters have no length of their own."""

    @property
    def window(self) -> int | None:
        """Most tokens of prompt plus output, None where the server does not say."""
        return self.max_model_len or self.n_ctx or self.context_length


class _Listing(BaseModel):
    data: list[ServedModel]


_Bare = Annotated[list[ServedModel], Field(min_length=1)]
"""As a few gateways send it."""
_listing: TypeAdapter[_Listing | list[ServedModel]] = TypeAdapter(_Listing | _Bare)


def hurry(endpoint: Endpoint) -> Endpoint:
    """The server as it is asked for what needs no computing."""
    return replace(endpoint, timeout=min(LIST_SECONDS, endpoint.timeout))


async def ask_list(clients: Clients, endpoint: Endpoint) -> tuple[ServedModel, ...] | None:
    """Asks for the list at a base URL, once; None where there is none, `BadResponse` where something else is."""
    client = await clients.get()
    import openai

    there = client.with_options(base_url=endpoint.base_url)
    quick = hurry(endpoint)
    try:
        raw = await there.models.with_raw_response.list(timeout=clients.timeout(quick.timeout))
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
        raise translate(error, quick) from endpoint.cause(error)
    return read_models(raw.content, endpoint)


def read_models(body: bytes, endpoint: Endpoint) -> tuple[ServedModel, ...]:
    """The models that a server lists; a `BadResponse` where the body is no list."""
    try:
        listed = _listing.validate_json(body)
    except ValidationError as error:
        failure = BadResponse(
            f"{endpoint}: the reply to GET /models is no list of models: {excerpt(body, endpoint)}; "
            f"does the base URL lead to an OpenAI-compatible server?"
        )
        failure.retryable = False  # it is a page of something else, and will be
        raise failure from endpoint.cause(error)
    return tuple(listed if isinstance(listed, list) else listed.data)


def served_window(model: str, listed: Sequence[ServedModel]) -> int | None:
    """The window of a model in a server's list, None where the list does not say."""
    by_id = {entry.id: entry for entry in listed}
    entry = by_id.get(model)
    if entry is None:
        # llama-server answers to any name: where only one model is served, it is that one.
        return listed[0].window if len(listed) == 1 else None
    parent = by_id.get(entry.parent or "")
    return entry.window or (parent.window if parent else None)
