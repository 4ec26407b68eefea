"""What docs/nano.md shows is what the committed results give."""

from pathlib import Path

import pytest

from memagent_nano import readings, results, survival, tables
from memagent_nano.sizes import PICO

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "nano.md").read_text(encoding="utf-8").splitlines()
RESULTS = ROOT / "experiments" / "memagent_nano" / "results"


@pytest.mark.parametrize("file", sorted(RESULTS.glob("*.jsonl")), ids=lambda file: file.stem)
def test_a_curve_is_shown_whole(file: Path) -> None:
    said = file.with_suffix(".said.json")
    forecasts = survival.read(said) if said.is_file() else []
    shown = tables.forecasts(forecasts, survival.points(readings.read(file))).splitlines()
    assert [row for row in shown if row not in PAGE] == []


def test_arms_are_shown_whole() -> None:
    found = results.read(RESULTS / "pico.json")
    for table in tables.whole(found, PICO):
        assert [row for row in table.splitlines() if row not in PAGE] == []
