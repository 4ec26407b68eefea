"""Reads one document once, in its own process, with memagent or another framework; prints what it cost.

Usage: python -m memagent_bench.perf.readers READER REQUEST (both as in `READERS` and `Request`; prints JSON)

Other frameworks run as their documentation shows: their own splitter, prompts and loop, all with chunks of the same
size and the same client underneath, whose traffic is counted.
"""

from __future__ import annotations

import gzip
import json
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
from openai import OpenAI
from tokenizers import Tokenizer

from memagent_bench.perf.measure import measure_resident

PIECE = 65536
TEMPERATURE = 0.0
TIMEOUT = 3600.0
"""Seconds until a reader gives up on a reply."""
CAUSE_CHARS = 600
"""Characters of a failure's cause: enough for memagent's own messages, which quote up to 500 of a server's."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to read, and with which model."""

    base_url: str
    model: str
    tokenizer: str
    """Path of the model's own `tokenizer.json`."""
    document: str
    """Path of a text file."""
    question: str
    window: int
    """Maximum tokens of prompt plus reply."""
    chunk: int
    """Tokens per chunk."""
    reply: int
    """Maximum tokens of a reply."""
    prompts: str = "plain"
    """memagent's prompt set."""
    calls: int = 0
    """For `floor`: number of calls to make. For `memagent`: about the number of its calls, to measure memory midway."""
    frame: str = ""
    """For `floor`: the text of memagent's prompt besides question, memory and chunk."""

    def encoder(self) -> Tokenizer:
        """Loads the tokenizer."""
        raw = Path(self.tokenizer).read_bytes()
        return Tokenizer.from_buffer(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)

    def size(self) -> Callable[[str], int]:
        """Returns a token counter for the splitters of other frameworks."""
        encoder = self.encoder()
        return lambda text: len(encoder.encode(text, add_special_tokens=False))

    def text(self) -> str:
        """Reads the document."""
        return Path(self.document).read_text(encoding="utf-8")


@dataclass(kw_only=True)
class Tally:
    """The cost of a reading so far."""

    calls: int = 0
    prompts: int = 0
    """Prompt tokens."""
    replies: int = 0
    """Reply tokens."""
    answer: str = ""
    first: float | None = None
    """Seconds until the first intermediate result: a memory, or an answer so far."""
    quarter: float = 0
    """MiB resident after a quarter of the calls; 0 if not measured."""
    refines: bool = False
    """Whether each reply is an answer so far."""
    start: float = field(default_factory=time.perf_counter)

    def client(self) -> Any:
        """Returns a client that counts its traffic; typed for any release of the openai package."""
        return httpx.Client(event_hooks={"response": [self._count]}, timeout=TIMEOUT)

    def _count(self, response: httpx.Response) -> None:
        if response.is_error or not response.request.url.path.endswith("/chat/completions"):
            return
        usage = json.loads(response.read())["usage"]
        self.calls += 1
        self.prompts += usage["prompt_tokens"]
        self.replies += usage["completion_tokens"]
        if self.refines:
            self.show()

    def begin(self) -> None:
        """Starts the clock, after the reader's imports."""
        self.start = time.perf_counter()

    def show(self) -> None:
        """Records that there is an intermediate result."""
        self.first = self.first or time.perf_counter() - self.start


def ask(request: Request, client: OpenAI, prompt: str) -> str:
    """Makes one call with the bare client."""
    reply = client.chat.completions.create(
        model=request.model,
        messages=[{"role": "user", "content": prompt}],
        max_tokens=request.reply,
        temperature=TEMPERATURE,
    )
    return reply.choices[0].message.content or ""


def open_client(request: Request, tally: Tally) -> OpenAI:
    """Opens the openai package's client."""
    return OpenAI(
        base_url=request.base_url, api_key="EMPTY", max_retries=0, http_client=tally.client()
    )


def read_floor(request: Request, tally: Tally) -> None:
    """Tokenizes the text once, and sends as many prompts of the same size as memagent."""
    tally.begin()
    size, document = request.size(), request.text()
    for start in range(0, len(document), PIECE):
        size(document[start : start + PIECE])
    share, memory = -(-len(document) // request.calls), ""
    tally.refines = True
    with open_client(request, tally) as client:
        for start in range(0, share * request.calls, share):
            chunk = document[start : start + share]
            memory = ask(request, client, f"{request.frame}\n{request.question}\n{memory}\n{chunk}")
    tally.answer = memory


def read_script(request: Request, tally: Tally) -> None:
    """Runs a script written in ten minutes: chunks of fixed length in characters, and notes that the model rewrites."""
    tally.begin()
    document, notes, step = request.text(), "", 4 * request.chunk
    tally.refines = True
    with open_client(request, tally) as client:
        for start in range(0, len(document), step):
            notes = ask(
                request,
                client,
                f"Question: {request.question}\n\nNotes so far:\n{notes}\n\nText:\n{document[start : start + step]}\n\n"
                "Rewrite the notes: keep and add what helps to answer the question.",
            )
        tally.answer = ask(
            request, client, f"Notes:\n{notes}\n\nAnswer the question: {request.question}"
        )


def read_memagent(request: Request, tally: Tally) -> None:
    """Runs `MemoryAgent.ask` over the file, with a run store in a file."""
    from memagent import MemoryAgent, Sampling, open_model
    from memagent.events import Event

    def listen(event: Event) -> None:
        if event.type in ("memory_updated", "memory_kept"):
            tally.show()
            tally.calls += 1
            if tally.calls == request.calls // 4:
                tally.quarter = measure_resident("VmRSS")

    tally.begin()
    store = Path(request.document).with_suffix(".sqlite")
    store.unlink(missing_ok=True)
    model = open_model(
        f"openai:{request.model}", base_url=request.base_url, tokenizer=Path(request.tokenizer)
    )
    with MemoryAgent(
        model,
        store=store,
        window=request.window,
        prompts=request.prompts,
        chunk_tokens=request.chunk,
        memory_tokens=request.reply,
        degenerate="take",
        sampling=Sampling(temperature=TEMPERATURE),
    ) as agent:
        result = agent.ask(Path(request.document), request.question, on_event=listen)
    usage = result.usage
    tally.calls, tally.prompts, tally.replies = (
        usage.calls,
        usage.prompt_tokens,
        usage.completion_tokens,
    )
    tally.answer = result.answer or ""


def read_with_framework(request: Request, tally: Tally, module: str, kind: str) -> None:
    """Reads with the `read` function of a module in this package, in one of the framework's modes."""
    import_module(f"memagent_bench.perf.{module}").read(request, tally, kind)


READERS: dict[str, Callable[[Request, Tally], None]] = {
    "memagent": read_memagent,
    "floor": read_floor,
    "plain script": read_script,
    "LangChain refine": partial(read_with_framework, module="in_langchain", kind="refine"),
    "LangChain map-reduce": partial(read_with_framework, module="in_langchain", kind="map_reduce"),
    "LlamaIndex Refine": partial(read_with_framework, module="in_llamaindex", kind="refine"),
    "LlamaIndex TreeSummarize": partial(
        read_with_framework, module="in_llamaindex", kind="tree_summarize"
    ),
}

PACKAGES = {
    "LangChain": ("langchain_classic", "langchain_openai"),
    "LlamaIndex": ("llama_index",),
}
"""What readers need besides memagent's own packages, by the first word of their names."""


def main(reader: str, request: Request) -> dict[str, Any]:
    """Reads; returns the tally with wall and processor seconds, and MiB at the peak and the end.

    Imports count towards processor seconds, but not wall seconds.
    """
    tally = Tally()
    READERS[reader](request, tally)
    wall = time.perf_counter() - tally.start
    end, peak = measure_resident("VmRSS"), measure_resident()
    figures = asdict(tally) | {"wall": wall, "cpu": time.process_time(), "peak": peak, "end": end}
    return figures | {"first": wall if tally.first is None else tally.first}


def report(error: Exception, request: Request) -> int:
    """Prints the traceback and, in the last line, the cause; returns the exit code, as that of a command."""
    # Not imported before a reading, whose memory it would add to.
    from openai import APIError

    from memagent.cli.exits import code_of
    from memagent.errors import MemagentError
    from memagent.models.openai_errors import Endpoint, translate
    from memagent.terminal import shorten

    traceback.print_exception(error)
    while isinstance(error.__cause__, APIError):  # LangChain wraps the client's errors
        error = error.__cause__
    if isinstance(error, APIError):
        endpoint = Endpoint(f"openai:{request.model}", request.base_url, TIMEOUT)
        error = translate(error, endpoint)
    kind = "" if isinstance(error, MemagentError) else f"{type(error).__name__}: "
    print(shorten(f"{kind}{error}", CAUSE_CHARS), file=sys.stderr)
    return code_of(error)


if __name__ == "__main__":
    request = Request(**json.loads(sys.argv[2]))
    try:
        print(json.dumps(main(sys.argv[1], request)))
    except Exception as error:  # of any framework that is compared, and this is its process
        raise SystemExit(report(error, request)) from error
