"""The page: one file with its style, script and data, which needs no network.

It contains the texts of documents, tools and models only as compressed data, which its script shows as text. Its policy
allows no other script.
"""

import base64
import hashlib
import html
import json
import re
import zlib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files

from memagent import __version__
from memagent.cli.runs import questions_of
from memagent.terminal import shorten
from memagent.texts import repair_surrogates
from memagent_viewer.view import View

MOST_BYTES = 4_900_000
"""Maximum size of a page, so that it can be mailed and opens quickly. Texts beyond it are replaced by a note."""
TITLE = 80
"""Maximum characters of the question in the window's title."""
SCRIPTS = (
    "data",
    "dom",
    "memories",
    "reading",
    "session",
    "chart",
    "timeline",
    "run",
    "search",
    "page",
)
MARK = re.compile(r"\{\{(\w+)\}\}")


def make_page(views: Sequence[View], *, live: bool = False) -> str:
    """Makes the page of one run, or of two side by side.

    Args:
        views: views that are up to date.
        live: whether it asks its server for updates and texts, instead of containing the texts.
    """
    data = base64.b64encode(pack(as_json(views))).decode()
    style, script = _read_parts()
    policy = {
        "default-src": "'none'",
        "script-src": _hash_of(script),
        "style-src": _hash_of(style),
        "img-src": "data:",
        "connect-src": "'self'" if live else "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    questions = [questions_of(view.record)[0] for view in views]
    values = {
        "title": html.escape(repair_surrogates(shorten(questions[0], TITLE))),
        "policy": html.escape("; ".join(f"{name} {value}" for name, value in policy.items())),
        "version": __version__,
        "live": "live" if live else "",
        "style": style,
        "script": script,
        "data": data,
        "texts": "{}",
    }
    template = _read("page.html")
    if not live:
        size = sum(map(len, values.values())) + len(template)
        values["texts"] = json.dumps(dict(_pack_texts(views, MOST_BYTES - size)))
    return MARK.sub(lambda match: values[match[1]], template)


def as_json(views: Iterable[View]) -> str:
    """Converts the data of all views to JSON."""
    return json.dumps({"runs": [view.data() for view in views]}, ensure_ascii=False)


def pack(text: str) -> bytes:
    """Compresses a text for the page's script."""
    packer = zlib.compressobj(level=9, wbits=-15)
    return packer.compress(repair_surrogates(text).encode()) + packer.flush()


def _pack_texts(views: Sequence[View], room: int) -> Iterable[tuple[str, str]]:
    """Yields packed texts by run and key, until no room is left; each run has an equal share."""
    for number, view in enumerate(views):
        share = room // len(views)
        for key, text in view.texts():
            data = base64.b64encode(pack(text)).decode()
            share -= len(data) + len(key) + len('"0/": "", ')
            if share < 0:
                break
            yield f"{number}/{key}", data


@cache
def _read_parts() -> tuple[str, str]:
    scripts = "\n".join(_read(f"{name}.js") for name in SCRIPTS)
    return f"\n{_read('page.css')}", f'"use strict";\n{scripts}'


def _read(name: str) -> str:
    return files("memagent_viewer").joinpath(name).read_text(encoding="utf-8")


def _hash_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
