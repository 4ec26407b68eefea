"""`pytest --engine NAME`, and the real servers that tests get with it. A plugin of all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.engines import venvs
from tests.engines.servers import TAIL, EngineServer

# The window that the contract and the engines' own tests reckon with.
WINDOW = 2048
API_KEY = "a-key-for-tests-only"
StartServer = Callable[..., EngineServer]
SERVERS = pytest.StashKey[list[EngineServer]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--engine`."""
    parser.addoption(
        "--engine",
        choices=(*venvs.ENGINES, *venvs.LAPTOPS),
        help="run the tests that need a real server against this engine's (see `make engines`)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Fails, and never skips, where the engine that was asked for is not installed."""
    config.stash[SERVERS] = []
    name = config.getoption("--engine")
    if name and (lacking := venvs.missing(name)):
        raise pytest.UsageError(venvs.remedy(name, lacking))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Shows the end of each server's log with a test that failed."""
    report = yield
    if report.failed:
        for server in item.config.stash[SERVERS]:
            report.sections.append((f"log of {server!r}", server.tail(TAIL)))
    return report


@contextmanager
def starting(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartServer]:
    """What starts a server with the options of `EngineServer`; it is stopped when the block ends."""
    engine: str | None = request.config.getoption("--engine")
    if engine is None:
        raise pytest.UsageError("this test needs a real server: pytest --engine vllm, or sglang")
    logs = tmp_path_factory.mktemp("engines")
    every, mine = request.config.stash[SERVERS], list[EngineServer]()

    def start(**options: object) -> EngineServer:
        server = EngineServer(engine, logs / f"{engine}-{len(every)}.log", **options)  # pyright: ignore[reportArgumentType]
        every.append(server)
        mine.append(server)
        return server.start()

    yield start
    for server in mine:
        server.stop()


@pytest.fixture(scope="module")
def start_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartServer]:
    """Starts servers that are stopped behind a module's last test: idle ones take a tenth of a core each."""
    with starting(request, tmp_path_factory) as start:
        yield start


@pytest.fixture(scope="session")
def first_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EngineServer]:
    """The server of `engine`."""
    with starting(request, tmp_path_factory) as start:
        yield start(window=WINDOW, api_key=API_KEY)


@pytest.fixture(scope="session")
def second_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EngineServer]:
    """The server of `second_engine`."""
    with starting(request, tmp_path_factory) as start:
        yield start(window=WINDOW, api_key=API_KEY)


@pytest.fixture
def engine(first_server: EngineServer) -> EngineServer:
    """A server that runs, of the engine that was asked for. A test may kill and restart it."""
    return as_new(first_server)


@pytest.fixture
def second_engine(second_server: EngineServer) -> EngineServer:
    """Another server of the same engine."""
    return as_new(second_server)


def as_new(server: EngineServer) -> EngineServer:
    """Returns the server as it was started first, whatever the test before did to it."""
    if not server.alive or server.window != WINDOW:
        server.stop()
        server.start(window=WINDOW)
    return server
