"""The measurement runs, and puts its table where a page wants it."""

import sys
from pathlib import Path
from typing import Any

import pytest

from memagent_bench.ruler import speed, upstream
from memagent_bench.ruler.upstream import SCRIPT


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(speed, "TASKS", {"noise": "niah_single_1"})
    return monkeypatch


def test_a_table_compares_both(
    arguments: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    end = "<!-- end of measured -->"
    page.write_text(f"Before\n<!-- measured: generate -->\nold\n{end}\nAfter\n")
    arguments.setattr(sys, "argv", ["speed", "--lengths", "4k", "--write", str(page)])
    assert speed.main() == 0
    shown = capsys.readouterr().out
    for what in ("first sample", "further sample", "first sample, naive", "naive / this"):
        assert f"noise, 4K: {what}" in shown or f", {what}" in shown
    written = page.read_text()
    assert written.startswith("Before\n")
    assert written.endswith(f"{end}\nAfter\n")
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


def checkout(folder: Path, wrote: str) -> Path:
    """A stand-in for RULER's script."""
    script = folder / SCRIPT
    script.parent.mkdir(parents=True)
    script.write_text(
        "import sys\nfrom pathlib import Path\n"
        "given = dict(zip(sys.argv[1::2], sys.argv[2::2]))\n"
        "out = Path(given['--save_dir']) / given['--task']\nout.mkdir()\n"
        f"(out / 'validation.jsonl').write_text({wrote!r} * int(given['--num_samples']))\n"
    )
    return folder


def test_rulers_own_script_beside_it(
    arguments: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_script = upstream.generate

    def generate(*args: Any, **kwargs: Any) -> float:
        run_script(*args, **kwargs)
        return 1.0  # the script's own time varies with the machine by more than what is tested

    arguments.setattr(upstream, "generate", generate)
    there = str(checkout(tmp_path, "{}\n"))
    arguments.setattr(sys, "argv", ["speed", "--lengths", "4k", "--upstream", there])
    assert speed.main() == 0
    shown, progress = capsys.readouterr()
    rows = [line for line in shown.splitlines() if "noise, 4K" in line]
    assert len(rows) == 10
    # Columns are as wide as the widest cell of what is shown, and progress shows fewer rows.
    before = [line for line in progress.splitlines() if "noise, 4K" in line]
    assert [line.split() for line in before] == [line.split() for line in rows]
    # No longer for 33 samples than for one: only a bound can be given.
    of_ruler = [row for row in rows if "RULER's script" in row]
    assert [row.count("at most") for row in of_ruler] == [0, 1, 0, 1]
    assert [row.count(" x ") for row in of_ruler] == [0, 0, 1, 1]
    assert not any("| -" in row for row in of_ruler)


def test_what_was_measured_is_shown_where_rulers_own_script_fails(
    arguments: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = str(checkout(tmp_path, ""))
    arguments.setattr(sys, "argv", ["speed", "--lengths", "4k", "--upstream", there])
    assert speed.main() == 1
    shown, progress = capsys.readouterr()
    assert "wrote 0 of 1 samples of 'niah_single_1'" in progress
    assert "noise, 4K: further sample, naive / this" in shown
    assert "fwe, 4K" in shown


def test_what_is_no_checkout_ends_it_with_a_message(
    arguments: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments.setattr(sys, "argv", ["speed", "--lengths", "4k", "--upstream", str(tmp_path)])
    assert speed.main() == 1
    assert "not a checkout" in capsys.readouterr().err
