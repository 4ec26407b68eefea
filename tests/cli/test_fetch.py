"""`memagent fetch`: asks before it downloads, and never where nobody can answer."""

from pathlib import Path

import pytest
from tests.cli.conftest import Invoke


@pytest.fixture(autouse=True)
def no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_without_a_terminal_it_wants_yes(invoke: Invoke, tmp_path: Path) -> None:
    done = invoke("fetch", "smol")
    assert done.exit_code == 2
    assert "give --yes" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_other_models_are_not_fetched(invoke: Invoke) -> None:
    done = invoke("fetch", "nano")
    assert done.exit_code == 2
    assert "'smol' can" in done.stderr


def test_a_model_that_was_not_fetched_names_the_command(invoke: Invoke, tmp_path: Path) -> None:
    document = tmp_path / "a.txt"
    document.write_text("Some text.")
    done = invoke("ask", document, "What?", "--model", "smol")
    assert done.exit_code == 2
    assert "`memagent fetch smol`" in done.stderr
