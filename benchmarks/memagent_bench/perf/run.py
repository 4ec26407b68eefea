"""A whole run over millions of tokens with a server that answers at once, beside what nobody can do without.

The floor is to tokenise the text once and to send as many prompts of the same size with the bare client. Each reading
is a process of its own; processor time is that of the reading process alone, not the server's.

Usage: python -m memagent_bench.perf.run [--tokenizer FILE] [--rounds N] [--write docs/performance.md]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memagent.prompts import PromptSet
from memagent.tasks.origin import machine
from memagent.tokens.local import TokenizerFile
from memagent_bench.perf.chunks import book
from memagent_bench.perf.measure import SMALL_TOKENIZER, Row, table, write
from memagent_bench.perf.process import python
from memagent_bench.perf.reading import FRAME

COMMAND = "make bench, a whole run"
TOKENS = 4_200_000
KINDS = {
    "agent": "memagent",
    "floor": "floor: tokenise once, the same calls sent flat",
    "langchain": "LangChain refine",
    "llamaindex": "LlamaIndex Refine",
}
MOST_CPU = 1.3
MOST_MIB = 152
"""160 MB."""
MOST_GROWTH = 10
"""MiB between a quarter of the document and its end."""


@contextmanager
def serving(tokenizer: Path, text: Path) -> Generator[str]:
    """The instant server in a process of its own, as its base URL; puts the frame of prompts beside the text."""
    frame = PromptSet.load("plain").render("update", question="", memory="")
    text.with_suffix(FRAME).write_text("\n".join(message.content for message in frame))
    command = [sys.executable, "-m", "memagent_bench.perf.instant", str(tokenizer), str(text)]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        finally:
            server.stdin.close()


def measure(tokenizer: Path, tokens: int = TOKENS, rounds: int = 3) -> list[Row]:
    """Reads the shipped novel, repeated up to a number of tokens, in turns.

    Args:
        tokenizer: the model's, a `tokenizer.json`.
        tokens: of the document.
        rounds: of all four readings.
    """
    novel, counter = book(), TokenizerFile(tokenizer)
    chars = tokens * len(novel) // counter.count(novel)
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as name:
        text = Path(name) / "document.txt"
        text.write_text((novel * (chars // len(novel) + 1))[:chars])
        with serving(tokenizer, text) as url:
            read = ("-m", "memagent_bench.perf.reading")
            calls = tokens // 4900
            for _ in range(rounds):
                for kind, passes in found.items():
                    said = python(*read, kind, url, str(tokenizer), str(text), str(calls))
                    passes.append(json.loads(said))
                    calls = found["agent"][-1]["calls"]
                    print(f"{kind}: {passes[-1]}", file=sys.stderr, flush=True)
                flat = found["floor"][-1]["prompts"] / found["agent"][-1]["prompts"]
                assert abs(flat - 1) < 0.03, f"the floor's prompts are {flat} of memagent's"
    floor, agent = found["floor"], found["agent"]
    what = f"{tokens:,} tokens ({counter.name}), {floor[0]['calls']} calls"
    ratio = _row(
        f"{what}: processor time against the floor",
        [ours["cpu"] / flat["cpu"] for ours, flat in zip(agent, floor, strict=True)],
        MOST_CPU,
    )
    peak = _row(f"{what}: peak memory", [p["peak"] for p in agent], MOST_MIB, "MiB")
    growth = _row(
        "the same: memory at its end against that at a quarter",
        [p["end"] - p["quarter"] for p in agent],
        MOST_GROWTH,
        "MiB",
    )
    seconds = [
        Row(f"{name}: processor time", "", [p["cpu"] for p in found[kind]], "s")
        for kind, name in KINDS.items()
    ]
    peaks = [
        Row(f"{name}: peak memory", "", [p["peak"] for p in found[kind]], "MiB")
        for kind, name in KINDS.items()
        if kind != "agent"
    ]
    return [ratio, peak, growth, *seconds, *peaks]


def _row(what: str, values: list[float], most: float, unit: str = "") -> Row:
    good = sorted(values)[len(values) // 2] <= most
    return Row(what, f"<= {most} {unit}".strip(), values, unit, good=good)


def main() -> int:
    """Measures this part of `make bench` alone; 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", type=Path, default=SMALL_TOKENIZER)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", type=Path, help="put the table into this page")
    given = parser.parse_args()
    rows = measure(given.tokenizer, rounds=given.rounds)
    print(f"{machine()}\n\n{table(rows)}")
    if given.write is not None:
        write(given.write, COMMAND, rows)
    return 0 if all(row.good is not False for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
