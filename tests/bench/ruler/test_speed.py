"""The measurement runs, and puts its table where a page wants it."""

import sys
from pathlib import Path

import pytest

from memagent_bench.ruler import speed


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(speed, "TASKS", {"noise": "niah_single_1"})
    return monkeypatch


def test_a_table_compares_both(
    arguments: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"Before\n{speed.BEGIN}old\n{speed.END}\nAfter\n")
    arguments.setattr(sys, "argv", ["speed", "--lengths", "4k", "--write", str(page)])
    assert speed.main() == 0
    shown = capsys.readouterr().out
    for what in ("first sample", "further sample", "first sample, naive", "naive / this"):
        assert f"noise, 4K: {what}" in shown or f", {what}" in shown
    written = page.read_text()
    assert written.startswith("Before\n")
    assert written.endswith(f"{speed.END}\nAfter\n")
    assert "noise, 4K" in written
    assert "old" not in written


@pytest.mark.parametrize("text", [None, "no place"])
def test_a_page_without_a_place_is_refused_before_the_work(
    arguments: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str | None,
) -> None:
    page = tmp_path / "page.md"
    if text is not None:
        page.write_text(text)
    arguments.setattr(sys, "argv", ["speed", "--write", str(page)])
    assert speed.main() == 1
    assert "page.md" in capsys.readouterr().err


def test_what_is_no_checkout_ends_it_with_a_message(
    arguments: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments.setattr(sys, "argv", ["speed", "--lengths", "4k", "--upstream", str(tmp_path)])
    assert speed.main() == 1
    assert "no checkout" in capsys.readouterr().err
