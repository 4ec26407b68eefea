"""The ASGI application: routes, errors, and what is opened and closed with it."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from memagent import RunStore
from memagent.errors import MemagentError
from memagent.models import ChatModel, ConcurrencyLimit, Metered
from memagent_serve.chat import ChatForm
from memagent_serve.desk import Desk
from memagent_serve.engine import Engine
from memagent_serve.guard import Guard
from memagent_serve.histories import Histories
from memagent_serve.openapi import DESCRIPTION
from memagent_serve.overflow import Overflow
from memagent_serve.reading import Reader
from memagent_serve.refusals import ClientLeft, Refusal, refusal_of
from memagent_serve.responses import ResponsesForm, compact
from memagent_serve.route import Endpoint
from memagent_serve.settings import Settings
from memagent_serve.states import States

logger = logging.getLogger("memagent.serve")

CALLS = 16
"""Maximum concurrent calls of readings and summaries, as in `MemoryAgent`."""


def make_app(model: ChatModel, settings: Settings | None = None) -> ASGIApp:
    """Makes an endpoint; the server that runs it closes the model at the end.

    Args:
        model: the model that answers. Requests that fit its window reach its server unchanged, if it has one.
        settings: settings of the endpoint.
    """
    model, settings = Metered(model), settings or Settings()
    store_option = settings.store
    store = (
        store_option
        if isinstance(store_option, RunStore)
        else RunStore(store_option or RunStore.default_path())
    )
    engine = Engine(model, settings.window)
    limited = ConcurrencyLimit(model, CALLS)
    states = States(store.path and store.path.with_name(f"{store.path.name}-histories"))
    reading = settings.reading
    histories = Histories(limited, states, reading.get("sampling"), reading.get("limits"))
    overflow = Overflow(engine, Reader(limited, settings, store), histories)
    desk = Desk(settings, engine, overflow)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        yield
        await engine.aclose()
        await asyncio.to_thread(states.close)
        if store is not store_option:
            await asyncio.to_thread(store.close)

    async def models(request: Request) -> Response:
        entry = {"id": engine.name, "object": "model", "created": 0, "owned_by": "memagent"}
        if (name := request.path_params.get("name")) is None:
            return JSONResponse({"object": "list", "data": [entry]})
        desk.check_name({"model": name})
        return JSONResponse(entry)

    routes = [
        Route("/health", _health, methods=["GET"]),
        Route("/openapi.json", _describe, methods=["GET"]),
        Route("/v1/models", models, methods=["GET"]),
        Route("/v1/models/{name:path}", models, methods=["GET"]),
        Route("/v1/chat/completions", Endpoint(desk, ChatForm()), methods=["POST"]),
        Route("/v1/responses", Endpoint(desk, ResponsesForm()), methods=["POST"]),
        Route("/v1/responses/compact", partial(compact, desk), methods=["POST"]),
    ]
    errors = (Refusal, MemagentError, ClientLeft, HTTPException, Exception)
    handlers = dict.fromkeys(errors, _answer_error)
    app = Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)
    app.router.redirect_slashes = False
    return Guard(app, settings)


async def _health(_: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _describe(_: Request) -> Response:
    return JSONResponse(DESCRIPTION)


def _answer_error(_: Request, error: Exception) -> Response:
    match error:
        case ClientLeft():
            return Response(status_code=499)  # the client is gone
        case Refusal():
            refusal = error
        case MemagentError():
            refusal = refusal_of(error)
        case HTTPException():  # no such route
            message = f"{error.detail} (see /openapi.json)"
            refusal = Refusal(error.status_code, message, headers=error.headers)
        case _:
            summary = f"unexpected {type(error).__name__}"
            logger.error(summary, exc_info=error)
            refusal = Refusal(500, f"{summary} in the endpoint; its log has more")
    return refusal.response()
