"""What the tests of commands share."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.bench.fakes import squad_file
from tests.models.chat_server import Script, running
from typer.testing import CliRunner, Result

from memagent_bench.cli.app import app


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs a command in this process; its outputs are no terminals."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")

    def run(*args: str | Path) -> Result:
        return CliRunner().invoke(app, [str(arg) for arg in args])

    return run


@pytest.fixture
def server() -> Iterator[Script]:
    with running() as script:
        yield script


@pytest.fixture
def squad(tmp_path: Path) -> Path:
    return squad_file(tmp_path / "squad.json")
