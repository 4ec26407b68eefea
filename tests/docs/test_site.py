"""The site as a reader's browser has it: every page, wide and light, and narrow and dark.

Needs Chromium (Debian: apt install chromium). `make docs` checks the links.
"""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.bench.report import browser

ROOT = Path(__file__).resolve().parents[2]
VIEWS = [(1400, "default"), (390, "slate")]
"""Widths in pixels, with the theme's names for light and dark: no theme changes a page's layout."""
HOST = """<!doctype html><meta charset="utf-8"><body><script>
function look(frame, width, theme) {{
    const seen = frame.contentDocument, root = seen.documentElement, problems = []
    if (!seen.querySelector("article h1")) problems.push("has no heading")
    if (seen.body.dataset.mdColorScheme !== theme) problems.push("is not in the theme " + theme)
    if (root.scrollWidth > root.clientWidth) problems.push("is " + root.scrollWidth + " wide")
    for (const image of seen.images)
        if (!image.complete || !image.naturalWidth) problems.push("lacks " + image.src)
    for (const part of seen.querySelectorAll("article :is(p, li, dt, dd, h1, h2, h3, h4, img)"))
        if (part.offsetParent && !part.closest("pre, .md-typeset__scrollwrap, .highlight"))
            if (part.getBoundingClientRect().right > root.clientWidth + 0.5)
                problems.push("cuts off " + part.outerHTML.slice(0, 80))
    return problems.join("; ")
}}
// A frame that is added while another one loads holds up this page's own load event: the browser waits for the last.
function visit([[page, width, theme], ...rest]) {{
    localStorage.setItem("/.__palette", JSON.stringify({{
        index: theme === "slate" ? 1 : 0, color: {{scheme: theme, primary: "custom", accent: "custom"}},
    }}))
    const frame = document.createElement("iframe")
    frame.style = "border: 0; width: " + width + "px; height: 900px"
    frame.onload = () => {{
        const line = document.createElement("pre")
        line.textContent = "page " + page + " at " + width + " in " + theme + ": " + look(frame, width, theme)
        document.body.append(line)
        if (rest.length) visit(rest)
        frame.remove()
    }}
    frame.src = page
    document.body.append(frame)
}}
visit({visits})
</script></body>"""
REPORT = re.compile(r"<pre>page (\S+ at \d+ in \w+): (.*?)</pre>", re.DOTALL)

pytestmark = pytest.mark.skipif(
    browser.CHROMIUM is None and not browser.REQUIRED, reason="Chromium is not installed"
)


def problems_of(site: Path, folder: Path) -> list[str]:
    """What is wrong with the pages of a built site, in any view."""
    pages = sorted(f"/{page.relative_to(site).as_posix()}" for page in site.rglob("index.html"))
    visits = [(page, width, theme) for width, theme in VIEWS for page in pages]
    host = HOST.format(visits=json.dumps(visits))
    (site / "_frames.html").write_text(host, encoding="utf-8")
    with browser.served(site) as address:
        seen = browser.visit(f"{address}/_frames.html", folder, seconds=900)
    reports = dict(REPORT.findall(html.unescape(seen.dom)))
    assert list(reports) == [f"{page} at {width} in {theme}" for page, width, theme in visits]
    return [
        *(f"{view}: {what}" for view, what in reports.items() if what),
        *(f"console: {line}" for line in seen.console),
        *(f"asks for {url}" for url in seen.asked if not url.startswith(address)),
    ]


@pytest.mark.timeout(1000)
def test_every_page_looks_right(tmp_path: Path) -> None:
    site = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--no-strict", "--site-dir", site],
        cwd=ROOT, capture_output=True, check=True,
    )  # fmt: skip
    # Each page would build its search anew: most of the time that it takes.
    index = site / "search" / "search_index.json"
    index.write_text(json.dumps(json.loads(index.read_text("utf-8")) | {"docs": []}), "utf-8")
    user = tmp_path / "user"
    user.mkdir()
    assert problems_of(site, user) == []


@pytest.mark.timeout(200)
def test_a_page_that_looks_wrong_is_caught(tmp_path: Path) -> None:
    """The test above can fail."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "index.html").write_text(
        """<!doctype html><title>Bad</title><body data-md-color-scheme="default"><article><h1>Bad</h1>
        <p style="width: 2000px">Wide</p><img src="gone.png"></article>
        <script>console.error("broken")</script></body>""",
        encoding="utf-8",
    )
    found = "\n".join(problems_of(site, tmp_path))
    for words in ("is 2", "cuts off", "lacks", "broken", "is not in the theme slate"):
        assert words in found, words
