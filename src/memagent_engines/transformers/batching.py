"""Collects requests into batches and serves them in a thread."""

import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import torch

from memagent.errors import DeviceFull, ModelError
from memagent.messages import Sampling
from memagent_engines.transformers.loading import is_out_of_memory
from memagent_engines.transformers.sampler import Sampled, make_closed_error, settle

LINGER = (0.002, 0.05)
"""Minimum and maximum seconds without a new request before a batch starts; within them, half the time of the last
batch, as long as fewer requests wait than when that one started. Agents whose calls ended together come back
one after the other, and twice the rows take far less than twice the time. Measured with 64 memory agents on a model
of 100,000 weights: 26 to 33 batches instead of 54 to 82, and 10 to 25% less time per call than with 0.002 alone."""


@dataclass(eq=False)
class Request:
    """One prompt waiting for its reply."""

    prompt_ids: Sequence[int]
    max_tokens: int
    sampling: Sampling
    seed: int | None
    stopped: Callable[[Sequence[int]], bool] = lambda _: False
    """Tells whether a reply with these ids is complete."""
    reply: Future[Sampled] = field(default_factory=Future[Sampled])
    """Future of the reply; done once nobody waits for it."""

    def wants_more(self, ids: Sequence[int], ends: Sequence[int]) -> bool:
        """Returns whether the reply continues after these ids (at least one)."""
        return not (
            ids[-1] in ends or len(ids) >= self.max_tokens or self.reply.done() or self.stopped(ids)
        )


Serve = Callable[[Sequence[Request]], "Sequence[Sampled | Exception]"]
"""Generates one batch and returns one reply per request, in order; those of requests already done are ignored."""


class Batcher:
    """Serves requests in batches, from one thread, until it is closed.

    A batch holds requests with the same `Sampling`: the one that has waited longest and those closest to it in
    length, so there is little padding and none waits forever. A batch that does not fit the device's memory is halved,
    and no larger one is tried again. `max_batch` and `max_tokens` are those of `PaddedSampler`.
    """

    def __init__(self, serve: Serve, *, max_batch: int, max_tokens: int | None) -> None:
        self._serve, self._most = serve, max_batch
        self._max_tokens = math.inf if max_tokens is None else max_tokens
        self._queue: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._waiting: list[Request] = []
        self._serving: list[Request] = []
        self._linger, self._expected = LINGER[0], 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memagent-padded", daemon=True)
        self._thread.start()

    def put(self, request: Request) -> None:
        """Queues a request; its future gets the reply."""
        self._queue.put(request)
        # The thread may no longer see it; and threads don't survive a fork.
        if self._closing.is_set() or not self._thread.is_alive():
            settle(request.reply, make_closed_error())

    def close(self, *, wait: bool = True) -> None:
        """Fails all pending requests and ends the thread; waits for it unless told otherwise."""
        self._closing.set()
        self._queue.put(None)
        for request in self._serving:
            settle(request.reply, make_closed_error())
        if wait:
            self._thread.join()

    def _run(self) -> None:
        while self._gather():
            self._serving = self._take()
            if not self._closing.is_set():  # or it was closed too early to see them
                self._answer(self._serving)
        late = [self._queue.get() for _ in range(self._queue.qsize())]  # perhaps more than a batch
        for request in (*self._serving, *self._waiting, *filter(None, late)):
            settle(request.reply, make_closed_error())

    def _gather(self) -> bool:
        """Waits until there is a batch to serve; returns False if the batcher was closed."""
        while len(self._waiting) < self._most:
            patience = self._linger if len(self._waiting) < self._expected else LINGER[0]
            try:
                request = self._queue.get(timeout=patience if self._waiting else None)
            except queue.Empty:
                break
            if request is None:
                return False
            self._waiting.append(request)
        return not self._closing.is_set()

    def _take(self) -> list[Request]:
        """Removes the next batch from the queue and returns it; empty if nobody waits for a reply any more."""
        waiting = [request for request in self._waiting if not request.reply.done()]
        batch = list[Request]()
        self._expected = len(waiting)
        if waiting:
            first, prompt, output = waiting[0], 0, 0
            length = len(first.prompt_ids) + first.max_tokens
            candidates = [request for request in waiting if request.sampling == first.sampling]
            candidates.sort(key=lambda r: abs(len(r.prompt_ids) + r.max_tokens - length))
            for request in candidates[: self._most]:
                prompt = max(prompt, len(request.prompt_ids))
                output = max(output, request.max_tokens)
                if batch and (len(batch) + 1) * (prompt + output) > self._max_tokens:
                    break
                batch.append(request)
        self._waiting = [request for request in waiting if request not in batch]
        return batch

    def _answer(self, batch: Sequence[Request]) -> None:
        """Serves a batch, in halves if it doesn't fit in memory."""
        batch = [request for request in batch if not request.reply.done()]
        if not batch:
            return
        start = time.perf_counter()
        replies: Sequence[Sampled | Exception] | None = None
        try:
            replies = self._serve(batch)
        except Exception as error:  # noqa: BLE001 - any error is these requests' own, and the thread continues
            if len(batch) == 1 or not is_out_of_memory(error):
                replies = [_failure(batch[0], error)] * len(batch)
        if replies is None:  # here, where the error no longer holds the batch's tensors
            torch.cuda.empty_cache()
            self._most = half = len(batch) // 2
            self._answer(batch[:half])
            self._answer(batch[half:])
            return
        self._linger = min(max((time.perf_counter() - start) / 2, LINGER[0]), LINGER[1])
        for request, reply in zip(batch, replies, strict=True):
            settle(request.reply, reply)


def _failure(request: Request, error: Exception) -> ModelError:
    if isinstance(error, ModelError):
        return error
    if is_out_of_memory(error):
        failure = DeviceFull(
            f"a single conversation of {len(request.prompt_ids)} prompt tokens and up to {request.max_tokens} sampled "
            f"ones does not fit the device ({error}): use a smaller window or model"
        )
    else:
        failure = ModelError(f"the model failed while generating: {error!r}")
    failure.__cause__ = error
    return failure
