"""The page of sessions."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from tests.bench.report.test_make import NOT_SHOWN, read
from tests.bench.sessions.test_figures import FULL, LOST, ORIGIN, SUMMARY, record

from memagent.errors import ConfigError
from memagent_bench.records import RecordFile
from memagent_bench.sessions.page import make_session_report
from memagent_bench.sessions.record import SESSIONS, SessionRecord
from memagent_bench.systems.base import Status


def write(folder: Path, *records: SessionRecord) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = RecordFile(folder, SESSIONS, SessionRecord)
    for one in records:
        file.append(one)
    file.close()
    return folder


PLAYED = [
    record(1000 * n, difficulty=10 * n, arm=arm, game=game)
    for n in (3, 10)
    for arm in (FULL, SUMMARY)
    for game in ("deck", "maze")
]


def test_a_page_of_sessions(tmp_path: Path) -> None:
    lost = record(9000, difficulty=100, game="snake", **LOST)
    report = make_session_report([write(tmp_path / "run", *PLAYED, lost)], tmp_path / "out")
    reader = read(report.page)
    text = " ".join(" ".join(reader.texts).split())
    assert not NOT_SHOWN.search(text)
    for words in (
        *("Tool sessions, 30 to 100 steps", "model none · 3 games · 2026-11-21"),
        "In games of 100 steps, full scores 66.7 of 100 for 10.0k prompt tokens and summary W=4096 S=7 scores 100.0",
        *("1 overflow", "session:0", "Made by memagent-bench"),
    ):
        assert words in text, words
    assert report.summary[0] in text
    assert reader.tags["img"] == 1
    assert all(
        v.startswith(("data:", "#")) for _, n, v in reader.attributes if n in ("src", "href")
    )
    rows = list(csv.DictReader(report.table.read_text().splitlines()))
    assert len(rows) == 9
    assert (rows[-1]["game"], rows[-1]["score"], rows[-1]["reason"]) == ("snake", "", "overflow")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"report.html", "results.csv"}


def test_several_folders_are_sections_and_failures_are_said(tmp_path: Path) -> None:
    failed = record(score=None, status=Status.FAILED, reason="error", answer=None)
    dirty = record(origin=ORIGIN.model_copy(update={"dirty": True}))
    folders = [write(tmp_path / "one", failed), write(tmp_path / "two", dirty)]
    report = make_session_report(folders, tmp_path / "out")
    assert read(report.page).tags["section"] == 2
    assert report.cautions == (
        "one: 1 session failed, counted as 0; repeat the command to retry.",
        "two: 1 session from a source tree with uncommitted changes.",
    )


def test_folders_without_sessions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no sessions yet in 'run'"):
        make_session_report([write(tmp_path / "run")], tmp_path / "out")
