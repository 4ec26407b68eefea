"""From folders to files."""

from __future__ import annotations

import csv
import html.parser
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.bench.report.made import K, provenance, record, run, write
from tests.disk import full_disk

from memagent.errors import ConfigError, StoreCorrupt, StoreError
from memagent.tasks import Evidence
from memagent_bench.record import Record
from memagent_bench.report import make, make_report
from memagent_bench.systems.base import Status

NASTY = (
    "</script><script>alert('x')</script><img src=x onerror=alert(1)>"
    "{{ 7 * 7 }}{% raw %}$x_1$ \u202eabc\x00\r\n漢字"
)
NOT_SHOWN = re.compile(r"\b(?:nan|NaN|inf|None|Undefined)\b")
SYSTEMS = ("memory", "direct", "published")
VOID = {"meta", "link", "br", "img", "path", "use", "rect"}


class Reader(html.parser.HTMLParser):
    """What a page holds: tags that are opened and closed in order, ids, texts, what it would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.ids: Counter[str] = Counter()
        self.texts: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids.update(value for name, value in attrs if name == "id" and value)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "text"):
            self.texts.append(data)


def read(page: Path) -> Reader:
    reader = Reader()
    reader.feed(page.read_text(encoding="utf-8"))
    assert reader.open == []
    return reader


def made(tmp_path: Path, records: list[Record], **options: Any) -> Reader:
    report = make_report([write(tmp_path / "run", records)], tmp_path / "out", **options)
    return read(report.page)


def sound(reader: Reader) -> str:
    """The text of a page that holds together: nothing loaded, no number that is none, every id once."""
    text = " ".join(" ".join(reader.texts).split())
    assert not NOT_SHOWN.search(text), NOT_SHOWN.search(text)
    assert {
        tag: n for tag, n in reader.tags.items() if tag in ("script", "img", "iframe", "object")
    } == {}
    for tag, name, value in reader.attributes:
        assert not name.startswith("on")
        if name in ("src", "href", "xlink:href"):
            assert value.startswith(("#", "data:")), (tag, name, value)
    assert [name for name, n in reader.ids.items() if n > 1] == []
    targets = {v[1:] for _, name, v in reader.attributes if name == "href" and v.startswith("#")}
    assert targets <= set(reader.ids)
    return text


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of words: drawing takes most of the time."""
    monkeypatch.setattr(make, "_pictures", lambda _view: iter(()))


def test_a_whole_page(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", run(SYSTEMS, n=4, failing=0.05))
    report = make_report([folder], tmp_path / "out", primary=["mean@32k", "vt@128k"], margin=3)
    text = sound(reader := read(report.page))
    for words in (
        *("RULER, 8K to 128K tokens", "vllm:Qwen/Qwen3-4B", "Before you rely on these numbers"),
        *("Scores by task and length", "Beside published figures", "published: RL-MemAgent-14B"),
        *("copied, not measured here", "RULER's summary", "Change with length", "Against memory"),
        *(
            "with a margin of 3 points",
            "These cells were named beforehand",
            "vt@128K",
            "Growth of cost",
        ),
        *(
            "Samples without a score",
            "RequestTimeout: no answer within 600 s",
            "query-first",
            "Holm",
        ),
        *("c5d985f0c5d9", "essays (shipped book)", "Made by memagent-bench"),
    ):
        assert words in text, words
    assert "more of it" not in text  # first lines only
    assert all(words in text for words in (*report.summary, *report.cautions))
    assert reader.tags["h1"] == 1
    assert reader.tags["svg"] == 5
    tables = reader.tags["table"]
    assert tables == len(
        [1 for _, name, value in reader.attributes if (name, value) == ("role", "region")]
    )
    images = [
        v for _, name, v in reader.attributes if name == "aria-label" and v.startswith("Line chart")
    ]
    assert len(images) == 5
    assert "memory: " in images[0]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("report.html", "results.csv"),
        *(f"ruler-{name}.png" for name in ("scores", "seconds", "calls", "tokens", "published-1")),
        *(f"ruler-tasks-{system}.png" for system in SYSTEMS),
    }
    assert {path.name for path in report.pictures} | {"report.html", "results.csv"} == {
        path.name for path in (tmp_path / "out").iterdir()
    }


@pytest.mark.usefixtures("no_pictures")
def test_the_same_records_give_the_same_page(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", run(tasks=["vt"], n=3))
    first = make_report([folder], tmp_path / "one")
    second = make_report([folder], tmp_path / "two")
    assert first.page.read_bytes() == second.page.read_bytes()


@pytest.mark.parametrize(
    "records",
    [
        [record()],
        [record(score=0.0)],
        [record(score=None)],
        [record(score=None, detail="", status=Status.STOPPED)],
        [record(index=i, length=n, score=None) for i in range(3) for n in (8 * K, 32 * K)],
        [record(t, system=s) for t in ("vt", "cwe") for s in ("memory", "direct")],
        [record("vt"), record("cwe", length=32 * K)],
        [record("vt"), record("cwe", system="direct")],
        [record(seconds=0.0, predicted_calls=0, predicted_tokens=0, tokens=1)],
        [record(seconds=0.0, resumed=True, predicted_calls=None, predicted_tokens=None)],
        [record(system="extractive", suite="mine", task="own", scorer="f1", facts={}, started="")],
        [record(provenance=provenance(server=None, commit=None, dirty=None, packages={}))],
    ],
    ids=[
        *("one", "zero", "failed", "stopped", "all failed", "one length", "no common task"),
        *("no common system", "no time", "resumed", "another suite", "no origin"),
    ],
)
@pytest.mark.usefixtures("no_pictures")
def test_poor_folders_give_sensible_pages(tmp_path: Path, records: list[Record]) -> None:
    sound(made(tmp_path, records))


def test_folders_with_similar_names_have_their_own_pictures(tmp_path: Path) -> None:
    folders = [write(tmp_path / name, [record("vt"), record("cwe")]) for name in ("run 1", "run-1")]
    pictures = make_report(folders, tmp_path / "out").pictures
    assert len({*pictures}) == len(pictures)
    assert len([path for path in pictures if "-tasks-" in path.name]) == 2


def test_pictures_of_a_poor_folder(tmp_path: Path) -> None:
    records = [record("vt", seconds=0.0), record("cwe", length=32 * K), record(score=None)]
    made(tmp_path, records)
    assert len(list((tmp_path / "out").glob("*.png"))) == 5


def test_texts_of_models_and_documents_are_only_text(tmp_path: Path) -> None:
    nasty = {
        "task": NASTY,
        "system": NASTY,
        "suite": NASTY,
        "scorer": NASTY,
        "detail": NASTY,
        "facts": {NASTY: NASTY},
        "provenance": provenance(NASTY, server=NASTY, commit=NASTY, packages={NASTY: NASTY}),
    }
    reader = made(tmp_path, [record(**nasty), record(index=1, score=None, **nasty)])
    text = sound(reader)
    assert "<script>alert('x')</script>" in text
    assert "{{ 7 * 7 }}{% raw %}$x_1$" in text
    assert "\x00" not in text
    assert "漢字" in text


def test_needles_have_a_map_of_depths(tmp_path: Path) -> None:
    place = Evidence(start=100, end=130, supports=(0,))
    text = sound(made(tmp_path, [record(evidence=(place,)), record("vt")]))
    assert "Scores by depth and length" in text
    assert (tmp_path / "out" / "ruler-depths-memory.png").exists()


@pytest.mark.usefixtures("no_pictures")
def test_scores_are_also_comma_separated(tmp_path: Path) -> None:
    records = [
        record(score=1.0),
        record(index=1, score=None, seconds=0.1, resumed=True),
        record("vt, or so", score=0.5, resumed=True),
    ]
    report = make_report([write(tmp_path / "run", records)], tmp_path / "out")
    rows = list(csv.DictReader(report.table.read_text().splitlines()))
    assert [(row["task"], row["samples"], row["unscored"], row["score"]) for row in rows] == [
        ("niah_single_1", "2", "1", "0.5"),
        ("vt, or so", "1", "0", "0.5"),
        ("(mean)", "3", "1", "0.5"),
    ]
    assert {(row["suite"], row["system"], row["length"]) for row in rows} == {
        ("ruler", "memory", "8192")
    }
    assert float(rows[0]["low"]) < 0.5 < float(rows[0]["high"])
    assert (rows[0]["calls"], rows[0]["seconds"]) == ("3", "6.1")
    assert rows[1]["seconds"] == ""


@pytest.mark.usefixtures("no_pictures")
def test_times_that_do_not_grow_give_no_rate(tmp_path: Path) -> None:
    records = [
        record(length=n, index=i, seconds=9.0 - n / 8192) for n in (8192, 16384) for i in (0, 1)
    ]
    text = sound(made(tmp_path, records))
    assert "no growth with the length" in text
    assert "−122" not in text


@pytest.mark.usefixtures("no_pictures")
def test_several_suites_and_models(tmp_path: Path) -> None:
    folders = [
        write(
            tmp_path / "a",
            [*run(n=2), *run(tasks=["hotpotqa"], suite="qa", scorer="sub_exact_match")],
        ),
        write(tmp_path / "b", run(n=2, provenance=provenance("openai:gpt-oss-20b"))),
    ]
    report = make_report(folders, tmp_path / "out", baseline="direct · Qwen3-4B")
    text = sound(read(report.page))
    assert "RULER and Long QA" in text
    assert "Against direct · Qwen3-4B" in text
    assert "memory · gpt-oss-20b" in text or "memory · openai:gpt-oss-20b" in text
    assert len(report.summary) == 4


@pytest.mark.usefixtures("no_pictures")
def test_the_baseline_is_memory_else_the_first(tmp_path: Path) -> None:
    assert "Against memory" in sound(made(tmp_path / "1", [record(system="direct"), record()]))
    first = [record(system="direct"), record(system="bm25")]
    assert "Against direct" in sound(made(tmp_path / "2", first))


@pytest.mark.usefixtures("no_pictures")
def test_many_failures_are_listed_in_part(tmp_path: Path) -> None:
    text = sound(
        made(tmp_path, [record(index=i, score=None, detail="x" * 5000) for i in range(70)])
    )
    assert "The first 60 of 70, one by one" in text
    assert "x" * 201 not in text


@pytest.mark.usefixtures("no_pictures")
def test_stopped_and_failed_samples_are_counted_apart(tmp_path: Path) -> None:
    ends = (Status.STOPPED, Status.FAILED, Status.FAILED)
    text = sound(
        made(tmp_path, [record(index=i, score=None, status=end) for i, end in enumerate(ends)])
    )
    assert "1 stopped" in text
    assert "2 failed" in text


@pytest.mark.usefixtures("no_pictures")
def test_a_folder_twice_counts_once(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", [record()])
    report = make_report([folder, tmp_path / "run" / ".." / "run"], tmp_path / "out")
    assert "1 sample" in report.summary[0]


@pytest.mark.usefixtures("no_pictures")
def test_folders_of_the_same_name(tmp_path: Path) -> None:
    folders = [write(tmp_path / name / "run", [record()]) for name in "ab"]
    text = sound(read(make_report(folders, tmp_path / "out").page))
    assert f"memory · {folders[0]}" in text


@pytest.mark.usefixtures("no_pictures")
def test_old_files_are_replaced_and_nothing_is_left_behind(tmp_path: Path) -> None:
    made(tmp_path, [record()])
    before = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert "scores 0.0 of 100" in sound(made(tmp_path, [record(score=0.0)]))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == before


@pytest.mark.parametrize("margin", [0, -5, 101, float("nan")])
def test_a_margin_is_in_points(tmp_path: Path, margin: float) -> None:
    with pytest.raises(ConfigError, match="between 0 and 100 points"):
        make_report([write(tmp_path / "run", [record()])], tmp_path / "out", margin=margin)


@pytest.mark.usefixtures("no_pictures")
def test_what_cannot_be_reported_is_a_typed_error(tmp_path: Path) -> None:
    folder, out = write(tmp_path / "run", [record()]), tmp_path / "out"
    with pytest.raises(ConfigError, match="no folder to report on was given"):
        make_report([], out)
    with pytest.raises(ConfigError, match="no records yet in 'empty'"):
        make_report([write(tmp_path / "empty", [])], out)
    with pytest.raises(StoreError, match="no records in"):
        make_report([tmp_path / "missing"], out)
    with pytest.raises(ConfigError, match="baseline='other' is not one of the systems: 'memory'"):
        make_report([folder], out, baseline="other")
    with pytest.raises(ConfigError, match="primary cell 'vt@8k' is not in the records"):
        make_report([folder], out, primary=["vt@8k"])
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "results.jsonl").write_text("{}\n")
    with pytest.raises(StoreCorrupt):
        make_report([tmp_path / "broken"], out)
    assert not out.exists()


def test_a_full_disk_keeps_the_report_of_before(tmp_path: Path) -> None:
    folder, out = write(tmp_path / "run", [record()]), tmp_path / "out"
    make_report([folder], out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    write(tmp_path / "run", [record(score=0.0)])
    with full_disk(100), pytest.raises(ConfigError, match=r"cannot be written .*: File too large"):
        make_report([folder], out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", [record()])
    with pytest.raises(ConfigError, match="cannot be written"):
        make_report([folder], folder / "results.jsonl")
    with pytest.raises(ConfigError, match="cannot be written"):
        make_report([folder], folder / "results.jsonl" / "below")
