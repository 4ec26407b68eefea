import base64
import hashlib
import json
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
from tests.viewer import made

from memagent import RunStore
from memagent.errors import RunNotFound
from memagent_viewer.page import MOST_BYTES, make_page
from memagent_viewer.view import View

BLOCK = re.compile(r"<script([^>]*)>(.*?)</script>", re.DOTALL)


def page_of(store: RunStore, *run_ids: str) -> str:
    views = [View(store, run_id) for run_id in run_ids]
    for view in views:
        view.update()
    return make_page(views)


def unpack(packed: str) -> str:
    return zlib.decompress(base64.b64decode(packed), wbits=-15).decode()


def parts_of(page: str) -> tuple[dict[str, Any], dict[str, str], str]:
    """Data, packed texts and script of a page, which has no other script."""
    (_, data), (_, texts), (attributes, script) = BLOCK.findall(page)
    assert attributes == ""
    return json.loads(unpack(data)), json.loads(texts), script


def test_the_page_holds_the_run_and_its_texts(store: RunStore) -> None:
    data, texts, _ = parts_of(page_of(store, made.read(store)))
    (run,) = data["runs"]
    assert (run["id"], run["kind"], run["status"]) == ("read", "reading", "finished")
    assert ["read", "21 chunks"] in run["facts"]
    assert [chunk[0] for chunk in run["chunks"][1:]] == [chunk[1] for chunk in run["chunks"][:-1]]
    assert "".join(unpack(texts[f"0/chunk-{n}"]) for n in range(21)) == made.text()


def test_only_the_pages_own_script_may_run(store: RunStore) -> None:
    page = page_of(store, made.hostile(store))
    *_, script = parts_of(page)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)[0]
    assert f"script-src &#x27;sha256-{digest}&#x27;;" in policy
    assert "default-src &#x27;none&#x27;;" in policy
    assert "unsafe" not in policy


def test_hostile_texts_stand_in_no_markup(store: RunStore) -> None:
    page = page_of(store, made.hostile(store))
    title = "Who? &lt;/script&gt;&lt;script&gt;document.title = &#x27;owned&#x27;&lt;/script&gt;"
    assert f"<title>{title}" in page
    assert "owned" not in page.replace("document.title = &#x27;owned&#x27;", "")
    assert re.search("[\ud800-\udfff\u202e\x00\x1b]", page) is None


def test_a_run_of_4_million_tokens_stays_under_5_mb(store: RunStore) -> None:
    page = page_of(store, made.huge(store))
    assert 4_000_000 < len(page.encode()) < 5_000_000
    data, texts, _ = parts_of(page)
    assert len(data["runs"][0]["books"][0]["steps"]) == 840
    assert 200 < len(texts) < 840  # the texts of the others are left out


def test_two_runs_share_the_room(store: RunStore) -> None:
    run_id = made.huge(store)
    page = page_of(store, run_id, run_id)
    assert len(page.encode()) <= MOST_BYTES
    _, texts, _ = parts_of(page)
    numbers = [key.partition("/")[0] for key in texts]
    assert numbers.count("0") == numbers.count("1") > 100


def test_texts_of_chunks_that_changed_a_memory_come_first(store: RunStore) -> None:
    view = View(store, made.read(store))
    view.update()
    keys = [key for key, _ in view.texts()]
    (steps,) = (book["steps"] for book in view.data()["books"])
    changed = [f"chunk-{step['chunk']}" for step in steps if step["how"] == "updated"]
    assert keys[: len(changed)] == changed
    assert len(set(keys)) == 21


def test_a_run_that_is_not_there(store: RunStore) -> None:
    with pytest.raises(RunNotFound):
        View(store, "nosuch")


def test_package_data_is_complete(store: RunStore, tmp_path: Path) -> None:
    """Nothing of the template is left unfilled."""
    page = page_of(store, made.read(store))
    assert re.findall(r"\{\{\w+\}\}", page) == []
    assert page.count("<style>") == 1
