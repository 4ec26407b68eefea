import pytest

from memagent.models.openai_errors import CLIP, Endpoint, retry_after, server_message

ENDPOINT = Endpoint(name="m", base_url="http://h/v1", timeout=1, secrets=("topsecret",))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": {"message": "nested"}}, "nested"),
        ({"message": "flat", "object": "error"}, "flat"),
        ({"error": "bare"}, "bare"),
        ({"detail": "fastapi"}, "fastapi"),
        ({"detail": [{"loc": ["body"], "msg": "m"}]}, '[{"loc": ["body"], "msg": "m"}]'),
        ({"other": 1}, '{"other": 1}'),
        ("plain text", "plain text"),
        (None, ""),
    ],
)
def test_server_message(body: object, message: str) -> None:
    assert server_message(body) == message


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 40.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:10 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Fri, 31 Dec 99999 23:59:59 GMT"}, None),
        ({"retry-after": "Mon, 00 Foo 2020 10:00:00 GMT"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, now=60.0) == seconds


def test_quote_is_one_short_line_without_secrets() -> None:
    assert ENDPOINT.quote(" a\n\tb\x1b[31m ") == "a b [31m"
    assert ENDPOINT.quote("key topsecret.") == "key ***."
    clipped = ENDPOINT.quote("x" * 490 + "topsecret" + "y" * 1000)
    assert len(clipped) == CLIP
    assert "tops" not in clipped
    assert ENDPOINT.quote("half \ud83d") == "half \ufffd"


def test_a_cause_that_holds_a_secret_is_not_shown() -> None:
    outer = ValueError("fine")
    assert ENDPOINT.cause(outer) is outer
    outer.__cause__ = KeyError("topsecret")
    assert ENDPOINT.cause(outer) is None
