"""A server in vLLM's dialect over real sockets, which draws from weights of its own that it loads from a folder."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from memagent.messages import Sampling
from memagent_engines.transformers.padded import PaddedSampler
from memagent_engines.transformers.sampler import Sampled


class SamplingServer:
    """What it was asked, in order: `load`, or the version of the weights that a reply was drawn with.

    Args:
        folder: the first weights, and the tokenizer.
    """

    def __init__(self, folder: Path) -> None:
        self.history: list[int | str] = []
        self.drawn: dict[tuple[object, object], int] = {}
        """The version that each reply was drawn with, by its ids and log-probabilities."""
        self.version = 0
        self.most: int | None = None
        """The version after which no weights are taken."""
        self.adapter: str | None = None
        """The name of the adapter that it has."""
        self.told = "default"
        """What it was told to be the version of its weights."""
        self.drawing = self.disturbed = 0
        """Replies being drawn, and loads that met some."""
        self._first = folder
        self.model, self._tokenizer = _read(folder), AutoTokenizer.from_pretrained(folder)
        self._lock = threading.Lock()

    def draw(self, body: dict[str, Any]) -> dict[str, Any]:
        """A completion."""
        assert body.get("model") == self.adapter
        with self._lock:
            self.drawing += 1
            self.history.append(self.version)
        with self._lock:
            sampled = self._sample(body)
            self.drawn[sampled.ids, sampled.logprobs] = self.version
            self.drawing -= 1
        choice = {"token_ids": sampled.ids, "finish_reason": sampled.finish.value}
        return {"choices": [choice | {"logprobs": {"token_logprobs": sampled.logprobs}}]}

    def _sample(self, body: dict[str, Any]) -> Sampled:
        sampler = PaddedSampler(self.model, self._tokenizer)
        sampling = Sampling(temperature=body["temperature"], top_p=body["top_p"])
        with sampler.generating():
            return asyncio.run(
                sampler.sample(
                    body["prompt"],
                    max_tokens=body["max_tokens"],
                    sampling=sampling,
                    seed=body.get("seed"),
                )
            )

    def load(self, folder: str, adapter: str | None = None) -> None:
        """Takes new weights, or an adapter for the first ones, as long as it may."""
        if self.version == self.most:
            raise PermissionError
        with self._lock:
            self.disturbed += self.drawing
            whole = _read(Path(folder)) if adapter is None else _merged(self._first, folder)
            self.model, self.adapter = whole, adapter
            self.version += 1
            self.history.append("load")


def _read(folder: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(folder).eval()


def _merged(base: Path, adapter: str) -> PreTrainedModel:
    return PeftModel.from_pretrained(_read(base), adapter).merge_and_unload().eval()  # pyright: ignore[reportCallIssue]


@contextmanager
def sampling_server(folder: Path) -> Iterator[tuple[SamplingServer, str]]:
    """The server and its URL."""
    server = SamplingServer(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/weight_info"
            self.answer(200, {"weight_version": server.told})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or "{}")
            reply: dict[str, Any] = {}
            status = 200
            try:
                if self.path == "/collective_rpc":
                    server.load(body["kwargs"]["weights_path"])
                elif self.path == "/update_weight_version":
                    server.told = body["new_version"]
                elif self.path == "/v1/load_lora_adapter":
                    server.load(body["lora_path"], body["lora_name"])
                elif self.path == "/v1/completions":
                    reply = server.draw(body)
            except PermissionError:
                status = 400
            self.answer(status, reply)

        def answer(self, status: int, reply: dict[str, Any]) -> None:
            data = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the library's)
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        try:
            yield server, f"http://127.0.0.1:{http.server_address[1]}"
        finally:
            http.shutdown()
            thread.join()
