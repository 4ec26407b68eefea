import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SERVER = str(Path(__file__).with_name("mcp_server.py"))


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture(scope="session")
def mcp_url() -> Iterator[str]:
    """An MCP server over HTTP; one for all tests, since it takes seconds to start."""
    number = free_port()
    server = subprocess.Popen([sys.executable, SERVER, str(number)], stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", number), 1).close()
            break
        except OSError:
            time.sleep(0.05)
    yield f"http://127.0.0.1:{number}/mcp"
    server.kill()
    server.wait()
