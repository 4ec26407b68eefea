"""Makes a page and pictures from folders of records."""

from __future__ import annotations

import re
import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from memagent.errors import ConfigError
from memagent.replacing import replacing
from memagent_bench.record import Record
from memagent_bench.records import read_records
from memagent_bench.report.cautions import cautions
from memagent_bench.report.cells import Suite, sort_records
from memagent_bench.report.charts import png
from memagent_bench.report.heatmap import heat_map_png
from memagent_bench.report.page import page
from memagent_bench.report.primary import primary_tests
from memagent_bench.report.spreadsheet import spreadsheet
from memagent_bench.report.summary import summary
from memagent_bench.report.view import View, view

PAGE, TABLE = "report.html", "results.csv"
DEFAULT_MARGIN = 5.0
"""Margin of non-inferiority in points: what this project calls a small loss."""
BASELINE = "memory"
"""The default baseline if present: the system that this project is about."""


@dataclass(frozen=True)
class Report:
    """The files written."""

    page: Path
    table: Path
    """Path of the same scores as CSV."""
    pictures: tuple[Path, ...]
    summary: tuple[str, ...]
    """Two paragraphs per suite, as on the page."""
    cautions: tuple[str, ...]


def make_report(
    folders: Sequence[Path],
    out: Path,
    *,
    primary: Sequence[str] = (),
    margin: float = DEFAULT_MARGIN,
    baseline: str | None = None,
) -> Report:
    """Writes `report.html`, `results.csv` and PNG files.

    Args:
        folders: each with a `results.jsonl`; the same folder twice counts once.
        out: the folder to write to, created if needed. Files of the same names are replaced atomically.
        primary: cells to test, `TASK@LENGTH` or `mean@LENGTH`; none: the mean at the longest shared length.
        margin: of non-inferiority, in points.
        baseline: the system to compare the others with, by its label on the page (its name, and its model if
            there are several); None: `memory`, else the first system.

    Raises:
        ConfigError: there is no folder or record; a margin, cell or baseline is invalid; or `out` cannot be written.
        StoreError: a folder has no records that can be read.
    """
    if not 0 < margin <= 100:
        raise ConfigError(f"margin must be between 0 and 100 points (5 is usual), got {margin!r}")
    named = _read(folders)
    suites = sort_records(named)
    labels = tuple(dict.fromkeys(label for suite in suites for label in suite.labels))
    fraction = margin / 100
    baselines = {suite.name: _baseline(suite, baseline, labels) for suite in suites}
    tests = primary_tests(suites, baselines, primary, fraction)
    views = [view(suite, baselines[suite.name], labels, fraction) for suite in suites]
    warned = cautions(suites)
    with make_folder(out), _quiet_fonts():
        html = page(views, tests, warned, margin=fraction, named=bool(primary), folders=list(named))
        pictures = [
            write_whole(out / f"{name}.png", data)
            for suite_view in views
            for name, data in _pictures(suite_view)
        ]
        table = write_whole(out / TABLE, spreadsheet(views))
        # Last, so that a page always has its pictures beside it.
        written = write_whole(out / PAGE, html.encode("utf-8", "replace"))
    return Report(
        written,
        table,
        tuple(pictures),
        tuple(
            text for suite_view in views for text in summary(suite_view, tests, fraction) if text
        ),
        tuple(warned),
    )


def name_folders(folders: Sequence[Path]) -> dict[str, Path]:
    """Returns each folder once, by its name, or by its path if two have the same name.

    Raises:
        ConfigError: there is none.
    """
    paths = list(dict.fromkeys(Path(folder).resolve() for folder in folders))
    if not paths:
        raise ConfigError(
            "no folder to report on was given; name one written by a benchmark (--out)"
        )
    names = [path.name for path in paths]
    return {path.name if names.count(path.name) == 1 else str(path): path for path in paths}


def _read(folders: Sequence[Path]) -> dict[str, list[Record]]:
    by_name = {name: read_records(path) for name, path in name_folders(folders).items()}
    if not any(by_name.values()):
        raise ConfigError(
            f"there are no records yet in {', '.join(map(repr, by_name))}: run the benchmark first"
        )
    return {name: records for name, records in by_name.items() if records}


def _baseline(suite: Suite, name: str | None, labels: Sequence[str]) -> str:
    if name is not None:
        if name not in labels:
            raise ConfigError(
                f"baseline={name!r} is not one of the systems: {', '.join(map(repr, labels))}"
            )
        if name in suite.labels:
            return name
    return next(
        (label for label in suite.labels if label.split(" · ")[0] == BASELINE), suite.labels[0]
    )


def _pictures(of: View) -> Iterator[tuple[str, bytes]]:
    for chart in (*of.charts, *(chart for _, chart in of.overlays)):
        yield _file_name(chart.name), png(chart)
    names: set[str] = set()
    for heat in (*of.heat_maps, *of.depth_maps):
        name = _file_name(f"{of.suite.name}-{heat.kind}s-{_file_name(heat.label)}")
        while name in names:
            name += "-"
        names.add(name)
        yield name, heat_map_png(heat, of.title)


def _file_name(text: str) -> str:
    """Keeps letters, digits, dots and hyphens: a model's name may contain a slash."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.")[:80] or "system"


@contextmanager
def make_folder(out: Path) -> Generator[None]:
    """Makes the folder of a report.

    Raises:
        ConfigError: it can't be created, or the block can't write its files.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise ConfigError(
            f"the report cannot be written to {str(out)!r}: {error.strerror or error}"
        ) from error


@contextmanager
def _quiet_fonts() -> Generator[None]:
    """Silences warnings of missing glyphs: the PNG files show boxes instead; the page is right."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+", category=UserWarning)
        yield


def write_whole(path: Path, data: bytes) -> Path:
    """Writes a file atomically: a reader sees the old or the new one, and two reports never mix within a file."""
    with replacing(path) as new:
        new.write_bytes(data)
    return path
