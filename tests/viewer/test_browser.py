"""The page in a headless Chromium: what it shows, what keys and the search do, how it looks in both themes.

Needs Chromium (Debian: apt install chromium).
"""

from __future__ import annotations

import html
import json
import re
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.bench.report import browser
from tests.viewer import made

from memagent import RunStore, ScriptedModel, ToolAgent
from memagent.cli.fact import trace
from memagent_viewer.command import write_page
from memagent_viewer.live import LiveServer
from memagent_viewer.view import View

pytestmark = pytest.mark.skipif(
    browser.CHROMIUM is None and not browser.REQUIRED, reason="Chromium is not installed"
)
HOST = Path(__file__).with_name("host.html").read_text(encoding="utf-8")
TEXTS = re.compile(r'(?<=<script type="application/json" id="texts">).*?(?=</script>)')
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
REPORT = re.compile(r"<pre>(\[.*\])</pre>", re.DOTALL)
DARK = "--blink-settings=preferredColorScheme=0"
PAGES = ("read.html", "work.html", "two.html", "hostile.html")
Drive = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the pages of some runs."""
    folder = tmp_path_factory.mktemp("pages")
    store = RunStore(folder / "runs.sqlite")
    runs = {
        "read": [made.read(store)],
        "work": [made.work(store)],
        "hostile": [made.hostile(store)],
        "part": [made.read(store, "part", chunks=9)],
        "again": [made.read_again(store)],
        "several": [made.ask_several(store)],
        "beside": ["read", "several"],
    }
    runs["two"] = ["read", made.read(store, "whole", respond=made.keep)]
    for name, ids in runs.items():
        write_page([View(store, run_id) for run_id in ids], folder / f"{name}.html")
    store.close()
    return folder


def visit_all(pages: Path, folder: Path, visits: list[Any], *flags: str) -> list[Any]:
    """What was observed of each visit (page, width, steps); the console must stay empty, the network unused."""
    host = pages / "host.html"
    host.write_text(HOST.replace("VISITS", json.dumps(visits)), encoding="utf-8")
    with browser.served(pages) as address:
        seen = browser.visit(f"{address}/host.html", folder, "--virtual-time-budget=120000", *flags)
    assert seen.console == []
    assert [url for url in seen.asked if not url.startswith(address)] == []
    report = REPORT.search(html.unescape(seen.dom))
    assert report, seen.dom[-2000:]
    return json.loads(report[1])


@pytest.fixture
def drive(pages: Path, tmp_path: Path) -> Drive:
    """Opens a page, takes steps (`key:j`, `find:text`, `click:selector`), and returns what was seen after each."""

    def run(page: str, *steps: str) -> list[dict[str, Any]]:
        return visit_all(pages, tmp_path, [(page, 1400, steps)])[0]

    return run


@pytest.mark.parametrize("flags", [(), (DARK,)], ids=["light", "dark"])
def test_every_page_looks_right(pages: Path, tmp_path: Path, flags: tuple[str, ...]) -> None:
    steps = ["key:j", "key:o", "find:the", "key:G", "key:k"]
    visits = [(page, width, steps) for page in PAGES for width in (390, 1400)]
    seen = visit_all(pages, tmp_path, visits, *flags)
    for (page, width, _), states in zip(visits, seen, strict=True):
        for state, step in zip(states, ["opened", *steps], strict=True):
            assert state["problems"] == [], f"{page} at {width} after {step}"


def test_a_page_that_looks_wrong_is_caught(pages: Path, tmp_path: Path) -> None:
    """The test above can fail."""
    text = (pages / "read.html").read_text(encoding="utf-8")
    text = POLICY.sub("", text)
    bad = "#top { width: 3000px } .soft { color: #ccc !important }"
    (pages / "bad.html").write_text(text.replace("</style>", f"{bad}</style>"), encoding="utf-8")
    ((state,),) = visit_all(pages, tmp_path, [("bad.html", 1400, [])])
    found = "\n".join(state["problems"])
    assert "is 30" in found
    assert "contrast 1." in found


def test_a_reading(drive: Drive) -> None:
    first, *_, last = drive("read.html", "key:G")
    assert first["questions"] == [made.QUESTION]
    assert first["answers"] == ["The clerk of Emden."]
    assert first["current"] == ["0"]
    assert first["headings"] == ["Chunk 0 of 21"]
    assert first["added"] == ["- Up to week 0 nothing else was found."]
    assert first["source"].startswith("In Kiel the clerk counted 0 ships in week 0.")
    assert (last["headings"], last["memory"]) == (["Answer"], "The clerk of Emden.")


def test_calls_and_tokens_over_time(store: RunStore, tmp_path: Path) -> None:
    """A run of 22 calls that was resumed a day later."""
    made.read(store)
    assert store.path
    with closing(sqlite3.connect(store.path)) as db:
        db.execute("UPDATE effects SET committed = committed + 93784 WHERE number > 9")
        db.commit()
    write_page([View(store, "read")], tmp_path / "late.html")
    seen = browser.visit(tmp_path / "late.html", tmp_path, "--virtual-time-budget=3000")
    (told,) = re.findall(r'aria-label="paid over time: ([^"]*)"', seen.dom)
    assert re.fullmatch(r"22 calls and [\d,]+ tokens in 1 d 2 h", told)
    assert seen.console == []


def test_keys(drive: Drive) -> None:
    steps = ("key:j", "key:j", "key:n", "key:p", "key:k", "key:G", "key:g", "key:c", "key:?")
    states = drive("read.html", *steps)
    assert [state["current"] for state in states[:8]] == [
        *(["0"], ["1"], ["2"], ["3"], ["1"], ["0"], ["✓"], ["0"])
    ]
    assert states[7]["rows"] == 22
    assert states[8]["rows"] < 15
    assert (states[8]["help"], states[9]["help"]) == (False, True)
    moved = drive("read.html", "key:c", "key:j", "key:j")
    assert moved[-1]["current"] == ["3"]  # chunk 2 changed nothing


def test_the_search_says_when_a_fact_was_in_the_memory(drive: Drive) -> None:
    _, found, there, cleared = drive("read.html", "find:clerk of  EMDEN", "key:n", "key:Escape")
    assert found["found"] == (
        "In the memory after 5 chunks of 21: appears with 6, gone with 11. In the document: chunk 6."
    )
    assert found["hits"] == ["6", "7", "8", "9", "10", "✓"]
    assert there["current"] == ["6"]
    assert there["marks"] == 2  # in the memory and in the chunk
    assert (cleared["found"], cleared["hits"]) == ("", [])
    *_, never = drive("read.html", "find:Atlantis")
    assert never["found"] == "Never in the memory. In the document: not found."


def test_the_search_tells_the_memory_after_chunks_were_read_again(drive: Drive) -> None:
    *_, found, lost, last = drive("again.html", "find:two", "find:one", "key:G")
    assert found["found"] == (
        "Not in the memory after any chunk. After chunks were read again it is in the memory. In the document: chunk 0."
    )
    assert lost["found"] == (
        "In the memory after 1 chunk of 1: appears with 0, still there. "
        "After chunks were read again it is not in the memory. In the document: not found."
    )
    assert last["memory"].endswith("two")


def test_the_search_and_the_command_agree(drive: Drive, pages: Path) -> None:
    store = RunStore(pages / "runs.sqlite")
    texts = [(store.effect("read", f"chunk-{number}") or {})["text"] for number in (3, 4)]
    across = " ".join((texts[0][-30:] + texts[1][:20]).split())
    assert trace(store, "read", 0, across).chunks == [4]
    store.close()
    *_, found = drive("read.html", f"find:{across}")
    assert found["found"].endswith("In the document: chunk 4.")


def test_another_question_has_its_own_search_result(drive: Drive) -> None:
    _, found, other = drive("several.html", "find:zebra", "choose:1")
    assert found["found"].startswith("Never in the memory.")
    assert other["questions"] == ["Where is the zebra?"]
    assert other["found"].startswith("In the memory after 4 chunks of 4: appears with 0, stays")
    assert other["focus"] == "select-one"


def test_the_whole_outputs_of_tools_are_searched(drive: Drive) -> None:
    _, found, moved = drive("work.html", "find:week 69:", "key:n")
    assert found["found"] == "In 4 places: 0, 1, 2–3."
    assert "week 69:" in moved["source"]
    assert moved["marks"] == 1


def test_the_search_says_that_outputs_are_not_in_the_page(drive: Drive, pages: Path) -> None:
    text = TEXTS.sub("{}", (pages / "work.html").read_text(encoding="utf-8"))
    (pages / "poor.html").write_text(text, encoding="utf-8")
    _, found, *_ = drive("poor.html", "find:week 69:")
    assert found["found"] == (
        "In no step. Of 5 outputs only the beginning was searched: the rest is not in this page."
    )


def test_the_command_for_a_text_that_is_not_in_the_page_names_its_store(
    drive: Drive, pages: Path
) -> None:
    text = TEXTS.sub("{}", (pages / "read.html").read_text(encoding="utf-8"))
    (pages / "short.html").write_text(text, encoding="utf-8")
    (state,) = drive("short.html")
    command = f"memagent show read --chunk 0 --store {pages / 'runs.sqlite'}"
    assert state["source"] == f"Not in this page, which would be too large with it: {command}"


def test_a_run_that_was_stopped(drive: Drive) -> None:
    first, found, last = drive("part.html", "find:clerk of Emden", "key:G")
    assert first["headings"] == ["Chunk 0 of 9 read"]
    assert found["found"] == (
        "In the memory after 3 chunks of 9: appears with 6, still there. In the document: chunk 6."
    )
    assert last["current"] == ["–"]


def test_lines_of_either_direction_keep_it(pages: Path) -> None:
    assert ".said { unicode-bidi: plaintext;" in (pages / "read.html").read_text(encoding="utf-8")


def test_the_selected_text_is_searched_for(drive: Drive) -> None:
    *_, searched = drive("read.html", "select:.detail ins", "key:/")
    assert searched["focus"] == "find"
    assert searched["found"].startswith(
        "In the memory after 6 chunks of 21: appears with 0, gone with 6."
    )


def test_each_part_of_a_memory_names_its_chunk(drive: Drive) -> None:
    *_, origins, followed = drive("read.html", "find:41", "key:n", "key:o", "click:.detail .tag")
    assert origins["tags"] == ["3", "5", "6"]
    assert followed["headings"] == ["Chunk 3 of 21"]


def test_a_session(drive: Drive) -> None:
    first, *_, compacted = drive(
        "work.html", "key:n", "key:n", "click:.compaction ~ .compaction button"
    )
    assert first["headings"] == ["Step 0"]
    assert first["source"].count("week 3:") == 2
    assert "more characters" in first["source"]
    assert compacted["headings"] == ["Compacted before step 2"]
    assert compacted["added"] == ["Kiel: at most 40 ships.\nLübeck: at most 40 ships."]
    _, whole = drive("work.html", "click:.detail .source button")
    assert "week 69:" in whole["source"]
    *_, failed = drive("work.html", "find:no harbour", "key:n")
    assert "Norden has no harbour </script>" in failed["source"]


def test_the_head_of_a_conversation_is_its_last_message(store: RunStore, tmp_path: Path) -> None:
    with ToolAgent(ScriptedModel(["Yes.", "No."], window=8192), [made.look], store=store) as agent:
        talk = agent.session("talk")
        talk.send("Does it rain in Kiel?")
        talk.send("Does it rain in Emden?")
    write_page([View(store, "talk")], tmp_path / "talk.html")
    ((state,),) = visit_all(tmp_path, tmp_path, [("talk.html", 1400, [])])
    assert (state["questions"], state["answers"]) == (["Does it rain in Emden?"], ["No.\n"])


def test_two_runs_stay_at_the_same_place(drive: Drive) -> None:
    first, moved, found = drive("two.html", "key:j", "find:41 ships")
    assert first["questions"] == [made.QUESTION] * 2
    assert moved["current"] == ["1", "1"]
    assert found["found"].startswith("read: In the memory after 5 chunks")
    assert "whole: In the memory after 15 chunks of 21: appears with 6, stays" in found["found"]


def test_settings_and_facts_that_differ_are_listed(drive: Drive) -> None:
    (state,) = drive("beside.html")
    names = "question, budget, read, usage, seed, question 0, question 1"
    assert state["facts"] == [f"About the run, which differs in {names}"] * 2
    assert {"0 (differs)", "7 (differs)"} <= set(state["values"])


def test_news_keep_focus_and_selection(drive: Drive, pages: Path) -> None:
    text = POLICY.sub("", (pages / "several.html").read_text(encoding="utf-8"))
    text = text.replace("</body>", "<script>window.page = page</script></body>")
    (pages / "news.html").write_text(text, encoding="utf-8")
    controls = {"select": "select-one", ".only input": "checkbox", "summary": "summary"}
    steps = [step for control in controls for step in (f"focus:{control}", f"news:{control}")]
    _, *states = drive("news.html", *steps, "click:summary", "select:.outcome p", "news:last")
    focused = [state["focus"] for state in states[:6]]
    assert focused == [name for name in controls.values() for _ in range(2)]
    assert "last" in states[-1]["values"]
    assert states[-1]["selected"].strip() == "a kiwi"


def test_hostile_texts_are_texts(drive: Drive) -> None:
    (state,) = drive("hostile.html")
    assert state["title"].startswith("Who? </script>")
    shown = made.HOSTILE[3].replace("\u202e", "202E").replace("\u202c", "202C")
    shown = shown.replace("\u2066", "2066").replace("\u200b", "200B").replace("\U000e0041", "E0041")
    for text in (*made.HOSTILE[:3], shown):
        assert text in state["memory"]
        assert text in state["source"]
    assert "NUL 0000, escape 001B[31m, lone � surrogate" in state["memory"]


def test_no_other_script_runs(pages: Path, tmp_path: Path) -> None:
    """The page's policy would stop one that got past the script that makes text nodes only."""
    bad = tmp_path / "bad.html"
    text = (pages / "hostile.html").read_text(encoding="utf-8")
    bad.write_text(text.replace("</body>", "<script>document.title = 'owned'</script></body>"))
    seen = browser.visit(bad, tmp_path, "--virtual-time-budget=3000")
    assert "<title>Who?" in seen.dom
    assert 'data-ready="' in seen.dom
    assert any("Content Security Policy" in line for line in seen.console)


def test_a_live_page_follows_its_run(store: RunStore, tmp_path: Path) -> None:
    made.read(store, chunks=3)

    class Growing(LiveServer):
        """Continues the run when the page first asks for news."""

        def reply(self, target: str) -> Any:
            if "/news" in target and store.get("read").status == "stopped":
                made.read(store)
            return super().reply(target)

    with Growing([View(store, "read")]) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        seen = browser.visit(server.address, tmp_path, "--virtual-time-budget=10000")
        server.shutdown()
    assert seen.console == []
    assert '<span class="label">20</span>' in seen.dom
    assert "<h3>Answer</h3>" in seen.dom  # who stands at the end stays there
    assert seen.dom.count("The clerk of Emden.") == 3
