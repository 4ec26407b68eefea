"""`make bench-server`: what memagent adds to a real vLLM server's own time.

Usage: python -m memagent_bench.server [--base-url URL --model NAME --tokenizer DIR] [--rounds N] [--write PAGE]

The server should be idle otherwise, started with a window of 8192 or more and with VLLM_SERVER_DEV_MODE=1, so
that its prefix cache can be emptied before each pass. The defaults are what `tests.engines.serve` sets.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from memagent.tasks.origin import machine
from memagent_bench.perf.measure import Row, page_parser, publish
from memagent_bench.perf.process import python
from memagent_bench.server.client import AT_ONCE
from memagent_bench.server.vllm import VLLM

METRICS = {
    "server_seconds": "vllm:e2e_request_latency_seconds_sum",
    "hits": "vllm:prefix_cache_hits_total",
    "queries": "vllm:prefix_cache_queries_total",
}


class Bench:
    """Runs passes against one server.

    Args:
        base_url: up to `/v1`.
        model: the served name.
        tokenizer: the model's own, for passes that count locally.
    """

    def __init__(self, base_url: str, model: str, tokenizer: str) -> None:
        self._url, self._model, self._tokenizer = base_url, model, tokenizer
        self._server = VLLM(base_url)

    def run(self, kind: str, log: Path, *, here: bool) -> dict[str, Any]:
        """Runs one pass in a fresh process, from an empty prefix cache.

        Args:
            kind: see `client`.
            log: file that requests are written to, or read from.
            here: whether to count with the tokenizer; otherwise the server counts.
        """
        self._server.reset()
        before = self._server.metrics(METRICS)
        extra = [self._tokenizer] if here else []
        output = python(
            "-m", "memagent_bench.server.client", kind, self._url, self._model, str(log), *extra
        )
        after = self._server.metrics(METRICS)
        figures: dict[str, Any] = json.loads(output)
        return figures | {name: after[name] - before[name] for name in before}


def measure(bench: Bench, rounds: int) -> list[Row]:
    """Measures all rows; each ratio is of two passes of the same round."""
    passes: dict[str, list[dict[str, Any]]] = {"here": [], "there": [], "flat": [], "alone": []}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "requests.jsonl"
        for _ in range(rounds):
            passes["here"].append(bench.run("agent", log, here=True))
            passes["flat"].append(bench.run("flat", log, here=True))
            passes["there"].append(bench.run("agent", log, here=False))
            passes["alone"].append(bench.run("alone", log, here=True))
    assert all(result["calls"] == passes["flat"][0]["calls"] for result in passes["here"])

    def against_flat(kind: str) -> list[float]:
        pairs = zip(passes[kind], passes["flat"], strict=True)
        return [(a["tokens"] / a["seconds"]) / (b["tokens"] / b["seconds"]) for a, b in pairs]

    def share(kind: str) -> list[float]:
        return [result["hits"] / result["queries"] for result in passes[kind]]

    def peaks(kind: str) -> list[float]:
        return [result["peak"] for result in passes[kind]]

    alone = [result["seconds"] / result["server_seconds"] for result in passes["alone"]]
    runs = f"{AT_ONCE} runs at once"
    speed = [result["tokens"] / result["seconds"] for result in passes["flat"]]
    return [
        Row(f"{runs}, throughput against flat", against_flat("here"), least=0.95),
        Row("the same, the server counting too", against_flat("there"), least=0.95),
        Row("one run alone, wall time against server time", alone, most=1.02),
        Row(f"prefix cache hits, {runs}", share("here"), "of prompt tokens"),
        Row("prefix cache hits, one run alone", share("alone"), "of prompt tokens"),
        Row(f"peak memory, {runs}", peaks("here"), "MiB"),
        Row("peak memory, the same requests sent flat", peaks("flat"), "MiB"),
        Row("peak memory, one run alone", peaks("alone"), "MiB"),
        Row(f"calls, {runs}", [result["calls"] for result in passes["here"]]),
        Row("tokens a second, sent flat", speed),
    ]


def main() -> int:
    """Measures, prints the table, and writes it into a page if one is given."""
    parser = page_parser(__doc__)
    parser.add_argument("--base-url", default=os.environ.get("MEMAGENT_BASE_URL"))
    parser.add_argument("--model", default=os.environ.get("MEMAGENT_MODEL", "").partition(":")[2])
    parser.add_argument("--tokenizer", default=os.environ.get("MODEL_FOLDER"))
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    bench = Bench(arguments.base_url, arguments.model, arguments.tokenizer)
    where = f"{machine()}, vLLM {VLLM(arguments.base_url).version()} on the same machine"
    return publish(measure(bench, arguments.rounds), "make bench-server", arguments.write, where)


if __name__ == "__main__":
    sys.exit(main())
