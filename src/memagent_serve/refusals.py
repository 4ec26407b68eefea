"""Errors in the form that OpenAI's clients read, and memagent's errors in that form."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, TypeVar

from pydantic import ValidationError
from starlette.responses import JSONResponse

from memagent import errors
from memagent.texts import describe_problem

T = TypeVar("T")

OVERFLOW = "context_length_exceeded"
"""OpenAI's code for a request that exceeds the window."""


class Refusal(Exception):
    """Answers a request with an error.

    Args:
        status: status of the response.
        message: message for the client.
        code: OpenAI's code for the error, if it has one.
        param: field of the request that is wrong.
        headers: headers of the response.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message = status, message
        self.code, self.param, self.headers = code, param, dict(headers or {})

    def body(self) -> dict[str, Any]:
        """Returns the body of the response."""
        kind = (
            "invalid_request_error"
            if self.status < HTTPStatus.INTERNAL_SERVER_ERROR
            else "server_error"
        )
        fields = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": fields}

    def response(self) -> JSONResponse:
        """Returns the whole response."""
        return JSONResponse(self.body(), self.status, headers=self.headers)


def validate(kind: type[T], **fields: Any) -> T:
    """Makes a value of a pydantic type. Raises a `Refusal` that names the first wrong field."""
    try:
        return kind(**fields)
    except ValidationError as error:
        param = str(error.errors()[0]["loc"][0])
        raise Refusal(400, describe_problem(error), param=param) from None


class ClientLeft(Exception):
    """The client has hung up: nobody reads an answer."""


_STATUS: tuple[tuple[type[errors.MemagentError], int, str | None], ...] = (
    (errors.ContextOverflow, HTTPStatus.BAD_REQUEST, OVERFLOW),
    (errors.WindowTooSmall, HTTPStatus.BAD_REQUEST, OVERFLOW),
    (errors.ConfigError, HTTPStatus.BAD_REQUEST, None),
    (errors.DocumentError, HTTPStatus.BAD_REQUEST, None),
    (errors.RunMismatch, HTTPStatus.BAD_REQUEST, None),
    (errors.ServerBusy, HTTPStatus.TOO_MANY_REQUESTS, "rate_limit_exceeded"),
    (errors.RequestTimeout, HTTPStatus.GATEWAY_TIMEOUT, None),
    (errors.ModelError, HTTPStatus.BAD_GATEWAY, None),
    (errors.LimitReached, HTTPStatus.FORBIDDEN, "usage_limit_reached"),
    (errors.SessionError, HTTPStatus.BAD_GATEWAY, None),
    (errors.RunBusy, HTTPStatus.CONFLICT, None),
    (errors.MemagentError, HTTPStatus.INTERNAL_SERVER_ERROR, None),
)
"""Status and code by class; the first that fits decides. `AuthenticationFailed` is a 502: the endpoint's key is at
fault, not the caller's."""


def refusal_of(error: errors.MemagentError) -> Refusal:
    """Converts one of memagent's errors to a response."""
    status, code = next((s, c) for kind, s, c in _STATUS if isinstance(error, kind))
    headers: dict[str, str] = {}
    if isinstance(error, errors.ServerBusy):
        headers["Retry-After"] = str(round(error.retry_after or 1))
    if error.run_id is not None:
        headers["X-Memagent-Run"] = error.run_id
    return Refusal(status, str(error), code=code, headers=headers)
