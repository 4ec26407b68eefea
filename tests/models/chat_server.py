"""A chat server on a real socket that does what a test scripts, good or bad."""

import json
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Behaviour = Callable[["Handler"], None]


def chat(content: Any = "hello", *, finish: str | None = "stop", **extra: Any) -> dict[str, Any]:
    """The body of a chat completion. `extra` goes into the message."""
    return {
        "id": "x",
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish,
                "message": {"role": "assistant", "content": content, **extra},
            }
        ],
        "usage": {
            "prompt_tokens": 11,
            "completion_tokens": 3,
            "total_tokens": 14,
            "prompt_tokens_details": {"cached_tokens": 4},
        },
    }


def send(status: int, body: Any, **headers: str) -> Behaviour:
    """Answers with a status and a JSON body, or with bytes as they are."""

    def behave(handler: "Handler") -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(status)
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in ({"Content-Type": "application/json"} | names).items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(raw)))
        handler.end_headers()
        handler.wfile.write(raw)

    return behave


def say(content: Any = "hello", **options: Any) -> Behaviour:
    """Answers with a chat completion."""
    return send(200, chat(content, **options))


def half_a_body(handler: "Handler") -> None:
    """Promises more bytes than it sends, and hangs up."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.hang_up()


def hang_up(handler: "Handler") -> None:
    """Closes the connection without a word."""
    handler.hang_up()


def slow(seconds: float) -> Behaviour:
    """Answers late, unless the client leaves first: then `server.left` is set."""

    def behave(handler: "Handler") -> None:
        handler.server.script.waiting.set()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            readable, _, _ = select.select([handler.connection], [], [], 0.02)
            if readable and handler.connection.recv(1, socket.MSG_PEEK) == b"":
                handler.server.script.left.set()
                handler.close_connection = True
                return
        say()(handler)

    return behave


@dataclass
class Script:
    """What the server does with each request, and what it saw."""

    url: str = ""
    replies: list[Behaviour] = field(default_factory=list)
    """For chat requests, in order; `default` when used up."""
    default: Behaviour = field(default_factory=say)
    models: Behaviour = field(default_factory=lambda: send(404, {"detail": "Not Found"}))
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    """Of chat requests, the names in lower case."""
    paths: list[str] = field(default_factory=list)
    listings: int = 0
    connections: int = 0
    waiting: threading.Event = field(default_factory=threading.Event)
    left: threading.Event = field(default_factory=threading.Event)

    def serve_models(self, *entries: dict[str, Any]) -> None:
        """Lists models: each entry with at least an `id`."""
        self.models = send(200, {"object": "list", "data": list(entries)})


class Handler(BaseHTTPRequestHandler):
    """Follows the script."""

    protocol_version = "HTTP/1.1"
    server: "Server"

    def setup(self) -> None:
        super().setup()
        self.server.script.connections += 1

    def do_GET(self) -> None:
        script = self.server.script
        script.listings += 1
        script.paths.append(self.path)
        script.models(self)

    def do_POST(self) -> None:
        script = self.server.script
        script.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        script.headers.append({name.lower(): value for name, value in self.headers.items()})
        script.paths.append(self.path)
        (script.replies.pop(0) if script.replies else script.default)(self)

    def hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Says nothing."""


class Server(ThreadingHTTPServer):
    """Threads of its own, which do not outlive their connections."""

    daemon_threads = True
    script: Script

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that leaves is no error here."""
