"""The options `--html` and `--live` of `memagent show`."""

import sys
from collections.abc import Sequence
from pathlib import Path

from memagent.cli.exits import Outcome
from memagent.cli.setup import check_out
from memagent.documents.files import list_files
from memagent.errors import ConfigError
from memagent.replacing import replacing
from memagent.runstore import RunStore
from memagent_viewer.live import LiveServer
from memagent_viewer.page import make_page
from memagent_viewer.view import View


def show_page(
    store: RunStore,
    run_id: str,
    beside: str | None,
    html: Path | None,
    outcome: Outcome,
    *,
    live: bool,
) -> None:
    """Writes the page of one or two runs to a file, or serves it until Ctrl-C.

    Raises:
        RunNotFound: there is no run with one of the ids.
        ConfigError: the file can't be written, or is the run store, the run's document or a file of it, or not exactly
            one of `html` and `live` is given.
    """
    if live is (html is not None):
        problem = "give one of them" if live else "--beside needs one of them"
        raise ConfigError(f"--html FILE writes the page and --live serves it: {problem}")
    views = [View(store, name) for name in (run_id, beside) if name is not None]
    if html is None:
        _serve(views, outcome)
        return
    sources = [Path(path) for view in views if (path := view.record.source.get("path"))]
    # In a folder that was read, a page may be new or replace a page.
    if not html.exists() or _is_page(html):
        sources = [path for path in sources if path.is_file()]
    files = [file for path in sources for file in list_files(path)[1]]
    check_out(html, *files, store=store.path, option="--html")
    size = write_page(views, html)
    if outcome.for_people:
        outcome.paper.line(f"wrote {html} ({size / 1e6:.1f} MB)")
    else:
        outcome.tell({"html": str(html), "bytes": size})


def _is_page(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return b'<meta name="generator" content="memagent ' in opened.read(500)
    except OSError:
        return False


def write_page(views: Sequence[View], path: Path) -> int:
    """Writes the page; returns its size in bytes. An existing file is replaced.

    Raises:
        ConfigError: the file can't be written.
    """
    for view in views:
        view.update()
    page = make_page(views).encode()
    try:
        with replacing(path) as new:
            new.write_bytes(page)
    except OSError as error:
        problem = f"cannot write {str(path)!r} ({error.strerror}): name another --html"
        raise ConfigError(problem) from error
    return len(page)


def _serve(views: Sequence[View], outcome: Outcome) -> None:
    with LiveServer(views) as server:
        if outcome.for_people:
            outcome.paper.line(f"{server.address}  (Ctrl-C ends it)")
        else:
            outcome.tell({"url": server.address})
        sys.stdout.flush()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            outcome.paper.line("")
