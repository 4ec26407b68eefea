"""`memagent fetch`: asks before it downloads, and never where nobody can answer."""

import os
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Invoke
from tests.cli.pseudo_terminal import converse, texts


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The packages of the extra, as far as one can find them: nothing here imports them."""
    folder = tmp_path / "packages"
    folder.mkdir()
    for name in ("torch", "transformers", "gguf"):
        (folder / f"{name}.py").touch()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text("Some text.")
    return path


@pytest.mark.usefixtures("packages")
def test_without_a_terminal_it_wants_yes(invoke: Invoke, cache: Path) -> None:
    done = invoke("fetch", "smol")
    assert done.exit_code == 2
    assert "give --yes" in done.stderr
    assert not cache.exists()


def test_nothing_is_asked_or_fetched_without_the_packages(
    invoke: Invoke, document: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    for command in (("fetch", "smol", "--yes"), ("ask", document, "What?", "--model", "smol")):
        done = invoke(*command)
        assert done.exit_code == 2
        assert "needs the extra 'transformers'" in done.stderr


def test_other_models_are_not_fetched(invoke: Invoke) -> None:
    done = invoke("fetch", "nano")
    assert done.exit_code == 2
    assert "only 'smol'" in done.stderr


@pytest.mark.usefixtures("packages")
def test_a_model_that_was_not_fetched_names_the_command(invoke: Invoke, document: Path) -> None:
    for command in (("ask", document, "What?"), ("demo",)):
        done = invoke(*command, "--model", "smol")
        assert done.exit_code == 2
        assert "`memagent fetch smol`" in done.stderr


COMMANDS = {
    "ask": ("memagent", "ask", "a.txt", "What?", "--model", "smol"),
    "trained": ("memagent", "ask", "a.txt", "What?", "--model", "smol:trained"),
    "demo": ("memagent", "demo", "--model", "smol"),
    "bench": ("memagent_bench", "quick", "--model", "smol", "--out", "out"),
    "fetch": ("memagent", "fetch"),
}
NO = "'smol' was not fetched: name another model"


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize(
    ("command", "typed", "code", "said"),
    [
        *((command, b"n\r", 2, NO) for command in COMMANDS),
        ("fetch", b"\r", 2, NO),
        ("fetch", b"\x03", 130, "interrupted."),
        ("fetch", b"\x04", 130, "interrupted."),
    ],
)
def test_on_a_terminal_it_asks(
    command: str, typed: bytes, code: int, said: str, document: Path, tmp_path: Path
) -> None:
    line = [sys.executable, "-m", *COMMANDS[command]]
    found, screen = converse(line, document.parent, until="[y/N]:", typed=typed)
    assert found == code, screen
    for words in ("pip downloads 93 MB", said):
        assert words in " ".join(texts(screen).split())
    assert not (tmp_path / "memagent").exists(), "nothing was made"
    assert not (tmp_path / "out").exists()
