"""An engine that keeps what it was sent, as bytes."""

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import field as attribute
from typing import Any

from tests.docs.stand_in import field, read
from tests.integrations.book import answer, text_of
from tests.models.chat_server import Behaviour, Handler, Script, Server, send

WINDOW = 2048


@dataclass
class Engine(Script):
    """The script of an engine, and the bytes of the requests that it got."""

    raws: list[bytes] = attribute(default_factory=list)
    seen: list[dict[str, str]] = attribute(default_factory=list)
    """Headers of all POSTs that it got, the names in lower case."""


class RawHandler(Handler):
    """Unpacks bodies before it follows the script."""

    def do_POST(self) -> None:  # noqa: N802 - the base class's name
        engine = self.server.script
        assert isinstance(engine, Engine)
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path not in ("/tokenize", "/detokenize"):
            engine.raws.append(raw)
            engine.seen.append({name.lower(): value for name, value in self.headers.items()})
        packed = self.headers.get("Content-Encoding") == "gzip"
        self.body = json.loads(gzip.decompress(raw) if packed else raw)
        if not self.path.endswith("/chat/completions"):
            self.do_other(self.body)
            return
        engine.bodies.append(self.body)
        engine.paths.append(self.path)
        (engine.replies.pop(0) if engine.replies else engine.default)(self)


@contextmanager
def serving(window: int | None = WINDOW, **serves: Any) -> Iterator[Engine]:
    """An engine in vLLM's manner that listens meanwhile."""
    with Server(("127.0.0.1", 0), RawHandler) as http:
        http.script = engine = Engine(url=f"http://127.0.0.1:{http.server_address[1]}/v1")
        engine.be_vllm(window, **serves)
        thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield engine
        http.shutdown()
        thread.join(5)


def in_pieces(
    pieces: list[bytes], *, then: threading.Event | None = None, **headers: str
) -> Behaviour:
    """Answers in chunks; `then` is waited for before the last one."""

    def behave(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for place, piece in enumerate(pieces):
            if then is not None and place == len(pieces) - 1:
                then.wait(10)
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            handler.wfile.flush()
        handler.wfile.write(b"0\r\n\r\n")

    return behave


def broken_stream(handler: Handler) -> None:
    """Begins a stream and hangs up."""
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    piece = b'data: {"choices": [{"delta": {"content": "half"}}]}\n\n'
    handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
    handler.wfile.flush()
    handler.hang_up()


def refuse(status: int, message: str, **headers: str) -> Behaviour:
    """Answers with an error in OpenAI's form."""
    return send(status, {"error": {"message": message, "code": status}}, **headers)


def read_or_echo(handler: Handler) -> None:
    """Reads where the prompt is a reading's; to anything else it repeats the last message, after that of the system."""
    messages = handler.body["messages"]
    last = text_of(messages[-1])
    messages[-1]["content"] = last
    if field("memory", last) is not None or field("chunk", last) is not None:
        read(handler)
        return
    said = " | ".join([text_of(m) for m in messages if m["role"] == "system"] + [last])
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    answer(handler, said, [], usage)
