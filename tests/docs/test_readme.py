"""What a stranger finds at the top of README.md, and that its pictures are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "heading",
    ["What it does", "When not to use it", "Start it with vLLM", "Resume", "What it costs"],
)
def test_the_first_80_lines_answer(heading: str) -> None:
    assert f"## {heading}" in README.splitlines()[:80]


def test_the_readme_fits_on_two_screens() -> None:
    assert len(README.splitlines()) <= 140


def test_pictures_are_there_for_both_themes() -> None:
    pictures = re.findall(r'(?:src|srcset)="([^"]+)"', README)
    assert len(pictures) == 2
    assert [name for name in pictures if not (ROOT / name).is_file()] == []
