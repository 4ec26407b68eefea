"""A scripted chat server, and closed ports."""

import socket
import threading
from collections.abc import Iterator

import pytest
from blockbuster import BlockBuster
from tests.models.chat_server import Handler, Script, Server


@pytest.fixture
def server() -> Iterator[Script]:
    """A running server; its script says how it behaves."""
    with Server(("127.0.0.1", 0), Handler) as http:
        http.script = Script(url=f"http://127.0.0.1:{http.server_address[1]}/v1")
        thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield http.script
        http.shutdown()
        thread.join(5)


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
