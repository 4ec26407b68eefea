"""Where metrics go besides the folder, and what is said where a package is missing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from memagent.errors import ConfigError
from memagent_train.config.sections import LoggingSettings
from memagent_train.runs.reports import report_targets


def test_by_default_nothing_is_sent() -> None:
    with report_targets(LoggingSettings()) as names:
        assert names == ()


def test_a_missing_package_is_named_with_the_remedy() -> None:
    with (
        pytest.raises(ConfigError, match=r"logging.trackio = true.*pip install trackio"),
        report_targets(LoggingSettings(trackio=True)),
    ):
        pass


def test_installed_ones_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("trackio", "wandb"):
        (tmp_path / f"{name}.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("WANDB_PROJECT", "")
    monkeypatch.delenv("WANDB_PROJECT")
    for project in ("mine", "another"):
        settings = LoggingSettings(trackio=True, wandb=True, project=project)
        with report_targets(settings) as names:
            assert names == ("trackio", "wandb")
            assert os.environ["WANDB_PROJECT"] == project
    monkeypatch.setenv("WANDB_PROJECT", "of the shell")
    with report_targets(LoggingSettings(wandb=True, project="mine")):
        assert os.environ["WANDB_PROJECT"] == "of the shell"
    assert os.environ["WANDB_PROJECT"] == "of the shell"
