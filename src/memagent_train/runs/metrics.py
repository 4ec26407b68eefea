"""`metrics.jsonl`: a line of figures per step."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from memagent.replacing import replacing

EVALUATION = "evaluation"
"""Key of an evaluation's line: means by length."""


def append(file: Path, step: int, figures: Mapping[str, Any]) -> None:
    """Adds a line, in one write: a killed process leaves at most one broken line, the last.

    Args:
        file: created if missing.
        step: batches of rollouts so far.
        figures: plain data; non-finite numbers are written as null.

    Raises:
        OSError: the file can't be written.
    """
    line = json.dumps(
        {"step": step, **_drop_infinite(figures)}, ensure_ascii=False, allow_nan=False
    )
    with file.open("a", encoding="utf-8") as opened:
        opened.write(line + "\n")


def read(file: Path) -> list[dict[str, Any]]:
    """Reads all complete lines, in order; none if there is no file."""
    if not file.exists():
        return []
    lines: list[dict[str, Any]] = []
    for line in file.read_bytes().splitlines():
        try:
            figures: Any = json.loads(line)
        except ValueError:
            continue
        if isinstance(figures, dict) and isinstance(figures.get("step"), int):
            lines.append(cast("dict[str, Any]", figures))
    return lines


def list_evaluated(file: Path) -> set[int]:
    """Returns the steps with a complete evaluation."""
    return {line["step"] for line in read(file) if EVALUATION in line}


def cut(file: Path, step: int) -> None:
    """Removes lines after a step, and broken lines; later steps will be redone."""
    if not file.exists():
        return
    lines = [line for line in read(file) if line["step"] <= step]
    with replacing(file) as new, new.open("w", encoding="utf-8") as opened:
        opened.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        opened.flush()
        os.fsync(opened.fileno())


def _drop_infinite(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _clean(value) for name, value in figures.items()}


def _clean(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _drop_infinite(cast("Mapping[str, Any]", value))
    if isinstance(value, float) and value - value != 0:
        return None
    return value
