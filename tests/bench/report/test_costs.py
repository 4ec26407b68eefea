"""Calls, tokens and seconds of cells."""

from __future__ import annotations

from typing import Any

import pytest
from tests.bench.report.made import K, record

from memagent.messages import Usage
from memagent_bench.record import Record
from memagent_bench.report.cells import Suite, sort_records
from memagent_bench.report.costs import costs, growth


def suite(*records: Record) -> Suite:
    (one,) = sort_records({"run": list(records)})
    return one


def used(calls: int, **changed: Any) -> Usage:
    return Usage(calls=calls, prompt_tokens=100 * calls, completion_tokens=10 * calls, **changed)


def test_cost_of_answered_samples() -> None:
    (one,) = costs(
        suite(
            record(usage=used(2), seconds=1.0, predicted_calls=2, predicted_tokens=300),
            record(
                index=1,
                usage=used(4, retries=3),
                seconds=3.0,
                predicted_calls=2,
                predicted_tokens=500,
            ),
            record(index=2, score=None, usage=used(99, retries=1), seconds=99.0),
        )
    )
    assert (one.answered, one.calls.mean, one.tokens.mean, one.completion.mean) == (2, 3, 330, 30)
    assert (one.predicted_calls, one.predicted_tokens, one.retries) == (2, 400, 4)
    assert one.seconds is not None
    assert one.seconds.mean == 2.0
    assert one.seconds.low < 2.0 < one.seconds.high


def test_tasks_weigh_the_same() -> None:
    (one,) = costs(
        suite(
            record("vt", usage=used(1)), *(record("cwe", index=i, usage=used(3)) for i in range(9))
        )
    )
    assert one.calls.mean == 2.0


def test_interval_of_a_mean() -> None:
    (one,) = costs(suite(*(record(index=i, seconds=1.0 + i % 3) for i in range(60))))
    assert one.seconds is not None
    assert one.seconds.mean == pytest.approx(2.0)
    assert 1.7 < one.seconds.low < 1.85
    assert 2.15 < one.seconds.high < 2.3
    assert one.calls.low == one.calls.mean == one.calls.high


def test_resumed_samples_have_no_time() -> None:
    (one,) = costs(suite(record(seconds=1.0), record(index=1, seconds=50.0, resumed=True)))
    assert one.seconds is not None
    assert one.seconds.mean == 1.0
    (none,) = costs(suite(record(resumed=True)))
    assert none.seconds is None
    assert growth(suite(record(resumed=True)))[0].seconds is None


def test_nothing_answered_costs_nothing_to_tell() -> None:
    failed = suite(record(score=None), record(index=1, score=None))
    assert costs(failed) == []
    assert growth(failed) == []


def test_a_system_that_predicts_nothing() -> None:
    one = suite(record(predicted_calls=None, predicted_tokens=None))
    assert costs(one)[0].predicted_calls is None
    assert growth(one)[0].calls is None


def test_a_system_without_calls() -> None:
    one = suite(record(usage=Usage(), predicted_calls=0, predicted_tokens=0))
    assert costs(one)[0].calls.mean == 0
    assert growth(one)[0].calls is None


def test_growth_with_length() -> None:
    records = [
        record(
            length=n * K, tokens=n * K, usage=used(2 * n), predicted_calls=n, seconds=1 + 0.5 * n
        )
        for n in (8, 16, 64)
    ]
    (one,) = growth(suite(*records))
    assert one.calls is not None
    assert (one.calls.ratio, one.calls.r2) == (pytest.approx(2.0), pytest.approx(1.0))
    assert one.seconds is not None
    assert (one.seconds.slope * K, one.seconds.intercept) == (
        pytest.approx(0.5),
        pytest.approx(1.0),
    )
