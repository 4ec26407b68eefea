"""Picks a server for a request: the least busy one, or the one that has its prefix cached."""

import asyncio
import hashlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress

from pydantic import JsonValue

from memagent.errors import ConnectionFailed, ModelError, RequestTimeout, ServerBusy, ServerFailed
from memagent.messages import Message
from memagent.models.server import Server

logger = logging.getLogger("memagent.router")

BLOCK = 256
"""Block size in characters for comparing prompts: about one or two blocks of a prefix cache."""
KNOWN_BLOCKS = 65_536
"""Blocks to remember: 16 MB of prompts, at about 200 bytes each."""
STICKS = 0.5
"""Minimum share of a prompt in a server's cache for the request to be sent there."""
LEAD = 4
"""Maximum requests of the same size by which a server chosen for its prefix may be busier than the idlest."""
FIRST_REST = 1.0
LONGEST_REST = 30.0
"""First and longest pause, in seconds, before a failed server is checked again; it doubles each time."""
ANSWERS_WITHIN = 2.0
"""Seconds that a request waits for a recovering server to answer its check."""
AWAY = (ConnectionFailed, RequestTimeout, ServerFailed)


class Router:
    """Chooses among servers of the same model.

    A conversation goes to the server that has most of its prompt in its prefix cache, unless that server is
    clearly busier than another; anything else goes to the server with the fewest outstanding tokens. A server
    that failed is left out, asked for its model list from time to time, and used again once it answers.
    """

    def __init__(self, servers: Sequence[Server]) -> None:
        self.servers = list(servers)
        """All servers; at least one."""
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, Server] = OrderedDict()

    @asynccontextmanager
    async def turn(self, messages: Sequence[Message], tokens: int) -> AsyncGenerator[Server]:
        """Yields a server for a request of about `tokens` tokens, which count as outstanding until the block ends."""
        blocks = list(_digest_blocks(messages)) if len(self.servers) > 1 else []
        await self._revive()
        with self._lock:
            server = self._choose(blocks, tokens)
            server.outstanding += tokens
            for block in blocks:
                self._known[block] = server
                self._known.move_to_end(block)
            while len(self._known) > KNOWN_BLOCKS:
                self._known.popitem(last=False)
        try:
            with self._watch(server):
                yield server
            server.failures = 0
        finally:
            with self._lock:
                server.outstanding -= tokens

    def ask(self, path: str, body: Mapping[str, object]) -> Mapping[str, JsonValue]:
        """Calls `Server.ask` on the first server that answers, else raises the last server's error. Blocks."""
        *first, last = sorted(self.servers, key=lambda server: server.rests_until)
        for server in first:
            with suppress(ModelError), self._watch(server):
                return server.ask(path, body)
        with self._watch(last):
            return last.ask(path, body)

    @property
    def up(self) -> list[Server]:
        """Servers that aren't left out."""
        now = time.monotonic()
        return [server for server in self.servers if server.rests_until <= now]

    def _choose(self, blocks: list[bytes], tokens: int) -> Server:
        servers = self.up
        if not servers:  # the one whose pause ends first: the caller waits out its failure
            return min(self.servers, key=lambda server: server.rests_until)
        idlest_server = min(servers, key=lambda server: server.outstanding)
        holders = [server for block in blocks if (server := self._known.get(block)) is not None]
        if holders and len(holders) >= STICKS * len(blocks) and holders[-1] in servers:
            excess = holders[-1].outstanding - idlest_server.outstanding
            return holders[-1] if excess <= LEAD * tokens else idlest_server
        return idlest_server

    async def _revive(self) -> None:
        """Checks servers whose pause is over."""
        if len(self.servers) == 1:
            return
        with self._lock:
            now = time.monotonic()
            due = [s for s in self.servers if s.failures and 0 < s.rests_until <= now]
            for server in due:  # so that no other request checks it too
                server.rests_until = now + ANSWERS_WITHIN
        if due:
            await asyncio.gather(*map(self._look_after, due))

    async def _look_after(self, server: Server) -> None:
        server.forget()
        try:
            async with asyncio.timeout(ANSWERS_WITHIN):
                await server.listing()
        except (*AWAY, ServerBusy, TimeoutError):
            with self._lock:
                _rest(server, time.monotonic())
            return
        except ModelError as error:  # a server that refuses to send its list is up
            logger.debug("%s", error)
        server.rests_until = 0.0
        logger.warning("%s: is back", server.endpoint)

    @contextmanager
    def _watch(self, server: Server) -> Generator[None]:
        try:
            yield
        except ModelError as error:
            self._leave_out(server, error)
            raise

    def _leave_out(self, server: Server, error: ModelError) -> None:
        """Leaves a server out for a while, if the server was at fault."""
        if not (error.retryable or isinstance(error, AWAY)):
            return
        if isinstance(error, AWAY):
            server.forget()
        with self._lock:
            now = time.monotonic()
            if server.rests_until > now:  # many requests fail with a server: count that once
                return
            _rest(server, now, least=min(error.retry_after or 0.0, LONGEST_REST))
        if len(self.servers) > 1:
            rest = server.rests_until - now
            logger.warning("%s: left out for %.0f s: %s", server.endpoint, rest, error)


def _rest(server: Server, now: float, *, least: float = 0.0) -> None:
    """Counts a failure and starts a pause that doubles with each consecutive one, of at least `least` seconds."""
    server.failures += 1
    pause = FIRST_REST * 2.0 ** min(server.failures - 1, 16)
    server.rests_until = now + max(min(pause, LONGEST_REST), least)


def _digest_blocks(messages: Sequence[Message]) -> Iterator[bytes]:
    """Yields digests of the prompt's prefixes, block by block."""
    text = "\x00".join(map(_write, messages))
    running = hashlib.blake2b(digest_size=16)
    for start in range(0, len(text) - BLOCK + 1, BLOCK):
        running.update(text[start : start + BLOCK].encode("utf-8", "surrogatepass"))
        yield running.digest()


def _write(message: Message) -> str:
    calls = (f"\x00{call.name}\x00{call.arguments}" for call in message.tool_calls)
    return f"{message.role}\x00{message.content}{''.join(calls)}"
