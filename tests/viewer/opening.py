"""Measures how long the page of a run of 4 million tokens takes to open in Chromium, and how large it is.

python -m tests.viewer.opening [TIMES]
"""

from __future__ import annotations

import functools
import http.server
import re
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.bench.report import browser
from tests.viewer import made

from memagent import RunStore
from memagent_viewer.command import write_page
from memagent_viewer.view import View

HOST = """<!doctype html><meta charset="utf-8"><body><iframe src="page.html"></iframe><img src="hold"><script>
setInterval(() => {
    const ready = document.querySelector("iframe").contentDocument?.documentElement.dataset.ready
    if (ready) document.body.dataset.ready = ready
}, 50)
</script></body>"""
HOLD = 5
"""Seconds by which the host page's picture delays what Chromium waits for."""


class Holding(browser.Quiet):
    """Serves a folder, and lets one request wait."""

    def do_GET(self) -> None:  # noqa: N802 - the base class's name
        if self.path == "/hold":
            time.sleep(HOLD)
        super().do_GET()


def main(times: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = RunStore(folder / "runs.sqlite")
        run_id = made.huge(store)
        begun = time.perf_counter()
        size = write_page([View(store, run_id)], folder / "page.html")
        print(f"written in {time.perf_counter() - begun:.2f} s: {size / 1e6:.2f} MB, 840 chunks")
        store.close()
        (folder / "host.html").write_text(HOST, encoding="utf-8")
        opened: list[float] = []
        for number in range(times):
            user = folder / str(number)
            user.mkdir()
            handler = functools.partial(Holding, directory=folder)
            with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
                threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
                port = server.server_address[1]
                seen = browser.visit(f"http://127.0.0.1:{port}/host.html", user)
                server.shutdown()
            found = re.search(r'<body data-ready="(\d+)"', seen.dom)
            assert found, "the page didn't open in time"
            opened.append(int(found[1]) / 1000)
        middle, least, most = statistics.median(opened), min(opened), max(opened)
        print(f"opened in {middle:.2f} s (median of {times}; {least:.2f} to {most:.2f})")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
