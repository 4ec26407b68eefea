"""Which of several servers gets a request: the least busy one, or the one that knows its beginning."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pydantic import JsonValue

from memagent.errors import ConnectionFailed, ModelError, RequestTimeout, ServerBusy, ServerFailed
from memagent.messages import Message
from memagent.models.server import Server

logger = logging.getLogger("memagent.router")

BLOCK = 256
"""Characters by which prompts are compared: about a prefix cache's block or two."""
KNOWN_BLOCKS = 65_536
"""Blocks that are remembered: 16 MB of prompts, at about 200 bytes each."""
STICKS = 0.5
"""The least part of a prompt that has to be known for it to follow its prefix."""
LEAD = 4
"""How many requests like itself a server may be behind the least busy one and still be followed."""
FIRST_REST = 1.0
LONGEST_REST = 30.0
"""Seconds before a server that failed is asked again whether it is there, doubled each time."""
ANSWERS_WITHIN = 2.0
"""Seconds that a request waits for a server that was away to say that it is back."""
AWAY = (ConnectionFailed, RequestTimeout, ServerFailed)


@dataclass(eq=False)
class Lane:
    """One server, and how it is doing."""

    server: Server
    outstanding: int = 0
    """Tokens of the requests that it is at: prompt plus the most that may be generated."""
    failures: int = 0
    """In a row."""
    rests_until: float = 0.0
    """On the monotonic clock."""
    on_trial: bool = False
    """It said that it is back, and has not answered a request since."""

    def rest(self, now: float, *, least: float = 0.0) -> None:
        """Counts a failure; the rest is twice as long for each in a row, and `least` seconds."""
        self.failures += 1
        doubled = FIRST_REST * 2.0 ** min(self.failures - 1, 16)
        self.rests_until = now + max(min(doubled, LONGEST_REST), least)


class Router:
    """Chooses among servers of the same model.

    A conversation goes to the server that has most of its prompt in its prefix cache, unless that one is
    clearly busier than another; anything else to the server with the least outstanding tokens. A server that
    failed is left out, asked for its model list from time to time, and taken back when it answers.
    """

    def __init__(self, servers: Sequence[Server]) -> None:
        self.lanes = [Lane(server) for server in servers]
        """At least one."""
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, Lane] = OrderedDict()

    @property
    def servers(self) -> list[Server]:
        """All of them."""
        return [lane.server for lane in self.lanes]

    @asynccontextmanager
    async def turn(self, messages: Sequence[Message], tokens: int) -> AsyncGenerator[Server]:
        """The server for one request of about `tokens`, which count as outstanding until the block is left."""
        blocks = list(_digest_blocks(messages)) if len(self.lanes) > 1 else []
        await self._revive()
        with self._lock:
            lane = self._choose(blocks, tokens)
            lane.outstanding += tokens
            for block in blocks:
                self._known[block] = lane
                self._known.move_to_end(block)
            while len(self._known) > KNOWN_BLOCKS:
                self._known.popitem(last=False)
        try:
            yield lane.server
            lane.failures, lane.on_trial = 0, False
        except ModelError as error:
            self._rest(lane, error)
            raise
        finally:
            with self._lock:
                lane.outstanding -= tokens

    def ask(self, path: str, body: Mapping[str, object]) -> Mapping[str, JsonValue]:
        """`Server.ask` of the first server that is there, else the last server's error. Blocks."""
        *first, last = sorted(self.lanes, key=lambda lane: lane.rests_until)
        for lane in first:
            try:
                return lane.server.ask(path, body)
            except (*AWAY, ServerBusy) as error:
                self._rest(lane, error)
        return last.server.ask(path, body)

    def _choose(self, blocks: list[bytes], tokens: int) -> Lane:
        now = time.monotonic()
        up = [lane for lane in self.lanes if lane.rests_until <= now]
        if not up:  # the one that has rested longest: its failure is the caller's to wait out
            return min(self.lanes, key=lambda lane: lane.rests_until)
        least = min(up, key=lambda lane: lane.outstanding)
        known = [lane for block in blocks if (lane := self._known.get(block)) is not None]
        if known and len(known) >= STICKS * len(blocks) and known[-1] in up:
            behind = known[-1].outstanding - least.outstanding
            return known[-1] if behind <= LEAD * tokens else least
        return least

    async def _revive(self) -> None:
        """Asks servers whose rest is over whether they are there."""
        if len(self.lanes) == 1:
            return
        with self._lock:
            now = time.monotonic()
            away = [lane for lane in self.lanes if lane.failures and not lane.on_trial]
            due = [lane for lane in away if lane.rests_until <= now]
            for lane in due:  # nobody else asks meanwhile
                lane.rests_until = now + ANSWERS_WITHIN
        if due:
            await asyncio.gather(*map(self._look_after, due))

    async def _look_after(self, lane: Lane) -> None:
        lane.server.forget()
        try:
            async with asyncio.timeout(ANSWERS_WITHIN):
                await lane.server.listing()
        except (*AWAY, ServerBusy, TimeoutError):
            with self._lock:
                lane.rest(time.monotonic())
            return
        except ModelError as error:  # who refuses to send a list is there
            logger.debug("%s", error)
        lane.on_trial, lane.rests_until = True, 0.0
        logger.warning("%s: is back", lane.server.endpoint)

    def _rest(self, lane: Lane, error: ModelError) -> None:
        """Leaves a server out for a while, if what failed is the server."""
        if not isinstance(error, (*AWAY, ServerBusy)):
            return
        if isinstance(error, AWAY):
            lane.server.forget()
        with self._lock:
            now = time.monotonic()
            if lane.rests_until > now:  # many requests fail when a server goes: it goes once
                return
            lane.on_trial = False
            lane.rest(now, least=min(error.retry_after or 0.0, LONGEST_REST))
        if len(self.lanes) > 1:
            rest = lane.rests_until - now
            logger.warning("%s: left out for %.0f s: %s", lane.server.endpoint, rest, error)


def _digest_blocks(messages: Sequence[Message]) -> Iterator[bytes]:
    """Digests of the prompt's beginnings, block by block."""
    text = "\x00".join(map(_write, messages))
    running = hashlib.blake2b(digest_size=16)
    for start in range(0, len(text) - BLOCK + 1, BLOCK):
        running.update(text[start : start + BLOCK].encode("utf-8", "surrogatepass"))
        yield running.digest()


def _write(message: Message) -> str:
    calls = (f"\x00{call.name}\x00{call.arguments}" for call in message.tool_calls)
    return f"{message.role}\x00{message.content}{''.join(calls)}"
