import threading
import time
from collections.abc import Sequence

import pytest
import torch

from memagent.errors import DeviceFull, ModelError
from memagent.messages import FinishReason, Sampling
from memagent_engines.transformers.batching import Batcher, Request
from memagent_engines.transformers.sampler import Sampled, settle

WARM, COLD = Sampling(temperature=1.0, top_p=1.0), Sampling(temperature=0.0, top_p=1.0)


def request(length: int = 10, max_tokens: int = 5, sampling: Sampling = WARM) -> Request:
    return Request(tuple(range(length)), max_tokens, sampling, None)


def reply(one: Request) -> Sampled:
    """A reply that tells to whom it belongs."""
    return Sampled((len(one.prompt_ids),), (-1.0,), FinishReason.STOP)


class Engine:
    """Serves batches; the first one waits until it may begin, so that the others gather behind it."""

    def __init__(self, most: int = 100) -> None:
        self.most = most
        self.batches: list[list[int]] = []
        self.began, self.go = threading.Event(), threading.Event()

    def __call__(self, batch: Sequence[Request]) -> list[Sampled | Exception]:
        self.began.set()
        self.go.wait(10)
        self.batches.append([len(one.prompt_ids) for one in batch])
        if len(batch) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB")
        return [reply(one) for one in batch]


def batcher(engine: Engine, *, max_batch: int = 8, max_tokens: int | None = None) -> Batcher:
    return Batcher(engine, max_batch=max_batch, max_tokens=max_tokens)


def served(engine: Engine, requests: list[Request], **limits: int) -> list[Sampled]:
    """Their replies; all but the first were waiting when the engine came back to them."""
    working = batcher(engine, **limits)
    working.put(requests[0])
    assert engine.began.wait(10)
    for one in requests[1:]:
        working.put(one)
    engine.go.set()
    try:
        return [one.reply.result(timeout=10) for one in requests]
    finally:
        working.close()


def test_a_request_fails_at_once_where_the_thread_is_not() -> None:
    """As in a process that was forked later."""
    working = batcher(Engine())
    working._queue.put(None)
    working._thread.join(10)
    late = request()
    working.put(late)
    with pytest.raises(ModelError, match="forked"):
        late.reply.result(timeout=10)
    working.close()


def test_requests_that_wait_are_served_together_and_each_gets_its_reply() -> None:
    engine = Engine()
    requests = [request(length) for length in (1, 20, 21, 22)]
    assert served(engine, requests) == [reply(one) for one in requests]
    assert engine.batches == [[1], [20, 21, 22]]


def test_a_batch_has_no_more_rows_than_it_may() -> None:
    engine = Engine()
    served(engine, [request(1), *(request(9) for _ in range(10))], max_batch=4)
    assert [len(batch) for batch in engine.batches] == [1, 4, 4, 2]


def test_a_batch_has_no_more_tokens_than_it_may_and_the_longest_waits_no_longer() -> None:
    engine = Engine()
    lengths = [30, 5, 6, 31, 7]
    served(engine, [request(1), *map(request, lengths)], max_tokens=80)
    # Of 35, 36 with their replies two fit, of 10 to 12 six; the oldest is always served first.
    assert engine.batches == [[1], [30, 31], [5, 6, 7]]


def test_a_batch_is_as_wide_as_its_longest_prompt_and_its_longest_output() -> None:
    engine = Engine()
    # Each alone comes to 40 ids; side by side both rows are 70 wide.
    served(engine, [request(1), request(35, 5), request(5, 35)], max_tokens=80)
    assert engine.batches == [[1], [35], [5]]


def test_a_request_over_the_limit_is_served_alone() -> None:
    engine = Engine()
    served(engine, [request(1), request(200), request(2)], max_tokens=80)
    assert engine.batches == [[1], [200], [2]]


def test_each_batch_has_one_sampling() -> None:
    engine = Engine()
    others = [request(10, sampling=sampling) for sampling in (WARM, COLD, WARM, COLD)]
    served(engine, [request(1), *others])
    assert [len(batch) for batch in engine.batches] == [1, 2, 2]


def test_a_batch_that_does_not_fit_is_halved_and_stays_smaller() -> None:
    engine = Engine(most=3)
    requests = [request(1), *(request(10 + n) for n in range(16))]
    assert served(engine, requests, max_batch=8) == [reply(one) for one in requests]
    assert [len(batch) for batch in engine.batches] == [1, 8, 4, 2, 2, 4, 2, 2, 2, 2, 2, 2]


def test_a_request_that_does_not_fit_alone_is_an_error_and_the_others_go_on() -> None:
    engine = Engine(most=0)
    working = batcher(engine)
    one = request(700)
    working.put(one)
    engine.go.set()
    with pytest.raises(DeviceFull, match="700 prompt tokens"):
        one.reply.result(timeout=10)
    engine.most = 9
    other = request(3)
    working.put(other)
    assert other.reply.result(timeout=10) == reply(other)
    working.close()


def test_an_error_of_the_engine_fails_its_batch_alone() -> None:
    calls: list[int] = []

    def serve(batch: Sequence[Request]) -> list[Sampled | Exception]:
        calls.append(len(batch))
        if len(calls) == 1:
            raise IndexError("index out of range in self")
        return [ModelError("broken") if len(one.prompt_ids) == 2 else reply(one) for one in batch]

    working = Batcher(serve, max_batch=4, max_tokens=None)
    first = request()
    working.put(first)
    with pytest.raises(ModelError, match="index out of range"):
        first.reply.result(timeout=10)
    good, bad = request(1), request(2)
    working.put(good)
    working.put(bad)
    assert good.reply.result(timeout=10) == reply(good)
    with pytest.raises(ModelError, match="broken"):
        bad.reply.result(timeout=10)
    working.close()


def test_cancelled_requests_are_left_out() -> None:
    engine = Engine()
    working = batcher(engine)
    requests = [request(n) for n in (1, 2, 3)]
    working.put(requests[0])
    assert engine.began.wait(10)
    for one in requests[1:]:
        working.put(one)
    assert requests[1].reply.cancel()
    engine.go.set()
    requests[2].reply.result(timeout=10)
    working.close()
    assert engine.batches == [[1], [3]]


def test_closing_fails_what_waits_and_what_is_under_way() -> None:
    began = threading.Event()

    def serve(batch: Sequence[Request]) -> list[Sampled | Exception]:
        began.set()
        while not batch[0].reply.done():
            time.sleep(0.001)
        return [reply(one) for one in batch]

    working = Batcher(serve, max_batch=1, max_tokens=None)
    requests = [request() for _ in range(5)]  # more than the batch and the next one
    for one in requests:
        working.put(one)
    assert began.wait(10)
    working.close()
    late = request()
    working.put(late)
    for one in (*requests, late):
        with pytest.raises(ModelError, match="generating"):
            one.reply.result(timeout=1)


def test_an_answered_request_is_not_answered_again() -> None:
    one = request()
    settle(one.reply, reply(one))
    settle(one.reply, ModelError("late"))
    assert one.reply.result() == reply(one)
