"""`make bench`: its instant server, and the readings that it measures."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.models.chat_server import Script, send
from typer.testing import Result

from memagent.errors import ConfigError, MemagentError, ModelError
from memagent.prompts import PromptSet
from memagent.tokens.local import TokenizerFile
from memagent_bench.cli.perf import COMMAND
from memagent_bench.perf import compare
from memagent_bench.perf.chunks import book
from memagent_bench.perf.measure import SMALL_TOKENIZER, Row, publish
from memagent_bench.perf.process import python
from memagent_bench.perf.readers import READERS, Request
from memagent_bench.server.vllm import VLLM

CHARS = 60_000
REQUEST = Request(
    base_url="http://127.0.0.1:9/v1",
    model="x",
    tokenizer=str(SMALL_TOKENIZER),
    document="none.txt",
    question="Who?",
    window=8192,
    chunk=5000,
    reply=1024,
)


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The beginning of the shipped novel."""
    path = tmp_path_factory.mktemp("perf") / "document.txt"
    path.write_text(book()[:CHARS])
    return path


@pytest.fixture(scope="module")
def url(document: Path) -> Iterator[str]:
    with compare.serving(SMALL_TOKENIZER, document) as base_url:
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


def test_all_read_the_same_document_at_the_instant_server(document: Path) -> None:
    readers = ("memagent", "floor", "plain script")  # in this order, whatever the order given
    setting = compare.Setting(
        lengths=(8192, 16384, 32768),
        readers=("floor", "memagent", "plain script"),
        rounds=1,
        tokenizer=SMALL_TOKENIZER,
    )
    found = dict(compare.measure(setting))
    for passes in found.values():
        assert tuple(passes) == readers
        ours, flat, script = (passes[name][0] for name in readers)
        assert ours["calls"] == flat["calls"] >= 3
        # Few calls: that for the answer, which shows no text, counts for much.
        assert flat["prompts"] == pytest.approx(ours["prompts"], rel=0.1)
        assert script["prompts"] == pytest.approx(ours["prompts"], rel=0.1)
        for reading in (ours, flat, script):
            assert 0 < reading["first"] < reading["wall"]
            assert 0 < reading["end"] <= reading["peak"] + 1  # the kernel rounds each by some pages
            assert reading["cpu"] > 0
            assert reading["replies"] == reading["calls"] * 600
    page = compare.tables(found, answers=False)
    assert [line.split(" |")[0].strip() for line in page.splitlines() if "tokens |" in line] == [
        f"| {length} tokens" for length in ("8K", "16K", "32K")
    ]
    (row,) = compare.rows(found)
    assert row.values[0] < 0.1
    # Of the tokens paid for a line, a line is exact.
    for length, passes in found.items():
        passes["memagent"][0] |= {"prompts": 500 + 2 * length, "replies": 0}
    assert compare.bend(found) < 1e-9


def read_once(*readers: str, **settings: Any) -> compare.Setting:
    once: dict[str, Any] = {"lengths": (16384,), "rounds": 1, "tokenizer": SMALL_TOKENIZER}
    return compare.Setting(readers=readers, **once, **settings)


def test_all_read_chunks_of_the_size_asked_for_and_the_caption_shows_it(document: Path) -> None:
    setting = read_once("memagent", "plain script", window=4096, chunk=1000, reply=1100)
    ((_, passes),) = compare.measure(setting)
    ours, script = (reading["calls"] for (reading,) in passes.values())
    assert 17 <= ours <= 20
    assert 14 <= script <= 18  # 4,000 characters each
    sizes = "Window of 4,096 tokens, chunks of 1,000, replies of up to 1,100; prompt set small. "
    assert sizes in compare.where(replace(setting, prompts="small"))
    # Replies of up to 1,600 leave too little of the window.
    with pytest.raises(MemagentError, match="a chunk of 1000 tokens does not fit"):
        list(compare.measure(replace(setting, reply=1600)))


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("http://localhost:8000/v1", "the same machine"),
        ("http://127.0.0.2:8000/v1", "the same machine"),
        ("http://[::1]:8000/v1", "the same machine"),
        ("http://gpu7.intern.example:8000/v1", "another machine"),
        ("http://10.0.0.7:8000/v1", "another machine"),
    ],
)
def test_the_caption_says_on_which_machine_the_server_is_but_not_its_name(
    monkeypatch: pytest.MonkeyPatch, url: str, place: str
) -> None:
    monkeypatch.setattr(VLLM, "version", lambda _: "0.32.0")
    setting = compare.Setting(
        lengths=(8192,),
        readers=("memagent",),
        tokenizer=SMALL_TOKENIZER,
        base_url=url,
        model="tiny",
    )
    caption = compare.where(setting)
    assert f", vLLM 0.32.0 on {place} with tiny. " in caption
    assert "8000" not in caption
    assert "gpu7" not in caption


def test_the_floor_sends_the_prompts_asked_for(tmp_path: Path) -> None:
    prompts, start = tmp_path / "long.toml", "Write the new memory. "
    prompts.write_text(PromptSet.load("plain").source.replace(start, start * 60))
    setting = read_once("memagent", "floor", chunk=1000, prompts=str(prompts))
    ((_, passes),) = compare.measure(setting)
    ours, flat = (reading["prompts"] for (reading,) in passes.values())
    assert flat == pytest.approx(ours, rel=compare.SAME)


def test_prompts_of_another_length_than_the_floors_are_noted_under_the_tables(
    invoke: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = ("wall", "first", "cpu", "replies", "peak", "quarter", "end")
    reading = dict.fromkeys(costs, 1.0) | {"calls": 203, "prompts": 88}
    passes = {"memagent": [reading] * 2, "floor": [{**reading, "prompts": 100}] * 2}
    monkeypatch.setattr(compare, "measure", lambda _: [(1_000_000, passes)])
    command = ("perf", "--tokenizer", SMALL_TOKENIZER, "--readers", "memagent,floor")
    done = invoke(*command)
    *_, targets, note = done.stdout.strip().split("\n\n")
    assert (done.exit_code, "peak memory" in targets) == (6, True), done.output
    assert "prompt tokens against the floor | 0.97 to 1.03 | 0.88" in targets
    assert note.startswith("memagent's prompts took 0.88 of the tokens of the floor's, so")
    assert "processor time against the floor" not in done.stdout
    reading["prompts"] = 98
    done = invoke(*command)
    assert "processor time against the floor" in done.stdout
    assert "prompts took" not in done.stdout


@pytest.mark.extra
@pytest.mark.timeout(300)
def test_the_frameworks_read_all_of_it(document: Path) -> None:
    setting = compare.Setting(lengths=(16384,), rounds=1, tokenizer=SMALL_TOKENIZER)
    ((_, passes),) = compare.measure(setting)
    assert list(passes) == list(READERS)
    flat = passes["floor"][0]["prompts"]
    for name, (reading,) in passes.items():
        assert reading["prompts"] == pytest.approx(flat, rel=0.2), name
        assert reading["answer"], name
    shown = {name: reading["first"] < reading["wall"] for name, (reading,) in passes.items()}
    assert [name for name in shown if not shown[name]] == [
        "LangChain map-reduce",
        "LlamaIndex TreeSummarize",
    ]


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ([1.0, 2.0], [2.0, 3.0], "win (0.58)"),
        ([3.0, 3.0], [2.0, 2.0], "loss (1.50)"),
        ([3.0, 1.0], [2.0, 2.0], "tie (1.00)"),
        ([2.0, 2.0], [2.02, 2.01], "tie (0.99)"),
    ],
)
def test_a_verdict_needs_every_round(ours: list[float], theirs: list[float], said: str) -> None:
    left, right = ([{"wall": value} for value in values] for values in (ours, theirs))
    assert compare.verdict(left, right, "wall") == said


def test_the_question_has_one_answer_in_the_document(tmp_path: Path) -> None:
    path, counter = tmp_path / "document.txt", TokenizerFile(SMALL_TOKENIZER)
    said = [compare.write_document(path, 8192, counter, seed) for seed in (0, 1)]
    text = path.read_text()
    assert said[0][1] != said[1][1]
    assert text.count(said[1][1]) == 1
    assert f". The code of the lighthouse is {said[1][1]}. " in text
    assert counter.count(text) == pytest.approx(8192, rel=0.1)


def test_a_reader_that_fails_is_named(document: Path) -> None:
    setting = compare.Setting(
        lengths=(8192,),
        readers=("memagent",),
        tokenizer=SMALL_TOKENIZER,
        base_url="http://127.0.0.1:9/v1",
    )
    with pytest.raises(ModelError, match="memagent failed: openai:instant at http") as caught:
        list(compare.measure(setting))
    assert "\n" not in str(caught.value)
    assert any("Traceback" in part for part in caught.value.__notes__)


def test_the_cause_of_a_failure_is_what_the_server_said(document: Path, server: Script) -> None:
    server.default = send(400, {"error": {"message": "the prompt\nis too long"}})
    request = replace(REQUEST, base_url=server.url, document=str(document))
    with pytest.raises(ModelError) as caught:
        compare.read("plain script", request)
    assert str(caught.value).startswith(
        f"plain script failed: openai:x at {server.url}: the server answered 400: the prompt is too"
    )
    with pytest.raises(MemagentError, match="floor failed: ZeroDivisionError: ") as caught:
        compare.read("floor", request)  # no number of calls is given
    assert type(caught.value) is MemagentError


@pytest.mark.extra
@pytest.mark.parametrize("reader", ["LangChain refine", "LlamaIndex Refine"])
def test_a_framework_that_finds_no_server_says_so(document: Path, reader: str) -> None:
    with pytest.raises(ModelError, match=f"{reader} failed: openai:x .*Connection refused"):
        compare.read(reader, replace(REQUEST, document=str(document)))


def test_a_reader_that_is_killed_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    killed = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho a warning >&2\nexec {sys.executable} -c '{killed}'\n")
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(MemagentError, match="memagent failed: its process was ended by SIGKILL"):
        compare.read("memagent", REQUEST)


def test_tables_of_finished_lengths_are_printed_if_a_reader_fails(
    invoke: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def write(path: Path, tokens: int, *_: Any) -> tuple[str, str]:
        path.write_text("x" * tokens)
        return "Who?", "17"

    def read(reader: str, request: Request) -> compare.Reading:
        if len(request.text()) == 65536 and reader == "floor":
            raise ModelError("floor failed: the server is gone")
        costs = ("wall", "first", "cpu", "calls", "prompts", "replies", "peak")
        return {**dict.fromkeys(costs, 3), "answer": ""}

    monkeypatch.setattr(compare, "write_document", write)
    monkeypatch.setattr(compare, "read", read)
    page = tmp_path / "page.md"
    page.write_text(f"<!-- measured: {COMMAND} --base-url -->\nold\n<!-- end of measured -->\n")
    command = ("perf", "--tokenizer", SMALL_TOKENIZER, "--readers", "memagent,floor")
    small = ("--lengths", "8k,64k", "--rounds", "1", "--base-url", "http://127.0.0.1:9/v1")
    done = invoke(*command, *small, "--write", page)
    assert done.exit_code == 4
    assert done.stderr.endswith("\nerror: floor failed: the server is gone\n")
    assert "| 8K tokens" in done.stdout
    assert "| 64K tokens" not in done.stdout
    assert "old" in page.read_text()


def test_a_reader_without_its_package_is_refused_before_anything_is_measured(
    invoke: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "find_spec", {"langchain_openai": "here"}.get)
    monkeypatch.setattr(compare, "measure", lambda _: pytest.fail("measured"))
    done = invoke("perf", "--tokenizer", SMALL_TOKENIZER)
    said = "the reader 'LangChain refine' needs the extra 'peers': pip install "
    assert (done.exit_code, said in done.stderr) == (2, True), done.output


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"readers": ("memagent", "grep")}, "no reader 'grep': choose from memagent, floor,"),
        ({"readers": ("floor",)}, "compared with 'memagent'"),
        ({"tokenizer": Path("none.json")}, "'none.json' is not a file"),
    ],
)
def test_wrong_settings(changed: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"lengths": (8192,), "tokenizer": SMALL_TOKENIZER, **changed}
    with pytest.raises(ConfigError, match=said):
        compare.Setting(**given)


def test_the_path_to_the_model_is_short() -> None:
    frames, functions = python("-m", "memagent_bench.perf.path").splitlines()
    assert 3 < int(frames.split(" frames at the model call")[0]) < 10
    assert 75 < int(functions.split(" distinct functions")[0]) < 150


def test_a_table_goes_between_the_marks_of_its_command(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    end = "<!-- end of measured -->"
    page.write_text(f"a\n<!-- measured: x -->\nold\n{end}\nb\n<!-- measured: y -->\nkept\n{end}\n")
    assert publish([Row("speed", [1.0, 3.0, 1.5], "s", most=2)], "x", page, "a machine") == 0
    text = page.read_text()
    assert "old" not in text
    assert "a machine\n\n| measured" in text
    assert "| speed    | <= 2 s | 1.5 s  | 1 to 3 (n=3) | yes |" in text
    assert text.endswith(f"{end}\nb\n<!-- measured: y -->\nkept\n{end}\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot read the page"),
        ("no mark", "needs the lines '<!-- measured: memagent-bench perf -->'"),
        ("<!-- measured: memagent-bench perf -->\nno end", "and '<!-- end of measured -->'"),
    ],
)
def test_a_page_without_marks_is_refused_before_anything_is_measured(
    invoke: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    text: str | None,
    said: str,
) -> None:
    monkeypatch.setattr(compare, "measure", lambda _: pytest.fail("measured"))
    page = tmp_path / "page.md"
    if text is not None:
        page.write_text(text)
    done = invoke("perf", "--tokenizer", SMALL_TOKENIZER, "--readers", "memagent", "--write", page)
    assert (done.exit_code, said in done.stderr) == (2, True), done.output
