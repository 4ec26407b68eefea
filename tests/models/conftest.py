"""Scripted chat servers, and closed ports."""

import socket
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest
from blockbuster import BlockBuster
from tests.models.chat_server import Script, running
from tests.models.routes import URLS, Clock, MakeRouter

from memagent.models import router as routing
from memagent.models.dialects import DIALECTS
from memagent.models.openai_client import Clients
from memagent.models.router import Router
from memagent.models.server import Server


@pytest.fixture
def server() -> Iterator[Script]:
    """A running server; its script says how it behaves."""
    with running() as script:
        yield script


@pytest.fixture
def second() -> Iterator[Script]:
    """Another one."""
    with running() as script:
        yield script


@pytest.fixture
def nobody() -> str:
    """The URL of a port that nothing listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/v1"


@pytest.fixture(autouse=True, scope="session")
def settings_may_be_read(blockbuster: BlockBuster) -> None:
    """Opening a model reads `.env`, a few lines, once."""
    for function in blockbuster.functions.values():
        function.can_block_in("memagent/models/spec.py", {"look"})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The router's clock."""
    clock = Clock()
    monkeypatch.setattr(routing, "time", clock)
    return clock


@pytest.fixture
async def make() -> AsyncIterator[MakeRouter]:
    """Makes routers to servers, closed at the end."""
    made: list[Server] = []

    def make(urls: Sequence[str] = URLS) -> Router:
        every = [
            Server("tiny", Clients("tiny", url, None, {}, 60), DIALECTS["plain"]) for url in urls
        ]
        made.extend(every)
        return Router(every)

    yield make
    for server in made:
        await server.aclose()
