"""A page in a headless Chromium without network: what it says, asks for, and complains of."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REQUIRED = os.environ.get("MEMAGENT_REQUIRE_CHROMIUM") == "1"
"""Read when this is imported: tests hide the variables whose names begin so."""
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
CONSOLE = re.compile(r":CONSOLE[:(]")
"""How Chromium's log marks a message of a page: errors, refused loads, broken rules of its policy."""


@dataclass(frozen=True)
class Seen:
    """What became of a page."""

    dom: str
    console: list[str]
    asked: list[str]
    """Addresses that the page asked for, other than files and what stands in the page itself."""


def visit(page: Path | str, folder: Path, *flags: str, seconds: float = 60) -> Seen:
    """Loads a page.

    Args:
        page: its file, or its address on this machine.
        folder: empty, for the browser's own files.
        flags: further ones of Chromium.
        seconds: to wait for it.
    """
    assert CHROMIUM
    log = folder / "net.json"
    done = subprocess.run(
        [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
            *(
                "--disable-extensions",
                "--disable-sync",
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            ),
            *(
                "--enable-logging=stderr",
                f"--log-net-log={log}",
                f"--user-data-dir={folder / 'user'}",
            ),
            *(*flags, "--dump-dom", page.as_uri() if isinstance(page, Path) else page),
        ],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    console = [line for line in done.stderr.splitlines() if CONSOLE.search(line)]
    return Seen(done.stdout, console, _asked(json.loads(log.read_text())))


def _asked(log: dict[str, object]) -> list[str]:
    events = log["events"]
    assert isinstance(events, list)
    # The browser's own requests (its clock, its updates) have no page as their initiator.
    asked = [e["params"] for e in events if "initiator" in e.get("params", {})]
    urls = [p.get("url", "") for p in asked if p["initiator"] != "not an origin"]
    return sorted({url for url in urls if not url.startswith(("file:", "data:"))})


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a folder without a word."""

    def log_message(self, *_said: object) -> None:
        """Nobody reads it."""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serves a folder on this machine; gives the address."""
    handler = functools.partial(Quiet, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as http_server:
        thread = threading.Thread(target=http_server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{http_server.server_address[1]}"
        http_server.shutdown()
        thread.join(5)
