"""Results on pages are those of the files that hold them."""

import json
import re
from pathlib import Path

from tests.train.dialogues import KEPT, kept, section

from memagent_bench.lengths import parse_length
from memagent_bench.perf.measure import split_page
from memagent_bench.quick import SYSTEMS

DOCS = Path(__file__).resolve().parents[2] / "docs"
ROW = re.compile(r"^\| \[[^\]]+\]\((results/[\w.-]+\.json)\) \|(.*)\|$", re.MULTILINE)


def test_each_row_shows_its_file() -> None:
    page = (DOCS / "models.md").read_text(encoding="utf-8")
    shown = [
        (file, [cell.strip() for cell in cells.split("|")]) for file, cells in ROW.findall(page)
    ]
    assert {file for file, _ in shown} == {
        f"results/{path.name}" for path in (DOCS / "results").glob("*.json")
    }
    for file, (length, n, *scores) in shown:
        made = json.loads((DOCS / file).read_text(encoding="utf-8"))
        rows = {(row["system"], row["length"]): row["score"] for row in made["rows"]}
        found = [rows[system, parse_length(length)] for system in SYSTEMS]
        assert [f"{s['mean']:.2f} ({s['low']:.2f} to {s['high']:.2f})" for s in found] == scores[:4]
        assert {s["n"] for s in found} == {int(n)}
        assert made["made"]["dirty"] is False


def test_dialogues_are_those_that_are_kept() -> None:
    page = DOCS / "speedups.md"
    pairs, (before, after) = kept(KEPT), split_page(page, "make bench-dialogues")
    assert before + section(pairs) + after == page.read_text(encoding="utf-8")
    much = [pair.ratio for pair in pairs if pair.setting.turns == 50 and pair.setting.spread >= 1]
    assert len(much) == 4
    said = f"were {min(much):.1f} to {max(much):.1f} times as fast here (four readings)"
    assert said in " ".join(before.split())
