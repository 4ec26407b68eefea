"""memagent compared with other ways to read the same document: time, tokens, memory and answers at several lengths.

The floor is the minimum work: tokenize the text once, and send as many prompts of the same size with the bare
client. Each reading is a process of its own, and readers take turns. Processor time and memory are those of
the reading process, not the server's.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from math import inf
from pathlib import Path
from signal import Signals
from typing import Any
from urllib.parse import urlsplit

import httpx

from memagent.cli.exits import CODES
from memagent.errors import ConfigError, MemagentError
from memagent.models.openai_errors import is_loopback
from memagent.prompts import PromptSet
from memagent.tasks.origin import machine, versions
from memagent.texts import name_extra, show_length
from memagent.tokens.local import TokenizerFile
from memagent_bench.perf.chunks import book
from memagent_bench.perf.measure import Row, markdown
from memagent_bench.perf.readers import PACKAGES, READERS, Request
from memagent_bench.server.vllm import VLLM

OURS, FLOOR = "memagent", "floor"
FRAMEWORKS = ("langchain-classic", "langchain-openai", "llama-index-core", "openai", "vllm")
MOST_CPU = 1.3
MOST_MIB = 152
"""Maximum resident memory: 160 MB."""
MOST_GROWTH = 10
"""Maximum growth in MiB between a quarter of the document and its end."""
MOST_BEND = 0.02
"""Maximum relative distance between the tokens paid at a length and a line through all lengths."""
NEARLY = 0.02
"""A difference smaller than this share is a tie, whatever the spread."""
TARGETS_FROM = 1_000_000
"""Minimum tokens. In shorter documents, imports dominate a process's time and memory."""
SAME = 0.03
"""Maximum relative distance between memagent's prompt tokens and the floor's, to compare their processor time."""

Reading = dict[str, Any]
"""The cost of a reading: see `readers.main`."""
Found = dict[int, dict[str, list[Reading]]]
"""Length -> reader -> a reading per round."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Readers, lengths and model of a comparison."""

    lengths: Sequence[int]
    """Tokens of the documents."""
    readers: Sequence[str] = tuple(READERS)
    rounds: int = 3
    tokenizer: Path
    """Path of the model's `tokenizer.json`."""
    base_url: str | None = None
    """Base URL of a server with a real model; None starts one that answers at once with a memory of 600 tokens."""
    model: str = "instant"
    window: int = 8192
    chunk: int = 5000
    reply: int = 1024
    prompts: str = "plain"

    def __post_init__(self) -> None:
        if unknown := [name for name in self.readers if name not in READERS]:
            raise ConfigError(f"no reader {unknown[0]!r}: choose from {', '.join(READERS)}")
        if OURS not in self.readers:
            raise ConfigError(f"the others are compared with {OURS!r}: add it to the readers")
        if not self.tokenizer.is_file():
            raise ConfigError(
                f"{str(self.tokenizer)!r} is not a file: give the model's tokenizer.json"
            )
        for name in self.readers:
            if not all(map(find_spec, PACKAGES.get(name.split()[0], ()))):
                needed = name_extra(f"the reader {name!r}", "peers")
                raise ConfigError(f"{needed}, or leave it out of --readers")


@contextmanager
def serving(tokenizer: Path, text: Path) -> Generator[str]:
    """Starts the instant server in its own process; yields its base URL."""
    command = [sys.executable, "-m", "memagent_bench.perf.instant", str(tokenizer), str(text)]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        finally:
            server.stdin.close()


def read(reader: str, request: Request) -> Reading:
    """Makes one reading in a fresh process.

    Raises:
        MemagentError: the reading failed; the message has the cause, and a note the traceback.
        ConfigError, ModelError, DocumentError, StoreError: that was the cause.
    """
    command = [sys.executable, "-m", "memagent_bench.perf.readers", reader]
    process = subprocess.run(
        [*command, json.dumps(asdict(request))], capture_output=True, text=True, check=False
    )
    if process.returncode == 0:
        return json.loads(process.stdout)
    cause = process.stderr.strip().rpartition("\n")[2]
    if process.returncode < 0:
        cause = f"its process was ended by {Signals(-process.returncode).name}"
    kinds = {code: kind for kind, code in CODES.items()}
    error = kinds.get(process.returncode, MemagentError)(f"{reader} failed: {cause}")
    error.add_note(process.stderr)
    raise error


def write_document(path: Path, tokens: int, counter: TokenizerFile, seed: int) -> tuple[str, str]:
    """Writes the shipped novel, sized to `tokens`, with a code at a random place; returns the question and the code."""
    novel, draw = book(), random.Random(f"{seed}-{tokens}")
    chars, code = tokens * len(novel) // counter.count(novel), str(draw.randrange(10_000, 100_000))
    text = book(chars)
    place = text.find(". ", draw.randrange(chars * 9 // 10)) + 2
    text = f"{text[:place]}The code of the lighthouse is {code}. {text[place:]}"
    path.write_text(text, encoding="utf-8")
    return "What is the code of the lighthouse?", code


def measure(setting: Setting) -> Generator[tuple[int, dict[str, list[Reading]]]]:
    """Makes all readings, and yields each length with those of its readers, as in `Found`.

    The readers take turns. Progress goes to standard error.

    Raises:
        MemagentError: as `read`.
    """
    counter = TokenizerFile(setting.tokenizer)
    frame = PromptSet.load(setting.prompts).render("update", question="", memory="")
    readers = sorted(setting.readers, key=OURS.__ne__)  # ours first: the floor makes as many calls
    with tempfile.TemporaryDirectory() as folder:
        document = Path(folder) / "document.txt"
        write_document(document, 100_000, counter, 0)
        with _open_server(setting, document) as url:
            for length in setting.lengths:
                passes: dict[str, list[Reading]] = {name: [] for name in readers}
                request = Request(
                    base_url=url,
                    model=setting.model,
                    tokenizer=str(setting.tokenizer),
                    document=str(document),
                    question="",
                    window=setting.window,
                    chunk=setting.chunk,
                    reply=setting.reply,
                    prompts=setting.prompts,
                    calls=length // setting.chunk,
                    frame="\n".join(message.content for message in frame),
                )
                for seed in range(setting.rounds):
                    question, code = write_document(document, length, counter, seed)
                    request = replace(request, question=question)
                    for name, readings in passes.items():
                        reading = _read(name, request, setting.base_url)
                        reading["right"] = code in reading["answer"]
                        readings.append(reading)
                        request = replace(request, calls=passes[OURS][-1]["calls"])
                        _show(length, name, reading)
                yield length, passes


@contextmanager
def _open_server(setting: Setting, document: Path) -> Generator[str]:
    if setting.base_url is not None:
        yield setting.base_url
    else:
        with serving(setting.tokenizer, document) as url:
            yield url


def _read(name: str, request: Request, server: str | None) -> Reading:
    """Makes a reading, with an empty prefix cache if it is a vLLM server that lets clients empty it."""
    if server is not None:
        with suppress(httpx.HTTPError, httpx.InvalidURL):  # which the reader explains
            VLLM(server).reset()
    return read(name, request)


def _show(length: int, name: str, reading: Reading) -> None:
    numbers = {key: round(reading[key], 2) for key in ("wall", "cpu", "calls", "prompts", "peak")}
    print(f"{show_length(length)} {name}: {numbers}", file=sys.stderr, flush=True)


def tables(found: Found, *, answers: bool) -> str:
    """Returns a Markdown table per length. With `answers`, a real model answered, and right answers are counted."""
    head = ["", "time, s", "first result, s", "processor, s", "calls", "tokens", "peak, MiB"]
    columns = ("wall", "first", "cpu", "calls", "paid", "peak")
    parts: list[str] = []
    for length, passes in found.items():
        lines = [[*head, *(["right"] if answers else []), "memagent's time", "tokens", "memory"]]
        ours = passes[OURS]
        lines[0][0] = f"{show_length(length)} tokens"
        for name, readings in passes.items():
            cells = [spread([_value(r, column) for r in readings]) for column in columns]
            if answers:
                cells.append(f"{sum(r['right'] for r in readings)} of {len(readings)}")
            verdicts = [
                "" if name == OURS else verdict(ours, readings, column)
                for column in ("wall", "paid", "peak")
            ]
            lines.append([name, *cells, *verdicts])
        parts.append(markdown(lines))
    return "\n\n".join(parts)


def verdict(ours: Sequence[Reading], theirs: Sequence[Reading], column: str) -> str:
    """Compares memagent's values in every round: smaller in all (win), larger in all (loss), or neither (tie)."""
    pairs = zip(ours, theirs, strict=True)
    ratios = [_value(a, column) / _value(b, column) for a, b in pairs]
    middle = statistics.median(ratios)
    if abs(middle - 1) < NEARLY or min(ratios) < 1 < max(ratios):
        return f"tie ({middle:.2f})"
    return f"{'win' if middle < 1 else 'loss'} ({middle:.2f})"


def rows(found: Found) -> list[Row]:
    """Returns the rows with targets: processor time and memory at the longest length, and how linear the cost is.

    Instead of processor time, a floor that sent prompts of another length has a row that misses its target: see `note`.
    """
    longest = max(found)
    targets: list[Row] = []
    if longest >= TARGETS_FROM:
        ours = found[longest][OURS]
        what = f"{show_length(longest)} tokens, {ours[0]['calls']} calls"
        if (floor := found[longest].get(FLOOR)) is not None:
            column, name, least, most = "cpu", "processor time", -inf, MOST_CPU
            if note(found):
                column, name, least, most = "prompts", "prompt tokens", 1 - SAME, 1 + SAME
            ratios = [a[column] / b[column] for a, b in zip(ours, floor, strict=True)]
            targets.append(Row(f"{what}: {name} against the floor", ratios, least=least, most=most))
        peaks = [r["peak"] for r in ours]
        targets.append(Row(f"{what}: peak memory", peaks, "MiB", most=MOST_MIB))
        growth = [r["end"] - r["quarter"] for r in ours]
        what = "the same: end against a quarter of the way"
        targets.append(Row(what, growth, "MiB", most=MOST_GROWTH))
    if len(found) > 2:
        what = "tokens paid: largest distance from a line"
        targets.append(Row(what, [bend(found)], most=MOST_BEND))
    return targets


def note(found: Found) -> str:
    """Says why processor time has no target: the floor's prompts were not as long as memagent's. Empty if they were."""
    passes = found[max(found)]
    if max(found) < TARGETS_FROM or FLOOR not in passes:
        return ""
    pairs = zip(passes[OURS], passes[FLOOR], strict=True)
    shares = [ours["prompts"] / floor["prompts"] for ours, floor in pairs]
    if all(abs(share - 1) < SAME for share in shares):
        return ""
    took = f"memagent's prompts took {spread(shares)} of the tokens of the floor's"
    return f"{took}, so their processor times are not compared."


def bend(found: Found) -> float:
    """Returns the largest relative distance of memagent's tokens from a line over length, fitted to relative errors."""
    points = [
        (length, statistics.median(_value(r, "paid") for r in passes[OURS]))
        for length, passes in found.items()
    ]
    # Least squares of (a + b x) / y - 1: two normal equations.
    u, v = [1 / y for _, y in points], [x / y for x, y in points]
    uu, uv, vv = (_dot(a, b) for a, b in ((u, u), (u, v), (v, v)))
    su, sv, det = sum(u), sum(v), uu * vv - uv * uv
    a, b = (su * vv - sv * uv) / det, (sv * uu - su * uv) / det
    return max(abs(a * left + b * right - 1) for left, right in zip(u, v, strict=True))


def where(setting: Setting) -> str:
    """Describes the machine, the server, the sizes and the compared versions."""
    server = "a server that answers at once"
    if setting.base_url is not None:
        try:
            engine = f"vLLM {VLLM(setting.base_url).version()}"
        except (httpx.HTTPError, httpx.InvalidURL, KeyError, ValueError):
            engine = "a server"
        # Tables are published: the host's name stays out of them.
        local = is_loopback(urlsplit(setting.base_url).hostname or "")
        server = f"{engine} on {'the same' if local else 'another'} machine with {setting.model}"
    packages = ", ".join(f"{name} {version}" for name, version in versions(FRAMEWORKS).items())
    return (
        f"{machine()}, {server}. Window of {setting.window:,} tokens, chunks of {setting.chunk:,}, "
        f"replies of up to {setting.reply:,}; prompt set {PromptSet.load(setting.prompts).name}. "
        f"Tokens of {setting.tokenizer.name}. {packages}. "
        f"Medians of {setting.rounds}, with the smallest and largest."
    )


def spread(values: Sequence[float]) -> str:
    """Formats the median, with the smallest and largest value if they differ."""
    middle, low, high = (_number(f(values)) for f in (statistics.median, min, max))
    return middle if low == high else f"{middle} ({low} to {high})"


def _value(reading: Reading, column: str) -> float:
    return reading["prompts"] + reading["replies"] if column == "paid" else reading[column]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _dot(left: Iterable[float], right: Iterable[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))
