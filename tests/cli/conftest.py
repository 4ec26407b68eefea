"""The command as people run it (a process of its own), and quickly (in this process)."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.models.chat_server import Script, running
from typer.testing import CliRunner, Result

from memagent.cli.app import app

Process = Callable[..., "subprocess.CompletedProcess[str]"]
Invoke = Callable[..., Result]
QUESTION = "Where was Ada Lovelace born?"
FACT = "Ada Lovelace was born in London in December 1815."


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A text of some 20 chunks in a window of 2048; the answer to `QUESTION` is in the middle."""
    lines = [f"The harvest of year {n} was counted by clerk {n % 7} at noon." for n in range(300)]
    lines[150] = FACT
    path = tmp_path / "book.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def memagent(tmp_path: Path) -> Process:
    """Runs `python -m memagent` to its end."""

    def run(*args: str | Path, stdin: bytes = b"", **environ: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "memagent", *map(str, args)],
            input=stdin,
            capture_output=True,
            timeout=60,
            cwd=tmp_path,
            env=os.environ | {"COLUMNS": "100", "TERM": "xterm"} | environ,
            check=False,
        )
        return subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
        )

    return run


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Runs a command in this process; its outputs are no terminals."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*args: str | Path, stdin: bytes | None = None) -> Result:
        return CliRunner().invoke(app, [str(arg) for arg in args], input=stdin)

    return run


@pytest.fixture
def made(invoke: Invoke, book: Path) -> str:
    """A finished run in the default store, of one question with the update gate."""
    done = invoke(
        *("ask", book, QUESTION, "--model", "extractive", "--window", "2048"),
        *("--gate", "update", "--run-id", "made", "--display", "none"),
    )
    assert done.exit_code == 0, done.output
    return "made"


@pytest.fixture
def server() -> Iterator[Script]:
    """A chat server; its script says how it behaves."""
    with running() as script:
        yield script


@pytest.fixture
def served(server: Script) -> list[str]:
    """The options that name the server's model."""
    return [
        "--model",
        "openai:x",
        "--base-url",
        server.url,
        "--window",
        "2048",
        "--tokenizer",
        "bytes",
    ]


class Started:
    """A command that is still running."""

    def __init__(self, args: list[str | Path], cwd: Path, stdin: int | None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "memagent", *map(str, args)],
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            text=True,
        )

    def lines(self, number: int) -> list[str]:
        """The next lines of standard output, as they come."""
        assert self.process.stdout is not None
        return [self.process.stdout.readline().rstrip() for _ in range(number)]

    def signal(self, number: signal.Signals) -> tuple[int, str, str]:
        """Sends a signal and waits: exit code, rest of standard output, standard error."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=20)
        return self.process.returncode, out, err


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Started]]:
    """Starts a command and does not wait for it."""
    running: list[Started] = []

    def run(*args: str | Path, stdin: int | None = None) -> Started:
        running.append(Started(list(args), tmp_path, stdin))
        return running[-1]

    yield run
    for started in running:
        if started.process.poll() is None:
            started.process.kill()
        started.process.communicate()


def run_id_of(output: str) -> str:
    """The id in the first line of a plain display."""
    return output.split("\n", 1)[0].removeprefix("run ").partition(":")[0]


def only_json(output: str) -> Any:
    """Standard output, which is one JSON value and nothing else."""
    assert output.endswith("\n")
    assert output.count("\n") == 1
    return json.loads(output)
