"""`make bench`: its instant server, and the readings that it measures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from memagent.tokens.local import TokenizerFile
from memagent_bench.perf import run
from memagent_bench.perf.chunks import book
from memagent_bench.perf.measure import SMALL_TOKENIZER, Row, write
from memagent_bench.perf.process import python

CHARS = 60_000


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The beginning of the shipped novel."""
    path = tmp_path_factory.mktemp("perf") / "document.txt"
    path.write_text(book()[:CHARS])
    return path


@pytest.fixture(scope="module")
def url(document: Path) -> Iterator[str]:
    with run.serving(SMALL_TOKENIZER, document) as base_url:
        yield base_url


def test_the_instant_server_reports_what_prompts_and_replies_take(url: str) -> None:
    counter = TokenizerFile(SMALL_TOKENIZER)
    ask = {"messages": [{"role": "user", "content": "Whom does Natasha marry?"}]}
    replies = [httpx.post(f"{url}/chat/completions", json=ask).json() for _ in range(2)]
    said = [reply["choices"][0]["message"]["content"] for reply in replies]
    assert said[0] != said[1]
    assert all(580 <= counter.count(text) <= 600 for text in said)
    assert replies[0]["usage"]["prompt_tokens"] < 60
    assert httpx.get(f"{url}/tokenize").status_code == 404


def test_the_agent_and_the_floor_send_as_many_prompts_of_the_same_size(
    url: str, document: Path
) -> None:
    read = ("-m", "memagent_bench.perf.reading")
    rest = (url, str(SMALL_TOKENIZER), str(document))
    ours = json.loads(python(*read, "agent", *rest, "4"))
    flat = json.loads(python(*read, "floor", *rest, str(ours["calls"])))
    assert ours["calls"] == flat["calls"] > 3
    # Few calls: that for the answer, which shows no text, counts for much.
    assert flat["prompts"] == pytest.approx(ours["prompts"], rel=0.15)
    assert 0 < ours["quarter"] <= ours["peak"]
    # The kernel keeps the two numbers apart and rounds each by up to a few pages for each thread.
    assert 0 < ours["end"] <= ours["peak"] + 1
    assert min(ours["cpu"], flat["cpu"]) > 0


def test_the_path_to_the_model_is_short() -> None:
    frames, functions = python("-m", "memagent_bench.perf.path").splitlines()
    assert 3 < int(frames.split(" frames at the model call")[0]) < 10
    assert 75 < int(functions.split(" distinct functions")[0]) < 150


def test_a_table_goes_between_the_marks_of_its_command(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    end = "<!-- end of measured -->"
    page.write_text(f"a\n<!-- measured: x -->\nold\n{end}\nb\n<!-- measured: y -->\nkept\n{end}\n")
    write(page, "x", [Row("speed", "<= 2", [1.0, 3.0, 1.5], "s", good=True)], "a machine")
    text = page.read_text()
    assert "old" not in text
    assert "a machine\n\n| measured" in text
    assert text.endswith(f"{end}\nb\n<!-- measured: y -->\nkept\n{end}\n")
