"""The server of a desk: OpenAI's chat completions on this machine, in threads whose processor time is measured."""

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
    """One desk, any number of connections; requests are answered one at a time."""

    daemon_threads = True
    desk: Desk
    cpu = 0.0
    """Processor seconds of its threads so far: reading, playing, counting, writing."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.desk, self.lock = desk, threading.Lock()

    @property
    def url(self) -> str:
        """Base URL for clients."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores the error: clients may disconnect."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two writes: without it, 40 ms apart
    server: DeskServer  # pyright: ignore[reportIncompatibleVariableOverride]
    _counted = 0.0
    """Processor seconds of this thread that the server has already added."""

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
        # A thread serves one connection. Sending the reply is counted with the next request.
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
        """Disables logging of requests."""


@contextmanager
def serving(desk: Desk) -> Generator[DeskServer]:
    """Runs a server within the context."""
    with DeskServer(desk) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(5)
