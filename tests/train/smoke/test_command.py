import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from memagent_train.smoke.command import tell
from memagent_train.smoke.findings import Findings, Reward

LOW, HIGH = Reward(0.3, 0.25, 0.36), Reward(0.9, 0.86, 0.93)
GOOD = Findings(before=LOW, after=HIGH, control=LOW, longer_before=LOW, longer_after=HIGH)


def test_the_last_line_shows_both_intervals(capsys: pytest.CaptureFixture[str]) -> None:
    assert tell(GOOD, 61.0) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == GOOD.summary
    assert [line for line in lines if "FAILED" in line] == []


def test_a_claim_that_fails_is_named_and_makes_the_exit_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert tell(replace(GOOD, after=LOW), 61.0) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("held-out reward")
    assert "FAILED  GRPO helps: after > before" in lines


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "memagent_train.smoke", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    ended = run("--out", str(tmp_path))
    assert ended.returncode == 2
    assert "is not empty" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_help_says_what_it_is() -> None:
    ended = run("--help")
    assert ended.returncode == 0
    assert "GRPO must help" in ended.stdout
