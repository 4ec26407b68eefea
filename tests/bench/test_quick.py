"""`memagent-bench quick`: what its verdict follows from, and one round of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.bench.report.made import K, record

from memagent import Limits
from memagent_bench.quick import OTHERS, rows, verdict
from memagent_bench.record import Record

Scores = dict[str, float]


def records(short: Scores, long: Scores, samples: int = 20) -> list[Record]:
    """Each system's share of right answers at 4K and at 16K, on the same samples of both tasks."""
    return [
        record(task, length, index, system, score=float(index < share * samples))
        for length, shares in ((4 * K, short), (16 * K, long))
        for task in ("niah_single_2", "squad")
        for system, share in shares.items()
        for index in range(samples)
    ]


def scores(memory: float, gate: float, direct: float, bm25: float) -> Scores:
    return {"memory": memory, "memory-gate": gate, "direct": direct, "bm25-model": bm25}


@pytest.mark.parametrize(
    ("short", "long", "said"),
    [
        (scores(0.9, 0.9, 1, 0.9), scores(0.9, 0.5, 0.3, 0.4), "memory pays beyond 4K tokens"),
        (scores(0.5, 0.9, 0.3, 0.2), scores(0.5, 0.9, 0.3, 0.2), "memory pays from 4K tokens on"),
        (
            scores(0.9, 0.9, 1, 0.9),
            scores(0.9, 0.9, 0.3, 0.95),
            "use bm25-model: 40 samples of 16K",
        ),
        (scores(0.9, 0.9, 1, 0.9), scores(0.2, 0.1, 0.9, 0.3), "use direct: at 16K it beats both"),
        # Better at the shorter length alone is no memory that pays.
        (scores(0.9, 0.9, 0.2, 0.2), scores(0.2, 0.1, 0.2, 0.1), "use direct: 40 samples"),
    ],
)
def test_the_verdict_follows_from_paired_intervals(short: Scores, long: Scores, said: str) -> None:
    assert said in verdict(records(short, long))


def test_few_samples_show_nothing() -> None:
    assert "use direct: 2 samples" in verdict(
        records(scores(1, 1, 0, 0), scores(1, 1, 0, 0), samples=1)
    )


def test_times_and_costs_are_per_100k_tokens_of_documents() -> None:
    made = [record("squad", 4 * K, index, "direct", tokens=4000, seconds=2.0) for index in range(3)]
    (row,) = rows(made, Limits(prompt_price=2.0, completion_price=4.0))
    assert row.seconds == pytest.approx(50)
    assert row.prompt_tokens == pytest.approx(made[0].usage.prompt_tokens * 25)
    spent = 2 * row.prompt_tokens + 4 * row.completion_tokens
    assert row.cost == pytest.approx(spent / 1e6)


def test_a_round_is_a_sample_of_each_task_under_each_system(
    invoke: Callable[..., Any], tmp_path: Path
) -> None:
    out = tmp_path / "q"
    line = (
        "quick",
        "--model",
        "extractive",
        "--lengths",
        "2k,4k",
        "--minutes",
        "0.001",
        "--out",
        out,
    )
    done = invoke(*line)
    assert done.exit_code == 2, "no time at all is refused"
    line = (*line[:-3], "0.1", "--out", out, "--max-calls", "100000")
    done = invoke(*line)
    assert done.exit_code == 0, done.stderr
    assert "verdict:" in done.stdout
    result = json.loads((out / "quick.json").read_text())
    assert [(row["system"], row["length"]) for row in result["rows"]] == [
        (system, length) for length in (2048, 4096) for system in ("memory", "memory-gate", *OTHERS)
    ]
    assert result["verdict"] in done.stdout
    before = (out / "results.jsonl").read_text().count("\n")
    assert before % 16 == 0
    again = invoke(*line, "--display", "json")
    assert json.loads(again.stdout)["verdict"]
