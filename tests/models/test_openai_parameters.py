"""Parameters that a model rejects are renamed or left out, once and for all."""

import logging
from typing import Any

import pytest
from tests.models.chat_server import Handler, Script, chat, send
from tests.models.test_openai import complete, request

from memagent.errors import ContextOverflow, ModelError, RequestRefused
from memagent.messages import Sampling
from memagent.models.openai import OpenAIModel


def openai_says(name: str, words: str, code: str = "unsupported_parameter") -> dict[str, Any]:
    """An error body of the OpenAI API."""
    error = {"message": words, "type": "invalid_request_error", "param": name, "code": code}
    return {"error": error}


MAX = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
ONE = "Unsupported value: 'temperature' does not support 0.7 with this model. Only the default (1) value is supported."
TOP = "Unsupported parameter: 'top_p' is not supported with this model."
SEED = "Unrecognized request argument supplied: seed"
EXTRA = {
    "detail": [
        {
            "type": "extra_forbidden",
            "loc": ["body", "seed"],
            "msg": "Extra inputs are not permitted",
        }
    ]
}
EITHER = {"message": "`temperature` and `top_p` cannot both be specified for this model."}


class Picky:
    """Refuses parameters, one a request."""

    def __init__(self, **refused: tuple[int, Any]) -> None:
        self.refused = refused

    def __call__(self, handler: Handler) -> None:
        for name, (status, body) in self.refused.items():
            if name in handler.body:
                send(status, body)(handler)
                return
        send(200, chat())(handler)


def picky() -> Picky:
    """A model that rejects all four."""
    return Picky(
        max_tokens=(400, openai_says("max_tokens", MAX)),
        temperature=(400, openai_says("temperature", ONE, "unsupported_value")),
        top_p=(400, openai_says("top_p", TOP)),
        seed=(400, {"error": {"message": SEED}}),
    )


def parameters(body: dict[str, Any]) -> dict[str, Any]:
    names = ("max_tokens", "max_completion_tokens", "temperature", "top_p", "seed")
    return {name: body[name] for name in names if name in body}


async def test_what_is_refused_is_sent_otherwise_from_then_on(
    server: Script, caplog: pytest.LogCaptureFixture
) -> None:
    server.default = picky()
    model = OpenAIModel("tiny", base_url=server.url)
    for _ in range(2):
        assert (await model.complete(request(seed=7))).text == "hello"
    assert len(server.bodies) == 4 + 1 + 1
    for body in server.bodies[-2:]:
        assert parameters(body) == {"max_completion_tokens": 20}
    assert len(caplog.records) == 4
    assert "rejects temperature=0.7" in caplog.text
    await model.aclose()


@pytest.mark.parametrize(
    ("refused", "dialect", "left"),
    [
        ({"max_completion_tokens": (400, {"message": "Unknown field max_completion_tokens"})}, "openai",
         {"max_tokens", "temperature", "top_p", "seed"}),
        ({"seed": (422, EXTRA)}, "plain", {"max_tokens", "temperature", "top_p"}),
        ({"top_p": (400, EITHER)}, "plain", {"max_tokens", "temperature", "seed"}),
    ],
    ids=["old server", "mistral", "either"],
)  # fmt: skip
async def test_other_servers_say_it_otherwise(
    server: Script, refused: Any, dialect: Any, left: set[str]
) -> None:
    server.default = Picky(**refused)
    await complete(server, request(seed=7), dialect=dialect)
    assert set(parameters(server.bodies[-1])) == left
    assert len(server.bodies) == 2


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (400, {"message": "temperature must be at most 1.0, got 1.5"}, RequestRefused),
        (400, {"message": "max_tokens is too large: 20. This model supports at most 10."}, RequestRefused),
        (400, {"message": "max_tokens=20 is not supported: maximum context length is 8"}, ContextOverflow),
        (400, {"message": "tools are not supported"}, RequestRefused),
        (400, {"message": "no", "type": ["invalid"], "code": {"a": 1}}, RequestRefused),
        (400, {"message": "it is not supported", "param": ["body", "seed"]}, RequestRefused),
        (500, {"message": "'seed' is not supported"}, ModelError),
    ],
)  # fmt: skip
async def test_other_errors_stay_errors(
    server: Script, status: int, body: Any, error: type[ModelError]
) -> None:
    server.default = send(status, body)
    with pytest.raises(error):
        await complete(server, request(seed=7, sampling=Sampling(temperature=1.5)))
    assert len(server.bodies) == 1


async def test_a_server_that_takes_no_limit_at_all_is_no_loop(server: Script) -> None:
    refused = openai_says("max_tokens", MAX)
    other = {"message": "Unknown field max_completion_tokens, it is not supported"}
    server.default = Picky(max_tokens=(400, refused), max_completion_tokens=(400, other))
    with pytest.raises(RequestRefused):
        await complete(server)
    assert len(server.bodies) == 2


async def test_parameters_are_left_out_by_hand(server: Script) -> None:
    body = {"seed": None, "temperature": None, "top_p": 0.5}
    await complete(server, request(seed=7), extra_body=body)
    assert parameters(server.bodies[0]) == {"max_tokens": 20, "top_p": 0.5}


@pytest.mark.parametrize(
    ("extra", "sent"),
    [
        ({"max_tokens": None}, {"max_completion_tokens": 20}),
        ({"max_tokens": None, "max_completion_tokens": 9}, {"max_completion_tokens": 9}),
        ({"max_tokens": None, "max_completion_tokens": None}, {}),
    ],
)
async def test_the_limit_is_renamed_by_hand(
    server: Script, extra: dict[str, Any], sent: dict[str, int]
) -> None:
    await complete(server, extra_body={"temperature": None, "top_p": None} | extra)
    assert parameters(server.bodies[0]) == sent


async def test_the_log_shows_no_secret(server: Script, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    key = "sk-very-secret-0123456789"
    server.default = Picky(seed=(400, {"message": f"{SEED}, said {key}"}))
    await complete(server, request(seed=7), default_headers={"X-Key": key})
    assert server.headers[0]["x-key"] == key
    assert key not in caplog.text
