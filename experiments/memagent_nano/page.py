"""The page with the committed results: its tables and pictures are generated, its text isn't."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from memagent.errors import ConfigError
from memagent_nano import plots, readings, results, survival, tables
from memagent_nano.sizes import PICO
from memagent_nano.survival import Forecast

PLACE = re.compile(r"(<!-- table: (.+) -->\n)((?:\|.*\n)*)")
"""A named table."""
CURVE = "nano-shown-dense"
"""Curve of the shipped policy, the only one with pictures."""
HAZARDS = {
    CURVE: "hazards",
    "nano-fresh": "hazards of other documents",
    "nano-gated": "hazards with the gate",
}
"""Curve -> name of its table of hazards."""


def tables_of(folder: Path) -> dict[str, str]:
    """Returns the tables by name: those of `pico.json`, and of each curve under its file's name. See `renew`.

    The table of competing notes is from `pico-trunks.json`, whose seeds have their own trunks.

    Raises:
        ConfigError: a file cannot be read, or has another form.
    """
    texts = tables.make_tables(results.read(folder / "pico.json"), PICO)
    of_trunks = tables.make_tables(results.read(folder / "pico-trunks.json"), PICO)
    texts["competing notes"] = of_trunks["competing notes"]
    for file in sorted(folder.glob("*.jsonl")):
        trials = readings.read(file)
        texts[file.stem] = tables.forecasts(_read_said(file), survival.points(trials))
        if name := HAZARDS.get(file.stem):
            texts[name] = tables.hazards(survival.hazards(trials))
    return texts


def renew(text: str, found: Mapping[str, str]) -> str:
    """Returns a page with updated tables.

    Args:
        text: Markdown, with a comment `<!-- table: NAME -->` above each table.
        found: tables by name.

    Raises:
        ConfigError: the page lacks a place for one of them, or has a place for another.
    """
    places = [place[1] for place in PLACE.findall(text)]
    if sorted(places) != sorted(found):
        raise ConfigError(
            f"the page has places for the tables {sorted(places)}, and there are {sorted(found)}: "
            f"give each one `<!-- table: NAME -->`, in a line of its own"
        )
    return PLACE.sub(lambda place: f"{place[1]}{found[place[2]]}\n", text)


def draw(folder: Path, images: Path) -> None:
    """Draws learning curves, and answers by length and by depth. Blocks.

    Raises:
        ConfigError: as `tables_of`.
    """
    curve = folder / f"{CURVE}.jsonl"
    trials = readings.read(curve)
    plots.learning(results.read(folder / "pico.json"), images / "pico-learning.png")
    plots.survival(survival.points(trials), _read_said(curve), images / "nano-survival.png")
    plots.depths(trials, images / "nano-depths.png")


def _read_said(curve: Path) -> list[Forecast]:
    """Reads the forecasts made for a curve before it was measured, if any."""
    file = curve.with_suffix(".said.json")
    return survival.read(file) if file.is_file() else []
