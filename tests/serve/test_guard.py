"""Who gets in: keys, and web pages that try without."""

from typing import Any

import httpx
import pytest
from openai import OpenAI
from tests.serve.conftest import Serve
from tests.serve.engine import Engine
from tests.serve.sockets import BODY, request_of, root, status_of, talk

from memagent.errors import ConfigError
from memagent_serve import Settings, guard

KEYS = ("first-key-of-many", "second-key-of-many")


@pytest.fixture
def locked(serve: Serve) -> str:
    """An endpoint with keys."""
    return serve(keys=KEYS)


@pytest.mark.parametrize("key", KEYS)
def test_each_key_lets_in(locked: str, key: str) -> None:
    with OpenAI(base_url=locked, api_key=key, max_retries=0) as client:
        assert client.models.list().data


WRONG = [
    "",
    "Bearer",
    f"Basic {KEYS[0]}",
    KEYS[0],
    f"Bearer {KEYS[0][:-1]}",
    f"Bearer {KEYS[0]}x",
    f"Bearer {KEYS[0].upper()}",
    f"Bearer {KEYS[0]},{KEYS[1]}",
    f"Bearer {KEYS[0]} {KEYS[1]}",
    "Bearer null",
    "Bearer \xe9",
]
PATHS = ["/v1/models", "/v1/chat/completions", "/v1/responses", "/openapi.json", "/v1/none", "/"]


@pytest.mark.parametrize(
    ("given", "path"),
    [*((given, "/v1/chat/completions") for given in WRONG), *((None, path) for path in PATHS)],
)
def test_nothing_else_does(
    engine: Engine, locked: str, http: httpx.Client, given: str | None, path: str
) -> None:
    headers = {} if given is None else {"Authorization": given.encode("latin-1")}
    response = http.post(root(locked) + path, json=BODY, headers=headers)  # pyright: ignore[reportArgumentType]
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert all(key not in response.text for key in KEYS)
    assert engine.raws == []


@pytest.mark.parametrize(
    "head",
    [
        b"Authorization: Bearer wrong\r\nAuthorization: Bearer %b\r\n",
        b"Authorization : Bearer %b\r\n",
        b"Authorization\t: Bearer %b\r\n",
        b"X-Authorization: Bearer %b\r\n",
        b"X: a\r\n Authorization: Bearer %b\r\n",
        b"X: a\nb\r\nProxy-Authorization: Bearer %b\r\n",
    ],
)
def test_a_key_in_the_wrong_place_does_not(engine: Engine, locked: str, head: bytes) -> None:
    raw = b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%b\r\n" % (
        head % KEYS[0].encode()
    )
    assert status_of(talk(locked, raw)) in (400, 401)


@pytest.mark.parametrize(
    "path",
    [
        "/health/../v1/models",
        "/health/%2e%2e/v1/models",
        "//health",
        "/health;/v1/models",
        "/HEALTH",
        "/health/",
    ],
)
def test_the_open_path_is_no_way_around(locked: str, path: str) -> None:
    raw = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
    assert status_of(talk(locked, raw)) == 401


def test_health_needs_no_key(locked: str, http: httpx.Client) -> None:
    response = http.get(f"{root(locked)}/health")
    assert response.json() == {"status": "ok"}


def test_all_keys_are_compared_whichever_fits(
    monkeypatch: pytest.MonkeyPatch, locked: str, http: httpx.Client
) -> None:
    compared: list[tuple[int, int]] = []
    real = guard.hmac.compare_digest

    def note(a: bytes, b: bytes) -> bool:
        compared.append((len(a), len(b)))
        return real(a, b)

    monkeypatch.setattr(guard.hmac, "compare_digest", note)
    for key in (*KEYS, "x", "a" * 5000):
        http.get(f"{locked}/models", headers={"Authorization": f"Bearer {key}"})
    assert compared == [(32, 32)] * 8


@pytest.mark.parametrize("key", ["", "a b", "a\n", "é"])
def test_keys_that_no_header_can_hold_are_refused(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings(keys=("good", key))
    assert "good" not in str(caught.value)


@pytest.mark.parametrize("keys", [["good", 5], "a secret"])
def test_keys_of_another_type_are_refused_unshown(keys: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings(keys=keys)
    assert "good" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_one_key_is_not_taken_for_its_letters() -> None:
    one: Any = "secret"
    assert Settings(keys=one).keys == ("secret",)


@pytest.mark.parametrize("value", [{"window": 0}, {"max_body": 0}, {"overflow": "reed"}])
def test_settings_out_of_range_are_refused_with_their_value(value: Any) -> None:
    with pytest.raises(ConfigError, match=f"got {next(iter(value.values()))!r}"):
        Settings(**value)


def test_the_settings_do_not_show_keys() -> None:
    assert KEYS[0] not in repr(Settings(keys=KEYS))


# --- web pages


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:80",
        "localhost.evil.example",
        "",
        "127.0.0.1.nip.io",
        "0.0.0.0",
    ],
)
def test_without_keys_only_names_of_this_machine_are_answered(
    engine: Engine, url: str, host: str
) -> None:
    """A page whose name was pointed at 127.0.0.1 (DNS rebinding) sends its own name."""
    said = talk(url, request_of(Host=host))
    assert status_of(said) == 403
    assert engine.raws == []


@pytest.mark.parametrize("host", ["LOCALHOST:80", "127.0.0.1", "127.0.0.2:8300", "[::1]:8300"])
def test_every_address_of_this_machine_is_answered(url: str, host: str) -> None:
    assert status_of(talk(url, request_of(Host=host))) == 200


def test_two_hosts_are_refused(engine: Engine, url: str) -> None:
    raw = request_of().replace(b"Host: localhost\r\n", b"Host: localhost\r\nHost: evil.example\r\n")
    assert status_of(talk(url, raw)) in (400, 403)
    assert engine.raws == []


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
def test_forms_of_web_pages_are_refused(engine: Engine, url: str, kind: str) -> None:
    """What a page may send to another site without asking first."""
    said = talk(url, request_of(Content_Type=kind, Origin="https://evil.example"))
    assert status_of(said) == 415
    assert engine.raws == []


def test_no_page_is_allowed_in(url: str, http: httpx.Client) -> None:
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    asked["Access-Control-Request-Headers"] = "content-type"
    before = http.options(f"{url}/chat/completions", headers=asked)
    assert before.status_code == 405
    sent = http.post(f"{url}/chat/completions", json=BODY, headers={"Origin": asked["Origin"]})
    for response in (before, sent):
        assert not [name for name in response.headers if name.startswith("access-control")]
