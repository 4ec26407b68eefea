"""What docs/nano.md shows is what the committed results give."""

from pathlib import Path

import pytest

from memagent.errors import ConfigError
from memagent_nano import results
from memagent_nano.page import renew, tables_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "nano.md").read_text(encoding="utf-8")
RESULTS = ROOT / "experiments" / "memagent_nano" / "results"


def test_the_page_shows_what_is_kept() -> None:
    assert renew(PAGE, tables_of(RESULTS)).splitlines() == PAGE.splitlines()


def test_the_second_trunk_is_below_the_bar_and_the_page_says_so() -> None:
    copies, changes, share = exact("trunk1/settle-2")
    said = f"{copies} of 228 copies and {changes} of 465 updates exact, {share:.1%}"
    assert said in " ".join(PAGE.split())
    _, changes, share = exact("trunk2/settle-2")
    assert f"The third got {changes}, {share:.1%} of both." in " ".join(PAGE.split())


def exact(stage: str) -> tuple[int, int, float]:
    gate = results.read(RESULTS / "pico-trunks.json").gates[stage]
    copies, changes = (round(gate[kind]["share"] * gate[kind]["n"]) for kind in ("copy", "change"))
    return copies, changes, (copies + changes) / (gate["copy"]["n"] + gate["change"]["n"])


def test_a_table_is_put_where_its_name_stands() -> None:
    page = "Before.\n\n<!-- table: arms -->\n| old |\n| - |\n| 1 |\n\nAfter | it.\n"
    assert renew(page, {"arms": "| new |\n| - |"}) == page.replace(
        "| old |\n| - |\n| 1", "| new |\n| -"
    )


@pytest.mark.parametrize("names", [(), ("arms", "arms"), ("arms", "kept")], ids=str)
def test_places_and_tables_go_together(names: tuple[str, ...]) -> None:
    page = "".join(f"<!-- table: {name} -->\n| old |\n\n" for name in names)
    with pytest.raises(ConfigError, match=r"places for the tables .*'arms'"):
        renew(page, {"arms": "| new |"})
