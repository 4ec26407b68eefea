"""Gathers requests into batches, and serves them in a thread."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field

import torch

from memagent.errors import DeviceFull, ModelError
from memagent.messages import Sampling
from memagent.models.transformers.device import is_out_of_memory
from memagent.models.transformers.meter import Meter
from memagent.models.transformers.sampler import Sampled

LINGER = (0.002, 0.05)
"""Least and most seconds without a new request after which a batch is begun; between them it is half of what the last
batch took, as long as fewer wait than were there when that one was begun. Agents whose calls ended together come back
one after the other, and twice the rows take far less than twice the time. Measured with 64 memory agents at a model of
100,000 weights: 26 to 33 batches instead of 54 to 82, and 10 to 25% less time a call than with 0.002 alone."""


@dataclass(eq=False)
class Request:
    """One prompt that waits for its reply."""

    prompt_ids: Sequence[int]
    max_tokens: int
    sampling: Sampling
    seed: int | None
    reply: Future[Sampled] = field(default_factory=Future[Sampled])

    @property
    def length(self) -> int:
        """Most ids that it may come to."""
        return len(self.prompt_ids) + self.max_tokens


Serve = Callable[[Sequence[Request], Callable[[], bool]], "Sequence[Sampled | Exception]"]
"""Generates one batch, and gives a reply to each request in order. What it is given beside the batch tells whether to
end at once: the replies are thrown away then."""


class Batcher:
    """Serves requests in batches, from one thread, until it is closed.

    A batch holds requests of one `Sampling`: the one that has waited longest, and those nearest to it in length, so
    that little is padding and none waits for ever. A batch that does not fit the device's memory is halved, and no
    larger one is tried again. `max_batch` and `max_tokens` are those of `PaddedSampler`; the meter computes while a
    batch is served.
    """

    def __init__(
        self, serve: Serve, *, max_batch: int, max_tokens: int | None, meter: Meter
    ) -> None:
        self._serve, self._meter = serve, meter
        self._most, self._max_tokens = max_batch, max_tokens
        self._queue: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._waiting: list[Request] = []
        self._linger = LINGER[0]
        self._expected = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memagent-padded", daemon=True)
        self._thread.start()

    def put(self, request: Request) -> None:
        """Queues a request; its future gets the reply."""
        self._queue.put(request)
        if self._closing.is_set():  # perhaps too late for the thread to see it
            settle(request.reply, closed())

    def close(self, *, wait: bool = True) -> None:
        """Stops when the batch under way lets go, which it waits for unless told otherwise; what waits fails."""
        self._closing.set()
        self._queue.put(None)
        if wait:
            self._thread.join()

    def _run(self) -> None:
        while self._gather():
            parts = [self._take()]
            while parts:
                part = parts.pop(0)
                if part and not self._answered(part):
                    self._most = len(part) // 2
                    parts[:0] = [part[: self._most], part[self._most :]]
        while not self._queue.empty():  # more than a batch may have come
            late = self._queue.get()
            self._waiting += [] if late is None else [late]
        for request in self._waiting:
            settle(request.reply, closed())

    def _gather(self) -> bool:
        """Waits until there is a batch to serve; False when the batcher was closed."""
        while len(self._waiting) < self._most:
            try:
                request = self._queue.get(timeout=self._patience())
            except queue.Empty:
                break
            if request is None:
                return False
            self._waiting.append(request)
        return not self._closing.is_set()

    def _patience(self) -> float | None:
        """Seconds to wait for one more request; None where there is none yet."""
        if not self._waiting:
            return None
        return self._linger if len(self._waiting) < self._expected else LINGER[0]

    def _take(self) -> list[Request]:
        """The next batch, taken out of what waits; empty where nobody waits for a reply any more."""
        waiting = [request for request in self._waiting if not request.reply.cancelled()]
        batch = list[Request]()
        self._expected = len(waiting)
        if waiting:
            first, prompt, output = waiting[0], 0, 0
            alike = (request for request in waiting if request.sampling == first.sampling)
            for request in sorted(alike, key=lambda one: abs(one.length - first.length)):
                prompt = max(prompt, len(request.prompt_ids))
                output = max(output, request.max_tokens)
                if batch and not self._fits(len(batch) + 1, prompt + output):
                    break
                batch.append(request)
        self._waiting = [request for request in waiting if request not in batch]
        return batch

    def _fits(self, rows: int, length: int) -> bool:
        return rows <= self._most and (
            self._max_tokens is None or rows * length <= self._max_tokens
        )

    def _answered(self, batch: list[Request]) -> bool:
        """Serves a batch; False where it did not fit into memory, and a smaller one may."""
        begun = time.perf_counter()
        try:
            with self._meter.computing():
                replies = self._serve(batch, self._closing.is_set)
            least, most = LINGER
            self._linger = min(max((time.perf_counter() - begun) / 2, least), most)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is these requests' and the thread goes on
            if not is_out_of_memory(error):
                replies = [error if isinstance(error, ModelError) else _failed(error)] * len(batch)
            elif len(batch) == 1:
                replies = [_too_long(batch[0], error)]
            else:
                replies = None
        if replies is None:  # here, where the error no longer holds the batch's tensors
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            return False
        for request, reply in zip(batch, replies, strict=True):
            settle(request.reply, closed() if self._closing.is_set() else reply)
        return True


def settle(waiting: Future[Sampled], reply: Sampled | Exception) -> None:
    """Hands a reply over, if it is still waited for."""
    with suppress(InvalidStateError):  # cancelled meanwhile, or answered
        if isinstance(reply, Exception):
            waiting.set_exception(reply)
        else:
            waiting.set_result(reply)


def closed() -> ModelError:
    """What requests get that come when nothing is generated."""
    return ModelError(
        "the sampler generates nothing now: ask it inside `with sampler.generating():`", attempts=0
    )


def _failed(error: Exception) -> ModelError:
    failure = ModelError(f"the model failed while it generated: {error!r}")
    failure.__cause__ = error
    return failure


def _too_long(request: Request, error: Exception) -> DeviceFull:
    failure = DeviceFull(
        f"one conversation of {len(request.prompt_ids)} prompt tokens and at most {request.max_tokens} sampled ones "
        f"does not fit the device by itself ({error}): use a smaller window or model"
    )
    failure.__cause__ = error
    return failure
