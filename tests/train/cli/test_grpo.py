"""`memagent-train grpo` and `config`: plans, runs, and says what came of it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
import typer
from tests.train.runs.tiny import write_run

from memagent.cli.options import Display
from memagent.tasks import Sample
from memagent_train.cli.grpo import config, grpo


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    return write_run(tmp_path, optimizer={"steps": 1})


def test_config_shows_settings_that_read_back_and_the_plan(
    settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config(settings, ["batch.groups=3"], Display.PLAIN)
    shown = capsys.readouterr().out
    tables, plan = shown.split("\nrollouts per step")
    assert tomllib.loads(tables)["batch"]["groups"] == 3
    assert plan.split()[0] == "6"
    assert "memory: peak" in plan


def test_a_dry_run_begins_nothing(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grpo(settings, settings.parent / "run", dry_run=True, display=Display.JSON)
    shown = json.loads(capsys.readouterr().out)
    assert shown["settings"]["optimizer"]["steps"] == 1
    assert shown["plan"]["rollouts per step"] == "4"
    assert not (settings.parent / "run").exists()


def test_a_dry_run_refuses_what_the_run_would(settings: Path) -> None:
    file = settings.parent / "file"
    file.touch()
    with pytest.raises(typer.Exit) as caught:
        grpo(settings, file / "run", dry_run=True, display=Display.JSON)
    assert caught.value.exit_code == 5


def test_a_run_says_what_came_of_it(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held_out = ["evaluation.as_they_are=true", "evaluation.n=2"]
    grpo(settings, settings.parent / "run", held_out, display=Display.PLAIN)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("evaluated after step 0:  natural 0.")
    assert lines[1].startswith("1/1  reward 0.")
    assert any(line.startswith("trained  1 steps") for line in lines)
    assert lines[-1].endswith(
        f"memagent-train export {settings.parent}/run --out {settings.parent}/run-export"
    )


async def flat(answer: str | None, sample: Sample) -> float:
    """A reward that tells nothing."""
    return 0.5


def test_steps_without_a_gradient_are_told(
    settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use = f'reward.use="{__name__}:flat"'
    grpo(settings, settings.parent / "run", [use], display=Display.PLAIN)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("1/1  reward 0.500  no group had a signal")
    assert "no gradient  1 of these steps: no group had a signal" in lines


def test_json_is_one_object(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grpo(settings, settings.parent / "run", display=Display.JSON)
    told = json.loads(capsys.readouterr().out)
    assert (told["steps"], told["evaluations"]) == (1, {})
    assert 0 <= told["reward"] <= 1


def test_an_unknown_setting_is_an_error_in_json_too(
    settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as caught:
        grpo(settings, settings.parent / "run", ["batch.grups=3"], display=Display.JSON)
    assert caught.value.exit_code == 2
    told = json.loads(capsys.readouterr().out)
    assert "did you mean batch.groups?" in told["error"]["message"]
