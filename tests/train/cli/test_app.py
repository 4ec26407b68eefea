"""The command line as a whole: light to load, and its errors are one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = ("grpo", "sft", "eval", "export", "config")


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "memagent_train", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
    )


def test_help_names_every_command_without_torch() -> None:
    code = (
        "import sys\nfrom memagent_train.cli import main\nsys.argv = ['memagent-train', '--help']\n"
        "try:\n  main()\nexcept SystemExit:\n  pass\n"
        "heavy = {'torch', 'transformers', 'trl', 'pyarrow', 'numpy', 'pydantic'} & set(sys.modules)\n"
        "print('heavy:', sorted(heavy))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "heavy: []" in done.stdout
    assert all(name in done.stdout for name in COMMANDS)


def test_version() -> None:
    assert run("--version").stdout.startswith("memagent-train ")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    done = run(command, "-h")
    assert done.returncode == 0
    assert "Usage" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("grpo", "none.toml", "--out", "x"), 2, "cannot read the settings 'none.toml'"),
        (("grpo", "empty.toml", "--out", "x"), 2, "empty.toml: model is missing"),
        (("sft", "empty.toml", "--out", "x"), 2, "traces is missing"),
        (("export", "."), 2, "nothing to write"),
        (("export", ".", "--out", "y"), 2, "is not the folder of a run"),
        (("eval", "."), 2, "give settings to evaluate it with (--config)"),
    ],
)
def test_what_is_wrong_is_told_in_lines_of_its_own(
    arguments: tuple[str, ...], code: int, says: str, tmp_path: Path
) -> None:
    (tmp_path / "empty.toml").touch()
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == code
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.toml"], "nothing was begun"
