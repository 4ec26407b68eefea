"""Records as a benchmark would write them, made up: skill falls with length, differently for each system."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from memagent.messages import Sampling, Usage
from memagent_bench.published import RULER_TASKS
from memagent_bench.record import Provenance, Record
from memagent_bench.systems.base import Status

K = 1024
SYSTEMS = ("memory", "memory-gate", "direct", "extractive", "bm25", "map-reduce")
SKILL = {
    "memory": (0.97, 0.012),
    "memory-gate": (0.965, 0.008),
    "direct": (0.96, 0.13),
    "extractive": (0.62, 0.02),
    "bm25": (0.8, 0.03),
    "map-reduce": (0.9, 0.03),
    "langchain-refine": (0.88, 0.045),
    "llamaindex-refine": (0.86, 0.05),
}
"""Chance of a right value at 8K, and what each doubling takes off."""
VALUES = {"niah_multivalue": 4, "niah_multiquery": 4, "vt": 5, "cwe": 10, "fwe": 3}
"""Values that an answer has to hold, where it is not one."""


def provenance(model: str = "vllm:Qwen/Qwen3-4B", **changed: Any) -> Provenance:
    given: dict[str, Any] = {
        "model": model,
        "server": "vllm 0.11.0 at localhost:8000",
        "prompts": "plain:0123456789abcdef",
        "chunker": "exact:5000:tokenizer.json:655f083a280d",
        "window": 8192,
        "memory_tokens": 1024,
        "sampling": Sampling(),
        "seed": 42,
        "commit": "c5d985f0c5d985f0c5d985f0c5d985f0c5d985f0",
        "dirty": False,
        "packages": {"memagent": "0.1.0", "openai": "2.8.0", "tokenizers": "0.22.1"},
        "python": "3.11.2",
        "machine": "2 cores, x86-64, Linux",
    }
    return Provenance(**given | changed)


def record(
    task: str = "niah_single_1",
    length: int = 8 * K,
    index: int = 0,
    system: str = "memory",
    score: float | None = 1.0,
    **changed: Any,
) -> Record:
    chunks = 1 if system.startswith(("direct", "bm25")) else -(-length // 5000)
    calls = 0 if system == "extractive" else chunks + (system not in ("direct", "bm25"))
    seed = f"{task} {length} {index}"
    given: dict[str, Any] = {
        "suite": "ruler",
        "task": task,
        "length": length,
        "index": index,
        "system": system,
        "score": score,
        "status": Status.FAILED if score is None else Status.ANSWERED,
        "scorer": "string_match_part" if task.startswith("qa_") else "string_match_all",
        "answer": None if score is None else "1234567",
        "outputs": (f"value of {seed}",),
        "question": f"What is the number of {seed}?",
        "detail": "RequestTimeout: no answer within 600 s\nmore of it" if score is None else "",
        "tokens": length - 60,
        "chars": length * 4,
        "bytes": length * 4,
        "facts": {
            "haystack": "essays (shipped book)",
            "rounds": 1 if length < 600 * K else 2,
            "wording": "memagent",
            "positions": "published",
            "nested": False,
            "length_tokenizer": "gpt2",
        },
        "chunks": chunks,
        "usage": Usage(calls=calls, prompt_tokens=calls * 5900, completion_tokens=calls * 240),
        "predicted_calls": calls,
        "predicted_tokens": calls * 7100,
        "seconds": 0.4 + calls * 1.9,
        "started": "2026-11-21T12:00:00Z",
        "document": hashlib.sha256(seed.encode()).hexdigest()[:16],
        "provenance": provenance(),
    }
    return Record(**given | changed)


def run(
    systems: Iterable[str] = ("memory", "direct"),
    tasks: Sequence[str] = RULER_TASKS,
    lengths: Sequence[int] = (8 * K, 32 * K, 128 * K),
    n: int = 10,
    *,
    seed: int = 1,
    failing: float = 0.0,
    **changed: Any,
) -> list[Record]:
    """All combinations; `failing` is the share of samples without a score."""
    rng = random.Random(seed)
    found: list[Record] = []
    for system in systems:
        start, fall = SKILL.get(system, (0.7, 0.02))
        for step, length in enumerate(lengths):
            for number, task in enumerate(tasks):
                skill = max(0.02, start - fall * step * (1 + 0.07 * number) - 0.012 * number)
                for index in range(n):
                    wanted = VALUES.get(task, 1)
                    score = sum(rng.random() < skill for _ in range(wanted)) / wanted
                    chunks = -(-length // 5000)
                    noise = {"seconds": (0.4 + 1.9 * chunks) * rng.lognormvariate(0, 0.15)}
                    if system in ("direct", "bm25", "extractive"):
                        noise = {"seconds": 2 * rng.lognormvariate(0, 0.2)}
                    failed = rng.random() < failing
                    found.append(
                        record(
                            *(task, length, index, system, None if failed else score),
                            **noise | changed,
                        )
                    )
    return found


def write(folder: Path, records: Iterable[Record]) -> Path:
    """A folder as a benchmark leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(record.model_dump_json() + "\n" for record in records)
    (folder / "results.jsonl").write_text(lines, encoding="utf-8")
    return folder


def by_model(models: Mapping[str, int], **given: Any) -> list[list[Record]]:
    """One run a model, each with its seed."""
    return [run(seed=seed, provenance=provenance(model), **given) for model, seed in models.items()]
