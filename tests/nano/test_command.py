import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memagent_nano import command, material, measure
from memagent_nano.asked import Course
from memagent_nano.command import app
from memagent_nano.measure import Cell, gate_file, kept_file
from memagent_nano.sizes import PICO, Size
from memagent_nano.stages import Place, Stage

FEW = ("batch.rows=4", "checkpoints.every=1", "optimizer.warmup_steps=0")
COURSE = {
    stage.name: stage
    for stage in (
        Stage("new", "new"),
        Stage("copy", "sft", "new", "copies", 1, FEW),
        Stage("shown", "sft", "copy", "copies", 1, FEW),
        Stage("other", "sft", "copy", "copies", 1, FEW),
    )
}


def run(*arguments: str) -> str:
    ended = CliRunner().invoke(app, arguments)
    assert ended.exit_code == 0, ended.output
    return ended.output


@pytest.fixture
def course(tiny: Size, in_process: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A course that takes no time. Gives the commands that stages run."""
    monkeypatch.setattr(command, "arms", lambda _: COURSE)
    monkeypatch.setattr(material, "COPIES", 20)
    monkeypatch.setattr(measure, "cells", lambda _: [Cell("once", 448, 2)])
    return in_process


def test_what_is_missing_is_trained_and_measured(
    course: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path.parent)
    out = ("pico", "--out", tmp_path.name, "--jobs", "1")
    said = run("train", *out, "--seeds", "1", "--only", "shown")
    assert "3 stages to train, 0 there already" in said
    assert said.index("lessons copies: begun") < said.index("lessons copies: written")
    assert f"trunk copy: begun; its log is {tmp_path / 'trunk' / 'copy' / 'log.txt'}" in said
    assert "seed 1 shown: done" in said
    assert "; 0 of 3 left" in said
    assert course == ["sft", "export"] * 2
    assert not (tmp_path / "seed-1" / "other").exists()

    # All seeds begin with the same copies.
    said = run("train", *out, "--seeds", "1,2", "--only", "shown")
    assert "1 stage to train, 2 there already" in said
    assert "seed 2 shown: done" in said

    said = run("train", *out, "--seeds", "1,1", "--only", "shown,copy")
    assert "0 stages to train, 2 there already" in said

    # What comes before a policy that is there is not needed.
    shutil.rmtree(tmp_path / "trunk" / "new")
    said = run("train", *out, "--seeds", "2", "--only", "other")
    assert "1 stage to train, 1 there already" in said

    place = Place(tmp_path, PICO, 1)
    for stage in ("copy", "shown"):
        for file in (gate_file, kept_file):
            file(place, stage).write_text("{}")
    said = run("measure", *out, "--seeds", "0,1", "--only", "shown,copy")
    assert "not trained yet, left out: seed 0 shown" in said
    assert "2 policies to measure, 0 measured already" in said
    lines = (tmp_path / "seed-1/shown/measured/once-448.jsonl").read_text().splitlines()
    assert [json.loads(line)["task"] for line in lines] == ["once", "once"]
    # Without names, what no table shows is left out.
    assert "0 policies to measure, 1 measured already" in run("measure", *out, "--seeds", "1")


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (("train", "mega"), "give one of pico, nano"),
        (
            ("train", "pico", "--only", "shown,nope"),
            "--only names no stage ['nope']: this size has",
        ),
        (("train", "pico", "--seeds", "0,x"), "--seeds '0,x': give numbers from 0 on"),
        (("train", "pico", "--seeds", ""), "--seeds ''"),
        (("train", "pico", "--seeds", "-1"), "--seeds '-1'"),
        (("measure", "pico"), "has no policy to measure: train it first"),
        (("measure-one", "pico", "0", "shown"), "train it first"),
        (("measure-one", "pico", "0", "direct"), "train it first"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_is_wrong_is_said_with_a_remedy(
    tmp_path: Path, arguments: tuple[str, ...], remedy: str
) -> None:
    ended = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "out")])
    assert ended.exit_code == 2
    assert remedy in ended.output
    assert "Traceback" not in ended.output
    assert not (tmp_path / "out").exists()


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    ended = CliRunner().invoke(app, ["train", "pico", "--out", str(tmp_path / "out")])
    assert ended.exit_code == 2
    assert "give another --out" in ended.output


def test_what_ended_is_resumed_by_its_own_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys, "argv", ["experiments/memagent_smol/__main__.py", "measure", "--n", "4"]
    )
    assert Course().resume_command(None) == "python -m memagent_smol measure --n 4"


def test_ctrl_c_ends_the_children_and_says_how_to_go_on(tmp_path: Path) -> None:
    place = Place(tmp_path, PICO, 0)
    for stage in ("new", "echo"):
        place.policy(stage).mkdir(parents=True)
        (place.policy(stage) / "config.json").write_text("{}")
    place.lessons.mkdir()
    (place.lessons / "copies.jsonl").write_text("{}\n")
    arguments = ["-m", "memagent_nano", "train", "pico", "--out", str(tmp_path), "--only", "copy"]
    child = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(command.__file__).parents[1])},
    )
    log, deadline = place.log("copy"), time.monotonic() + 60
    while not log.is_file():  # from here on the stage imports torch for seconds
        assert time.monotonic() < deadline
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    said, _ = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "trunk copy: begun" in said
    assert "Resume with: python -m memagent_nano train pico" in said
    assert "Traceback" not in said
