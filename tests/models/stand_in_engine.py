"""An engine in this process that draws nothing, and that dies when a test says so."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import ClassVar

import pytest

from memagent.errors import EngineFailed
from memagent.messages import ChatRequest, FinishReason
from memagent_engines.in_process import EngineModel
from memagent_engines.sharing import DrawOptions, EngineReply

ASK = ChatRequest(messages=(), max_tokens=5)


def no_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has engines start without a tokenizer, and so without torch."""
    loading = SimpleNamespace(load_counter=lambda _: object())
    monkeypatch.setitem(sys.modules, "memagent_engines.transformers.loading", loading)


class StandIn:
    """Draws its own number, or with `answers=False` nothing until it dies."""

    window = 100
    events: ClassVar[list[str]]
    """Starts and stops of all engines, in order."""

    def __init__(self, number: int) -> None:
        self.number, self.answers, self.dead = number, True, False
        self.at_stop: Callable[[], None] = lambda: None
        self.loaded: list[str] = []
        self.loop = asyncio.get_running_loop()
        self._waiting: list[asyncio.Future[None]] = []
        self._more = asyncio.Condition()
        self.events.append(f"start {number}")

    async def draw(self, _: tuple[int, ...], __: ChatRequest, ___: DrawOptions) -> EngineReply:
        self._check()
        if not self.answers:
            self._waiting.append(self.loop.create_future())
            async with self._more:
                self._more.notify_all()
            await self._waiting[-1]
        return EngineReply(f"drawn by {self.number}", (self.number,), (0.0,), FinishReason.STOP, 0)

    async def load(self, folder: str) -> None:
        self._check()
        self.loaded.append(folder)

    async def asked(self, calls: int) -> None:
        """Waits until so many calls wait for a reply."""
        async with self._more:
            await self._more.wait_for(lambda: len(self._waiting) >= calls)

    def stop(self) -> None:
        self.dead = True
        self.events.append(f"stop {self.number}")
        self.at_stop()

    def die(self) -> None:
        """Fails its calls; on its loop."""
        self.dead = True
        for reply in self._waiting:
            reply.set_exception(EngineFailed("the engine died"))

    def _check(self) -> None:
        if self.dead:
            raise EngineFailed("a dead engine was asked")


class StandInModel(EngineModel):
    scheme = "stand-in"
    started: ClassVar[list[StandIn]]

    @classmethod
    def watch(cls, monkeypatch: pytest.MonkeyPatch) -> list[StandIn]:
        """The engines that start from now on."""
        monkeypatch.setattr(cls, "started", list[StandIn](), raising=False)
        monkeypatch.setattr(StandIn, "events", list[str](), raising=False)
        return cls.started

    async def _start(self) -> StandIn:
        self.started.append(StandIn(len(self.started) + 1))
        return self.started[-1]
