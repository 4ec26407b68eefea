"""A measurement: what was measured, its target, and the values."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

from memagent.errors import ConfigError
from memagent.tasks.origin import machine

SMALL_TOKENIZER = Path(__file__).parents[3] / "tests/data/tokenizer/tokenizer.json"


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    values: Sequence[float]
    """Repeated measurements of this run; the table shows median, smallest and largest."""
    unit: str = ""
    least: float = -inf
    """Target of the median, with `most`; no target if neither is set."""
    most: float = inf

    @property
    def good(self) -> bool | None:
        """Whether the median meets the target; None without a target."""
        if (self.least, self.most) == (-inf, inf):
            return None
        return self.least <= statistics.median(self.values) <= self.most

    @property
    def _target(self) -> str:
        least, most = (f"{end:g} {self.unit}".strip() for end in (self.least, self.most))
        if self.least > -inf and self.most < inf:
            return f"{self.least:g} to {most}"
        return f">= {least}" if self.least > -inf else f"<= {most}" if self.most < inf else ""

    def cells(self) -> tuple[str, str, str, str, str]:
        """Returns the table's columns: what, target, median, spread, verdict."""
        middle = statistics.median(self.values)
        spread = f"{_show(min(self.values))} to {_show(max(self.values))} (n={len(self.values)})"
        verdict = {None: "", True: "yes", False: "NO"}[self.good]
        return self.what, self._target, f"{_show(middle)} {self.unit}".strip(), spread, verdict


def _show(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def table(rows: Sequence[Row]) -> str:
    """Returns the rows as a Markdown table."""
    return markdown(
        [("measured", "target", "median", "spread", "met"), *(row.cells() for row in rows)]
    )


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table; the first line is its header."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    dashes = ["-" * len(cell) for cell in lines[0]]
    return "\n".join(
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in (lines[0], dashes, *lines[1:])
    )


def measure_resident(field: str = "VmHWM") -> float:
    """Measures resident memory of this process in MiB: `VmRSS` now, `VmHWM` at its peak."""
    # Not getrusage: its peak is inherited from the process that started this one.
    status = Path("/proc/self/status").read_text()
    return int(dict(line.split(":", 1) for line in status.splitlines())[field].split()[0]) / 1024


def page_parser(doc: str | None) -> argparse.ArgumentParser:
    """Returns a measurement's command-line parser; `write` is the page to update."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--write", type=Path, help="put the table into this page")
    return parser


def publish(
    rows: Sequence[Row], command: str = "", page: Path | None = None, where: str = ""
) -> int:
    """Prints the table, and puts it into a page if one is given.

    Args:
        rows: the measurements.
        command: `make bench`, say; needed with a page.
        page: must already contain the marks of the command.
        where: the machine, and what else the reader should know; default the machine alone.

    Returns:
        The exit code: 1 if a target is missed.
    """
    show(f"{where or machine()}\n\n{table(rows)}\n", command, page)
    return int(any(row.good is False for row in rows))


def show(section: str, command: str, page: Path | None) -> None:
    """Prints a text and, if a page is given, writes it there between the marks of the command that measured it.

    Raises:
        ConfigError: as `split_page`.
    """
    print(section, flush=True)
    if page is not None:
        before, after = split_page(page, command)
        page.write_text(before + section + after)


def split_page(page: Path, command: str) -> tuple[str, str]:
    """Returns a page up to the end of a command's first mark, and from its second mark.

    Raises:
        ConfigError: the page cannot be read, or lacks a mark.
    """
    begin, end = f"<!-- measured: {command} -->\n", "<!-- end of measured -->"
    try:
        head, tail = page.read_text().split(begin)
        return head + begin, end + tail.split(end, 1)[1]
    except OSError as error:
        raise ConfigError(f"cannot read the page {str(page)!r}: {error.strerror}") from error
    except (ValueError, IndexError) as error:
        raise ConfigError(
            f"{str(page)!r} needs the lines {begin.strip()!r} and {end!r}, once: the table goes between them"
        ) from error
