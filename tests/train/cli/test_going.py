"""How a command that trains ends early."""

from __future__ import annotations

import signal
import sys

import pytest
import typer

from memagent.cli.options import Display
from memagent.errors import ConfigError
from memagent_train.cli.going import Going, display_of, training
from memagent_train.errors import RewardFailed
from memagent_train.runs.signals import Signalled


@pytest.fixture(autouse=True)
def command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["memagent-train", "grpo", "my run.toml", "--out", "run"])


def ended(
    error: BaseException, capsys: pytest.CaptureFixture[str], *, begun: bool
) -> tuple[int, str]:
    with pytest.raises(typer.Exit) as caught, training(Going(begun=begun)):
        raise error
    return caught.value.exit_code, capsys.readouterr().err


def test_an_error_in_training_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = ended(RewardFailed("no reward"), capsys, begun=True)
    assert code == 1
    assert said == "error: no reward\nresume with: memagent-train grpo 'my run.toml' --out run\n"


def test_what_was_not_begun_cannot_be_gone_on_with(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(ConfigError("wrong"), capsys, begun=False) == (2, "error: wrong\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_has_its_own_code(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = ended(Signalled(number), capsys, begun=True)
    assert code == 128 + number
    assert "Resume with: memagent-train grpo 'my run.toml'" in said


def test_only_the_first_process_shows_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    assert display_of(Display.JSON) is Display.JSON
    monkeypatch.setenv("RANK", "1")
    assert display_of(Display.JSON) is Display.NONE
