"""A chat server on a real socket that does what a test scripts, good or bad."""

import json
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from jinja2 import Environment
from tests.engines.tiny_model import chat_settings
from tokenizers import Tokenizer

TOKENIZER = Path(__file__).parents[1] / "data" / "tokenizer"
CHATML = json.loads((TOKENIZER / "tokenizer_config.json").read_text("utf-8"))["chat_template"]
THINKING = (
    CHATML
    + "{% if add_generation_prompt and enable_thinking is defined and not enable_thinking %}"
    + "<think>\n\n</think>\n\n{% endif %}"
)
"""A template that writes more where reasoning is switched off, as Qwen3's does."""
CHATML_TOOLS: str = chat_settings()["chat_template"]
"""`THINKING` with tools, as the engines' tests serve it."""

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
        if not handler.deserted(seconds):
            say()(handler)

    return behave


def trickle(handler: "Handler") -> None:
    """Sends blanks for ten seconds and then an answer, as gateways do to keep a connection alive."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for _ in range(200):
        if handler.deserted(0.05):
            return
        handler.wfile.write(b"1\r\n\n\r\n")
    raw = json.dumps(chat()).encode()
    handler.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(raw), raw))


def _tojson(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


TEMPLATES = Environment(autoescape=False)
TEMPLATES.filters["tojson"] = _tojson


def parsed(message: dict[str, Any]) -> dict[str, Any]:
    """As vLLM shows a message to templates: no content is an empty one, and arguments are objects."""
    calls = [
        {"function": call["function"] | {"arguments": json.loads(call["function"]["arguments"])}}
        for call in message.get("tool_calls", ())
    ]
    return message | {"content": message["content"] or "", "tool_calls": calls}


def counts(folder: Path = TOKENIZER, template: str | None = CHATML) -> dict[str, Behaviour]:
    """`/tokenize` and `/detokenize` in vLLM's form, and what llama.cpp's server has beside or instead.

    Args:
        folder: of the tokenizer that is served.
        template: its chat template; None refuses conversations.
    """
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def tokenize(handler: "Handler") -> None:
        body = handler.body
        text = body.get("prompt", body.get("content"))
        if text is None and template is None:
            send(400, {"error": {"message": "there is no chat template", "code": 400}})(handler)
            return
        if text is None:
            flags = {"add_generation_prompt": True} | body
            text = TEMPLATES.from_string(template or "").render(
                messages=[parsed(message) for message in body["messages"]],
                tools=body.get("tools"),
                add_generation_prompt=flags["add_generation_prompt"],
                eos_token="<|im_end|>",
                **body.get("chat_template_kwargs", {}),
            )
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        said = {"count": len(ids), "max_model_len": 2048, "tokens": ids, "token_strs": None}
        said["input_tokens"] = len(ids)
        send(200, said)(handler)

    def detokenize(handler: "Handler") -> None:
        text = tokenizer.decode(handler.body["tokens"], skip_special_tokens=False)
        send(200, {"prompt": text})(handler)

    paths = {"/tokenize": tokenize, "/detokenize": detokenize}
    return paths | {"/v1/chat/completions/input_tokens": tokenize}


@dataclass
class Script:
    """What the server does with each request, and what it saw."""

    url: str = ""
    replies: list[Behaviour] = field(default_factory=list)
    """For chat requests, in order; `default` when used up."""
    default: Behaviour = field(default_factory=say)
    models: Behaviour = field(default_factory=lambda: send(404, {"detail": "Not Found"}))
    others: dict[str, Behaviour] = field(default_factory=dict)
    """For paths beside chat and model list; 404 where a path is not in it."""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    """Of chat requests, the names in lower case."""
    paths: list[str] = field(default_factory=list)
    """Of chat requests."""
    asked: list[tuple[str, Any]] = field(default_factory=list)
    """Paths and bodies of all other requests."""
    listings: int = 0
    connections: int = 0
    waiting: threading.Event = field(default_factory=threading.Event)
    left: threading.Event = field(default_factory=threading.Event)

    def serve_models(self, *entries: dict[str, Any]) -> None:
        """Lists models: each entry with at least an `id`."""
        self.models = send(200, {"object": "list", "data": list(entries)})

    def be_vllm(self, window: int | None = 2048, **serves: Any) -> None:
        """Gives itself away as a vLLM server of the model `tiny` that counts (`counts(**serves)`)."""
        self.serve_models({"id": "tiny", "owned_by": "vllm", "max_model_len": window})
        self.others = counts(**serves)

    def die(self) -> None:
        """Hangs up on everybody."""
        self.default = self.models = hang_up
        self.others = dict.fromkeys(self.others, hang_up)

    def of(self, path: str) -> list[Any]:
        """Bodies of the requests to a path beside chat and model list."""
        return [body for asked, body in self.asked if asked == path]


class Handler(BaseHTTPRequestHandler):
    """Follows the script."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two writes: 40 ms apart otherwise
    server: "Server"
    body: Any = None
    """Of the request that is answered."""

    def setup(self) -> None:
        super().setup()
        self.server.script.connections += 1

    def do_GET(self) -> None:
        script = self.server.script
        if self.path.endswith("/models"):
            script.listings += 1
            script.models(self)
        else:
            self.do_other(None)

    def do_POST(self) -> None:
        script = self.server.script
        self.body = body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.endswith("/chat/completions"):
            self.do_other(body)
            return
        script.bodies.append(body)
        script.headers.append({name.lower(): value for name, value in self.headers.items()})
        script.paths.append(self.path)
        (script.replies.pop(0) if script.replies else script.default)(self)

    def do_other(self, body: Any) -> None:
        script = self.server.script
        script.asked.append((self.path, body))
        script.others.get(self.path, send(404, {"detail": "Not Found"}))(self)

    def hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def deserted(self, seconds: float) -> bool:
        """Waits; True as soon as the client has left, which `left` then says too."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            readable, _, _ = select.select([self.connection], [], [], 0.02)
            if readable and self.connection.recv(1, socket.MSG_PEEK) == b"":
                self.server.script.left.set()
                self.close_connection = True
                return True
        return False

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Says nothing."""


class Server(ThreadingHTTPServer):
    """Threads of its own, which do not outlive their connections."""

    daemon_threads = True
    script: Script

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that leaves is no error here."""


@contextmanager
def running() -> Iterator[Script]:
    """A server that listens meanwhile."""
    with Server(("127.0.0.1", 0), Handler) as http:
        http.script = Script(url=f"http://127.0.0.1:{http.server_address[1]}/v1")
        thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield http.script
        http.shutdown()
        thread.join(5)
