"""The page as a reader's browser has it. Needs Chromium (Debian: apt install chromium)."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from tests.bench.report import browser
from tests.bench.report.made import run, write

from memagent_bench.report import make, make_report

pytestmark = pytest.mark.skipif(
    browser.CHROMIUM is None and not browser.REQUIRED, reason="Chromium is not installed"
)
MEASURE = """<script>parent.postMessage(document.documentElement.scrollWidth + " of " + innerWidth, "*")</script>"""
COLLECT = (
    "<body><script>onmessage = (event) => { document.body.append(event.data + '; ') }</script>"
)
FRAME = '<iframe src="framed.html" style="border: 0; width: {width}px; height: 800px"></iframe>'
MEASURED = re.compile(r"(\d+) of (\d+); ")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write(folder / "run", run(("memory", "direct", "published"), n=2, failing=0.1))
    with pytest.MonkeyPatch.context() as patch:  # the page needs no pictures beside it
        patch.setattr(make, "_pictures", lambda _view: iter(()))
        return make_report([folder / "run"], folder / "out").page


def test_chromium_is_here_where_it_has_to_be() -> None:
    assert browser.CHROMIUM, "MEMAGENT_REQUIRE_CHROMIUM=1, and there is no chromium on the PATH"


def test_the_page_is_whole_and_asks_for_nothing(page: Path, tmp_path: Path) -> None:
    seen = browser.visit(page, tmp_path)
    assert (seen.asked, seen.console) == ([], [])
    dom = html.unescape(seen.dom)
    for words in (
        *("RULER, 8K to 128K tokens", "Before you rely on these numbers", "niah_multikey_3"),
        *("published: RL-MemAgent-14B", "Primary comparisons", "RequestTimeout", "Comparability"),
    ):
        assert words in dom
    assert dom.count("<table") == page.read_text().count("<table")
    assert dom.count("<svg") == 5


def test_a_page_that_asks_for_something_is_caught(tmp_path: Path) -> None:
    """The test above can fail."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        '<img src="http://example.invalid/a.png"><script>console.error("broken")</script>'
    )
    seen = browser.visit(bad, tmp_path)
    assert any("example.invalid" in url for url in seen.asked)
    assert any("broken" in line for line in seen.console)


def test_the_page_runs_no_script(page: Path, tmp_path: Path) -> None:
    """Its policy would stop one that got past the escaping."""
    bad = tmp_path / "bad.html"
    script = "<script>document.body.append('it ran')</script>"
    bad.write_text(page.read_text().replace("</body>", f"{script}</body>"))
    seen = browser.visit(bad, tmp_path)
    assert seen.dom.count("it ran") == 1
    assert any("Content Security Policy" in line for line in seen.console)


def test_the_page_is_no_wider_than_the_screen(page: Path, tmp_path: Path) -> None:
    """In frames, because a window cannot be as narrow as a phone."""
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())
    (tmp_path / "framed.html").write_text(text.replace("</body>", f"{MEASURE}</body>"))
    frames = tmp_path / "frames.html"
    frames.write_text(COLLECT + "".join(FRAME.format(width=width) for width in (360, 768, 1280)))
    dom = browser.visit(frames, tmp_path, "--virtual-time-budget=5000").dom
    found = {int(inner): int(page) for page, inner in MEASURED.findall(dom)}
    assert set(found) == {360, 768, 1280}
    assert all(page <= inner for inner, page in found.items()), found
