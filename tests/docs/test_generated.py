"""What is generated of docs/ is what `make pages` would write now."""

from pathlib import Path

import pytest
from tests.docs.generated import DOCS, pages


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_generated_pages_are_fresh(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == pages()[page], "stale: run `make pages`"


def test_every_command_is_listed() -> None:
    text = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    for command in (
        "memagent ask",
        "memagent runs prune",
        "memagent-bench quick",
        "memagent-train grpo",
    ):
        assert f"### {command}\n" in text
