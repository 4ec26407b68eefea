import asyncio

import pytest
from tests.models.transformers.policies import PLAIN, policy, tokenizer

from memagent_train.rollout.meter import Meter
from memagent_train.rollout.sampler import MeteredSampler


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_shares_and_means_are_over_time() -> None:
    clock = Clock()
    meter = Meter(clock)
    clock.now += 2  # nothing
    with meter.call():
        clock.now += 1  # one waits
        with meter.call(), meter.computing():
            clock.now += 4  # two wait
            with meter.computing():
                clock.now += 1  # the engine is busy once
        meter.count_call(30, 12)
        clock.now += 2
    meter.count_call(10, 8)
    reading = meter.read()
    assert reading.seconds == 10
    assert reading.idle_share == pytest.approx(0.5)
    assert reading.in_flight_mean == pytest.approx((1 + 2 * 5 + 2) / 10)
    assert reading.in_flight_max == 2
    assert (reading.calls, reading.prompt_tokens, reading.sampled_tokens) == (2, 40, 20)
    assert reading.tokens_per_second == pytest.approx(2.0)


def test_reading_starts_over_and_counts_what_is_under_way_in_both() -> None:
    clock = Clock()
    meter = Meter(clock)
    with meter.call(), meter.computing():
        clock.now += 1
        first = meter.read()
        clock.now += 3
    second = meter.read()
    assert (first.seconds, second.seconds) == (1, 3)
    assert (first.idle_share, second.idle_share) == (0, 0)
    assert (first.in_flight_max, second.in_flight_max) == (1, 1)
    assert meter.read().idle_share == 1.0, "no time has passed"


def test_a_call_that_fails_is_no_longer_in_flight() -> None:
    clock = Clock()
    meter = Meter(clock)
    with pytest.raises(KeyError), meter.call(), meter.computing():
        raise KeyError
    clock.now += 1
    reading = meter.read()
    assert (reading.in_flight_mean, reading.idle_share, reading.calls) == (0, 1, 0)
    assert set(reading.as_metrics()) >= {"idle_share", "tokens_per_second", "in_flight_max"}


def test_a_metered_sampler_is_busy_for_a_part_of_the_time() -> None:
    sampler = MeteredSampler(policy(), tokenizer())
    sampler.meter.read()
    with sampler.generating():
        asyncio.run(sampler.sample([9], max_tokens=10, sampling=PLAIN, seed=1))
    assert 0 < sampler.meter.read().idle_share < 1
