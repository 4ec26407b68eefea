"""`memagent-train export`: says what it wrote and where."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.train.runs.tiny import write_run

from memagent.cli.options import Display
from memagent_train.cli.export import export
from memagent_train.config.train import load_train
from memagent_train.runs.grpo import train


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = write_run(tmp_path_factory.mktemp("export"), optimizer={"steps": 1})
    return train(load_train(file), file.parent / "run").out


def test_weights_and_trajectories(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export(run, tmp_path / "out", trajectories=tmp_path / "t.jsonl", display=Display.JSON)
    told = json.loads(capsys.readouterr().out)
    assert (told["step"], told["out"]) == (1, str(tmp_path / "out"))
    assert told["conversations"] == len((tmp_path / "t.jsonl").read_text().splitlines())
    assert (tmp_path / "out" / "model.safetensors").exists()


def test_a_signal_leaves_nothing_behind(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "memagent_train.runs.export.check_export",
        lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM),
    )
    with pytest.raises(typer.Exit) as caught:
        export(run, tmp_path / "out")
    assert caught.value.exit_code == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


def test_trajectories_alone(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export(run, trajectories=tmp_path / "t.jsonl", display=Display.PLAIN)
    assert capsys.readouterr().out.startswith("trajectories  ")
    assert [path.name for path in tmp_path.iterdir()] == ["t.jsonl"]


def test_a_folder_for_trajectories_is_refused_before_weights_are_written(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as caught:
        export(run, tmp_path / "out", trajectories=tmp_path)
    assert caught.value.exit_code == 2
    assert f"cannot write --trajectories {str(tmp_path)!r}: it is a folder" in (
        " ".join(capsys.readouterr().err.split())
    )
    assert list(tmp_path.iterdir()) == []


def test_a_step_without_a_checkpoint_is_an_error(run: Path, tmp_path: Path) -> None:
    with pytest.raises(typer.Exit) as caught:
        export(run, tmp_path / "out", checkpoint=7)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"adapter": True}, "--adapter is about weights"),
        ({"checkpoint": 1, "dtype": "float16"}, "--checkpoint, --dtype is about weights"),
    ],
)
def test_options_of_weights_need_a_folder_for_them(
    tmp_path: Path, options: dict[str, Any], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as caught:
        export(tmp_path, trajectories=tmp_path / "t.jsonl", **options)
    assert caught.value.exit_code == 2
    assert named in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
