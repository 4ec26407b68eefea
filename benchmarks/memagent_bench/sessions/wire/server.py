"""The server of a desk: OpenAI's chat completions on this machine, in threads whose time is known."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from memagent_bench.sessions.wire.desk import Desk

MODEL = "rules"


class DeskServer(ThreadingHTTPServer):
    """One desk, any number of connections; requests are answered one after the other."""

    daemon_threads = True
    desk: Desk
    cpu = 0.0
    """Processor seconds of its threads so far: reading, playing, counting, writing."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.desk, self.lock = desk, threading.Lock()

    @property
    def url(self) -> str:
        """What clients take as the base URL."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients may leave."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two writes: 40 ms apart otherwise
    server: DeskServer  # pyright: ignore[reportIncompatibleVariableOverride]
    _counted = 0.0
    """Processor seconds of this thread that the server knows of."""

    def do_GET(self) -> None:
        listed = {"id": MODEL, "object": "model", "max_model_len": self.server.desk.window}
        is_listing = self.path.endswith("/models")
        self._send(
            200 if is_listing else 404, {"object": "list", "data": [listed]} if is_listing else {}
        )

    def do_POST(self) -> None:
        body: Any = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.endswith("/chat/completions"):
            self._send(404, {"error": {"message": f"there is no {self.path}", "code": 404}})
            return
        with self.server.lock:
            status, reply = self.server.desk.answer(body)
        self._send(status, reply)

    def _send(self, status: int, body: dict[str, Any]) -> None:
        raw = json.dumps(body).encode()
        # A thread belongs to one connection. What it takes to send the reply counts with the next one.
        spent = time.thread_time()
        with self.server.lock:
            self.server.cpu += spent - self._counted
        self._counted = spent
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Logs no request."""


@contextmanager
def serving(desk: Desk) -> Generator[DeskServer]:
    """A server that listens meanwhile."""
    with DeskServer(desk) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(5)
