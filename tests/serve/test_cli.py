"""`memagent serve` as people call it: what it refuses before it listens."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from memagent.cli.app import app
from memagent_serve import command

Invoke = Callable[..., Result]


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Runs a command in this process."""
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*args: object) -> Result:
        return CliRunner().invoke(app, [str(arg) for arg in args])

    return run


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "0:0:0:0:0:0:0:0", "192.168.0.7", "example.org", "127.0.0.1.nip.io"]
)
def test_other_addresses_need_keys(invoke: Invoke, host: str) -> None:
    done = invoke("serve", "extractive", "--host", host)
    assert done.exit_code == 2
    assert "needs keys" in done.stderr


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no key"),
        ("# only a comment\n", "has no key"),
        ("a key with blanks\n", "has a blank"),
    ],
)
def test_keys_that_are_none(invoke: Invoke, tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "keys").write_text(text)
    done = invoke("serve", "extractive", "--keys", tmp_path / "keys")
    assert done.exit_code == 2
    assert why in done.stderr
    assert "a key with blanks" not in done.stderr


def test_keys_may_stand_in_the_env_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"{command.KEYS}=one,two\n")
    monkeypatch.delenv(command.KEYS, raising=False)
    assert command.Serve(host="0.0.0.0").list_keys() == ("one", "two")
    monkeypatch.setenv(command.KEYS, "three")
    assert command.Serve().list_keys() == ("three",)


def test_a_file_of_keys_that_is_not_there(invoke: Invoke, tmp_path: Path) -> None:
    done = invoke("serve", "extractive", "--keys", tmp_path / "none")
    assert done.exit_code == 2
    assert "cannot be read" in done.stderr


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["none:such"], "does not say where it runs"),
        (["extractive", "--prompts", "nope"], "nope"),
        (["extractive", "--temperature", "-1"], "temperature"),
        (["extractive", "--max-body", "0"], "max-body"),
    ],
)
def test_settings_are_checked_before_it_listens(invoke: Invoke, given: list[str], why: str) -> None:
    done = invoke("serve", *given)
    assert done.exit_code == 2
    assert why in done.stderr


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        line = [sys.executable, "-m", "memagent", "serve", "extractive", "--port", port]
        done = subprocess.run(
            line, capture_output=True, text=True, timeout=60, check=False, env=os.environ.copy()
        )
    assert done.returncode == 2
    assert "choose another" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch, invoke: Invoke) -> None:
    monkeypatch.setattr(command, "find_spec", lambda _: None)
    done = invoke("serve", "extractive")
    assert done.exit_code == 2
    assert "memagent[serve]" in done.stderr


def test_other_commands_do_not_need_it() -> None:
    code = "import sys, memagent.cli.app; print({'starlette', 'uvicorn'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
