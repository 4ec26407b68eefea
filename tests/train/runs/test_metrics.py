"""A line a step, and the lines of steps that are done again are gone."""

from __future__ import annotations

import json
import math
from pathlib import Path

from memagent_train.runs import metrics


def test_lines_come_back_in_order(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    metrics.append(file, 1, {"reward": 0.5, "evaluation": {"8192": {"mean": 0.25}}})
    metrics.append(file, 2, {"reward": math.nan})
    assert metrics.read(file) == [
        {"step": 1, "reward": 0.5, "evaluation": {"8192": {"mean": 0.25}}},
        {"step": 2, "reward": None},
    ]
    assert [json.loads(line)["step"] for line in file.read_text().splitlines()] == [1, 2]


def test_a_cut_forgets_later_steps_and_the_half_line_of_a_killed_process(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    for step in (1, 2, 3):
        metrics.append(file, step, {"reward": step / 10})
    with file.open("a") as opened:
        opened.write('{"step": 4, "rew')
    metrics.cut(file, 2)
    assert [line["step"] for line in metrics.read(file)] == [1, 2]
    assert file.read_text().count("\n") == 2


def test_without_a_file_there_is_nothing_to_read_or_cut(tmp_path: Path) -> None:
    metrics.cut(tmp_path / "none", 3)
    assert metrics.read(tmp_path / "none") == []
    assert list(tmp_path.iterdir()) == []


def test_lines_that_are_no_figures_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(b'[1]\n{"reward": 1}\n{"step": "x"}\n\xff\n{"step": 1}\n')
    assert metrics.read(file) == [{"step": 1}]
