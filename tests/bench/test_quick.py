"""`memagent-bench quick`: what its verdict follows from, and one round of it."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.bench.report.made import K, record
from tests.models.chat_server import Script, say, send, slow

from memagent import Limits
from memagent.terminal import duration
from memagent_bench import quick
from memagent_bench.quick import (
    MEMORY,
    OTHERS,
    SYSTEMS,
    keep_comparable,
    rows,
    tokens_per_second,
    verdict,
)
from memagent_bench.record import Record
from memagent_bench.significance import Difference, paired_difference

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
        (scores(0.9, 0.9, 1, 0.9), scores(0.9, 0.5, 0.3, 0.4), "memory pays off beyond 4K tokens"),
        (scores(0.5, 0.9, 0.3, 0.2), scores(0.5, 0.9, 0.3, 0.2), "memory pays off from 4K tokens"),
        (
            scores(0.9, 0.9, 1, 0.9),
            scores(0.9, 0.9, 0.3, 0.95),
            "use bm25-model: 40 samples at 16K",
        ),
        (scores(0.9, 0.9, 1, 0.9), scores(0.2, 0.1, 0.9, 0.3), "use direct: at 16K it beats both"),
        # Better at the shorter length alone is no memory that pays.
        (scores(0.9, 0.9, 0.2, 0.2), scores(0.2, 0.1, 0.2, 0.1), "use direct: 40 samples"),
    ],
)
def test_the_verdict_follows_from_paired_intervals(short: Scores, long: Scores, said: str) -> None:
    assert said in verdict(records(short, long))


def test_a_verdict_is_the_same_in_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[list[float]] = []

    def see_order(strata: Iterable[Sequence[float]]) -> Difference:
        drawn.extend(map(list, strata))
        return paired_difference(drawn)

    monkeypatch.setattr(quick, "paired_difference", see_order)
    verdict(
        [
            record("squad", 4 * K, index, system, score=index / 40 if system in MEMORY else 0.0)
            for system in SYSTEMS
            for index in range(40)
        ]
    )
    assert drawn == [[index / 40 for index in range(40)]] * len(OTHERS)


def test_few_samples_show_nothing() -> None:
    few = records(scores(1, 1, 0, 0), scores(1, 1, 0, 0), samples=1)
    said = verdict(few)
    assert "undecided: at 16K memory is ahead of direct by 1.00" in said
    assert "2 samples; repeat the command" in said
    assert verdict(few[:0]).startswith("none yet")


def test_a_model_that_has_nothing_right_decides_nothing() -> None:
    assert "none: no system got any answer right with this model at 16K" in verdict(
        records(scores(1, 1, 0, 0), scores(0, 0, 0, 0))
    )


def unanswered(made: list[Record], system: str, count: int, length: int = 16 * K) -> list[Record]:
    """The records, without an answer for the first samples of a system at a length."""
    return [
        record(r.task, r.length, r.index, r.system, score=None)
        if (r.system, r.length) == (system, length) and r.index < count
        else r
        for r in made
    ]


def test_no_verdict_rests_on_samples_without_an_answer() -> None:
    ahead = records(scores(0.9, 0.9, 1, 0.9), scores(0.9, 0.5, 0.3, 0.4))
    silent = unanswered(unanswered(ahead, "direct", 20), "bm25-model", 10)
    said = verdict(silent)
    assert (
        "undecided: at 16K, 40 of 40 samples of direct and 20 of 40 samples of bm25-model" in said
    )
    assert "pays off beyond 4K" in verdict(unanswered(ahead, "direct", 2)), "right in any case"
    behind = records(scores(0.9, 0.9, 1, 0.9), scores(0.2, 0.1, 0.9, 0.3))
    assert "undecided: at 16K, 40 of 40 samples of memory" in verdict(
        unanswered(behind, "memory", 20)
    )
    assert "use direct: at 16K it beats both" in verdict(unanswered(behind, "memory", 1))
    nothing = [r.model_copy(update={"score": None}) for r in behind]
    assert "undecided: at 16K, 40 of 40 samples of memory, 40" in verdict(nothing)
    wrong = records(scores(0, 0, 0, 0), scores(0, 0, 0, 0))
    assert "undecided: at 16K, 40 of 40 samples of direct" in verdict(
        unanswered(wrong, "direct", 20)
    )


def test_samples_without_an_answer_matter_only_if_they_can_change_the_verdict() -> None:
    behind = records(scores(0.9, 0.9, 1, 0.9), scores(0.2, 0.1, 0.9, 0.95))
    assert verdict(behind).startswith("use bm25-model")
    said = verdict(unanswered(behind, "bm25-model", 20))
    assert said.startswith("undecided: at 16K, 40 of 40 samples of bm25-model got no answer")
    ahead = records(scores(0.9, 0.9, 0.3, 0.3), scores(0.9, 0.9, 0.3, 0.3))
    assert "pays off from 4K" in verdict(ahead)
    silent = unanswered(ahead, "direct", 20, 4 * K)
    assert verdict(silent).startswith("undecided: at 4K, 40 of 40 samples of direct got no answer")
    both = verdict(unanswered(silent, "memory", 1))
    assert "at 16K, 2 of 40 samples of memory; at 4K, 40 of 40 samples of direct got" in both
    close = records(scores(0.9, 0.9, 0.9, 0.9), scores(0.6, 0.5, 0.55, 0.2))
    assert "which may be chance" in verdict(close)
    assert verdict(unanswered(close, "bm25-model", 1)) == verdict(close)
    # Direct is better if both have all of them right or none, but not in every other case.
    others = records(scores(0.9, 0.9, 1, 0.9), scores(0.1, 0.1, 0.9, 0.85))
    for system in OTHERS:
        others = unanswered(others, system, 4)
    assert verdict(others).startswith("undecided: at 16K, 8 of 40 samples of direct and 8 of 40")


def test_samples_that_some_systems_lack_are_left_out() -> None:
    every = records(scores(1, 1, 0, 0), scores(1, 1, 0, 0), samples=2)
    lacking = [r for r in every if (r.system, r.length, r.index) != ("direct", 16 * K, 1)]
    found = rows(keep_comparable(lacking))
    assert {(row.length, row.score.n) for row in found} == {(4 * K, 4), (16 * K, 2)}
    assert {n.n for row in found for n in row.tasks.values()} == {1, 2}


def test_speed_counts_the_time_in_which_anything_is_at_work() -> None:
    at = "2026-01-01T00:00:{:02}+00:00".format
    made = [
        record("squad", index=0, seconds=10.0, started=at(0)),
        record("squad", index=1, seconds=4.0, started=at(2)),
        record("squad", index=2, seconds=5.0, started=at(20)),
    ]
    usage = made[0].usage
    wanted = 3 * (usage.prompt_tokens + usage.completion_tokens) / 15
    assert tokens_per_second(made) == pytest.approx(wanted)
    assert tokens_per_second([]) == 0


def test_times_and_costs_are_per_100k_tokens_of_documents() -> None:
    made = [record("squad", 4 * K, index, "direct", tokens=4000, seconds=2.0) for index in range(3)]
    (row,) = rows(made, Limits(prompt_price=2.0, completion_price=4.0))
    assert row.seconds == pytest.approx(50)
    assert row.prompt_tokens == pytest.approx(made[0].usage.prompt_tokens * 25)
    spent = 2 * row.prompt_tokens + 4 * row.completion_tokens
    assert row.cost == pytest.approx(spent / 1e6)


def test_resumed_samples_have_no_time() -> None:
    made = [
        record("squad", index=0, seconds=10.0, tokens=4000),
        record("squad", index=1, seconds=1.0, tokens=4000, resumed=True),
    ]
    assert [row.seconds for row in rows(made)] == [250]
    assert tokens_per_second(made) == tokens_per_second(made[:1])
    assert [row.seconds for row in rows(made[1:])] == [None]


def test_samples_without_an_answer_show_nothing() -> None:
    made = [record("squad", shown=0.2), record("squad", index=1, score=None)]
    assert [row.shown for row in rows(made)] == [0.2]
    assert [row.shown for row in rows(made[1:])] == [None]


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
    line = (*line[:-3], "0.2", "--out", out, "--max-calls", "100000")
    done = invoke(*line)
    assert done.exit_code == 0, done.stderr
    assert "verdict:" in done.stdout
    result = json.loads((out / "quick.json").read_text())
    assert [(row["system"], row["length"]) for row in result["rows"]] == [
        (system, length) for length in (2048, 4096) for system in ("memory", "memory-gate", *OTHERS)
    ]
    assert result["verdict"] in done.stdout
    times = [duration(row["seconds"]) for row in result["rows"]]
    lines = done.stdout.split("per 100K: time")[1].splitlines()[1 : 1 + len(times)]
    assert all(time in line for time, line in zip(times, lines, strict=True))
    assert (out / "results.jsonl").read_text().count("\n") >= 16
    again = invoke(*line, "--display", "json")
    assert json.loads(again.stdout)["verdict"]


def served(server: Script, out: Path, *more: str | Path) -> tuple[str | Path, ...]:
    line = ("quick", "--model", "openai:x", "--base-url", server.url, "--out", out)
    return (*line, "--tokenizer", "bytes", "--window", "4096", *more)


def test_with_a_server_lengths_go_by_the_window(
    invoke: Callable[..., Any], tmp_path: Path, server: Script
) -> None:
    server.default = say("17")
    done = invoke(*served(server, tmp_path, "--minutes", "0.1"))
    assert done.exit_code == 0, done.stderr
    assert "documents of 2K and 8K tokens; window 4,096" in done.stderr
    assert "verdict: none: no system got any answer right with this model at 8K" in done.stdout
    result = json.loads((tmp_path / "quick.json").read_text())
    assert {row["length"] for row in result["rows"]} == {2048, 8192}
    assert {row["tasks"]["squad"]["n"] for row in result["rows"]} == {
        row["score"]["n"] // 2 for row in result["rows"]
    }
    assert server.url not in json.dumps(result), "it can be shared"
    assert result["made"]["server"] == "plain"


def test_failures_are_shown_and_end_the_rounds(
    invoke: Callable[..., Any], tmp_path: Path, server: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memagent_bench.cli.quick.MOST_ROUNDS", 2)
    refusal = send(400, {"error": {"message": "boom"}})
    server.default = say("17")
    server.replies = [refusal] * 2
    line = served(server, tmp_path, "--concurrency", "1", "--minutes", "1")
    shown = invoke(*line, "--lengths", "2k")
    assert shown.exit_code == 6
    head, *rows = shown.stdout.partition("system  ")[2].splitlines()
    assert "right (95%) no answer needles" in " ".join(head.split())
    gaps = [row.split(")")[1].split()[:3] for row in rows[:4]]
    assert gaps == [["1", "of", "4"], ["1", "of", "4"], ["0", "of", "4"], ["0", "of", "4"]]
    assert "with up to 1 sample at once" in shown.stdout
    again = invoke(*line, "--concurrency", "64", "--lengths", "3k")
    assert "with up to 4 samples at once" in again.stdout, "lengths of earlier calls aren't counted"
    server.default = refusal
    dead = invoke(*line, "--lengths", "4k")
    assert dead.exit_code == 4
    assert "stopped: the model failed on 5 samples in a row" in dead.stderr
    every = (tmp_path / "results.jsonl").read_text()
    assert every.count('"length":4096') == 5


def test_a_round_that_takes_too_long_is_foreseen_ended_and_resumed(
    invoke: Callable[..., Any], tmp_path: Path, server: Script
) -> None:
    server.default = slow(0.4)
    line = served(server, tmp_path, "--concurrency", "2")
    done = invoke(*line, "--minutes", "0.1")
    assert done.exit_code in (0, 6), done.stderr
    assert "slow: one round " in done.stderr
    assert "stopped: the limit seconds=" in done.stderr
    assert "resume with: memagent-bench" in done.stderr
    kept = (tmp_path / "results.jsonl").read_text().count("\n")
    assert 0 < kept < 16
    server.default = say("17")
    again = invoke(*line, "--minutes", "0.1")
    assert again.exit_code == 0, again.stderr
    assert "2K" in again.stdout
    assert "8K" in again.stdout
