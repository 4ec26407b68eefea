"""Serves the page of a run to this machine only, and keeps it up to date during the run."""

import secrets
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from memagent.errors import MemagentError
from memagent_viewer.page import as_json, make_page, pack
from memagent_viewer.view import View

HOST = "127.0.0.1"
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
Reply = tuple[HTTPStatus, str, bytes]
GONE: Reply = (HTTPStatus.NOT_FOUND, "text/plain", b"")


class LiveServer(ThreadingHTTPServer):
    """Serves one page, its updates, and the texts it asks for.

    Its address contains a secret, since other users of the machine can also connect. Requests that name another host
    are refused, so that a web page can't reach it through its own host name.

    Args:
        views: views of one or two runs.
    """

    daemon_threads = True

    def __init__(self, views: Sequence[View]) -> None:
        super().__init__((HOST, 0), _Handler)  # on a free port
        self._views, self._secret = views, secrets.token_urlsafe(16)
        self._version = 0
        self._lock = threading.Lock()

    @property
    def host(self) -> str:
        """The host that a request must name."""
        return f"{HOST}:{self.server_address[1]}"

    @property
    def address(self) -> str:
        """The URL of the page."""
        return f"http://{self.host}/{self._secret}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Prints an error, unless a client hung up, such as a tab closed while loading."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def reply(self, target: str) -> Reply:
        """Returns status, media type and body for a request's target."""
        parts = urlsplit(target)
        _, secret, *rest = (*parts.path.split("/"), "")
        if not secrets.compare_digest(secret.encode(), self._secret.encode()):
            return GONE
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        answers: dict[str, Callable[[dict[str, str]], Reply]] = {
            "": self._page,
            "news": self._news,
            "text": self._text,
        }
        answer = answers.get(rest[0] if rest else "-")
        return GONE if answer is None else answer(query)

    def _page(self, _: dict[str, str]) -> Reply:
        with self._lock:
            self._update()
            page = make_page(self._views, live=True)
        return HTTPStatus.OK, "text/html; charset=utf-8", page.encode()

    def _news(self, query: dict[str, str]) -> Reply:
        with self._lock:
            self._update()
            if query.get("version") == str(self._version):
                return HTTPStatus.NO_CONTENT, "text/plain", b""
            head = f"{self._version}\n".encode()
            return HTTPStatus.OK, "application/octet-stream", head + pack(as_json(self._views))

    def _text(self, query: dict[str, str]) -> Reply:
        number, _, key = query.get("key", "").partition("/")
        if not (number.isdecimal() and int(number) < len(self._views)):
            return GONE
        if not key.startswith(("chunk-", "tool-")):
            return GONE
        text = self._views[int(number)].text(key)
        if text is None:
            return GONE
        return HTTPStatus.OK, "application/octet-stream", pack(text)

    def _update(self) -> None:
        news = [view.update() for view in self._views]
        self._version += any(news)


class _Handler(BaseHTTPRequestHandler):
    timeout = 30
    server: LiveServer  # pyright: ignore[reportIncompatibleVariableOverride] - only LiveServer makes it

    def do_GET(self) -> None:
        status, kind, body = GONE
        if self.headers.get("Host") == self.server.host:
            with suppress(MemagentError, ValueError):  # a removed run, or a bad request
                status, kind, body = self.server.reply(self.path)
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        if status is not HTTPStatus.NO_CONTENT:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if status is not HTTPStatus.NO_CONTENT:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Logs nothing: the address of a request has the secret."""
