"""`memagent-train eval`: a table, or one object; and a caution where samples may have been trained on."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import typer
from tests.train.runs.tiny import PROMPTS, write_run

from memagent.cli.options import Display
from memagent.prompts import PromptSet
from memagent_train.cli.evaluate import evaluate
from memagent_train.config.toml import read_toml
from memagent_train.config.train import TrainConfig, load_train
from memagent_train.runs.evaluate import Cell
from memagent_train.runs.grpo import train
from memagent_train.runs.target import Target


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    held_out = {"as_they_are": True, "n": 3, "at_start": False}
    file = write_run(tmp_path_factory.mktemp("eval"), optimizer={"steps": 1}, evaluation=held_out)
    return train(load_train(file), file.parent / "run").out


def test_a_run_is_evaluated_as_its_settings_say(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "results.jsonl"
    evaluate(str(run), out=out, display=Display.PLAIN)
    told = capsys.readouterr()
    assert "relay at natural  0." in told.out
    assert "n=3" in told.out
    assert told.err == ""
    assert len(out.read_text().splitlines()) == 3


def test_a_model_is_evaluated_as_a_file_says(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(
        str(run.parent / "model"),
        config=run.parent / "train.toml",
        lengths="natural",
        samples=2,
        display=Display.JSON,
    )
    told = json.loads(capsys.readouterr().out)
    assert told["policy"] == str(run.parent / "model")
    assert [(cell["task"], cell["length"], cell["n"]) for cell in told["cells"]] == [
        ("relay", 0, 2)
    ]


def test_a_run_is_evaluated_with_the_wording_that_it_was_trained_with(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with what `agent.prompts` says by now, unless asked."""
    copy = shutil.copytree(run, tmp_path / "run")
    tables = read_toml(copy / "config.toml")
    edited = tmp_path / "edited.toml"
    edited.write_text(PROMPTS.read_text().replace("{{ chunk }}", "{{ chunk }} sun"))
    tables["agent"]["prompts"] = str(edited)
    (copy / "config.toml").write_text(tomli_w.dumps(tables))
    seen: list[str] = []

    def answer(policy: Target, read: TrainConfig, **_: Any) -> list[Cell]:
        seen.append(PromptSet.load(read.agent.prompts).hash)
        return []

    monkeypatch.setattr("memagent_train.runs.evaluate.evaluate", answer)
    for settings in ([], [f"agent.prompts={edited}"]):
        evaluate(str(copy), settings=settings, display=Display.NONE)
    evaluate(str(copy), config=copy / "config.toml", display=Display.NONE)
    trained, other = (PromptSet.load(str(file)).hash for file in (PROMPTS, edited))
    assert seen == [trained, other, other]


def test_so_is_a_run_of_a_tool_agent(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    tools = {"protocol": "compact", "prompts": "lost.toml"}
    tables = read_toml(copy / "config.toml") | {"agent": {"use": "tools", "tools": tools}}
    (copy / "config.toml").write_text(tomli_w.dumps(tables))
    seen: list[TrainConfig] = []
    monkeypatch.setattr(
        "memagent_train.runs.evaluate.evaluate", lambda _, read, **__: seen.append(read) or []
    )
    evaluate(str(copy), display=Display.NONE)
    assert seen[0].agent.tools is not None
    assert seen[0].agent.tools.prompts == copy / "prompts.toml"


def test_a_file_that_cannot_be_written_is_refused_at_once(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("memagent_train.runs.evaluate.evaluate", None)
    for out, problem in (
        (run, "it is a folder"),
        (run / "config.toml" / "new" / "results.jsonl", "its folder isn't writable"),
    ):
        with pytest.raises(typer.Exit) as stop:
            evaluate(str(run), out=out, display=Display.PLAIN)
        assert stop.value.exit_code == 2
        assert "cannot write --out" in (told := capsys.readouterr().err)
        assert problem in told
    monkeypatch.undo()
    evaluate(str(run), out=tmp_path / "new" / "folder" / "results.jsonl", display=Display.NONE)


def test_lengths_that_are_none_are_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as stop:
        evaluate(str(run), lengths="8q", display=Display.PLAIN)
    assert stop.value.exit_code == 2
    assert "--lengths: '8q' is not a length in tokens" in capsys.readouterr().err


def test_more_samples_than_were_held_out_are_cautioned_of(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    evaluate(
        str(run), samples=4, settings=["evaluation.n=4"], display=Display.NONE
    )  # as the run, it held out 3
    assert (
        "the run held out 3 samples, so it may have been trained on some of these 4" in caplog.text
    )


def test_training_samples_are_answered_where_asked_and_named_so(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is imitated must not be what evaluations measure."""

    def answered(*, n: int, train: bool) -> set[int]:
        out = tmp_path / "results.jsonl"
        evaluate(str(run), samples=n, train=train, out=out, display=Display.PLAIN)
        return {json.loads(line)["index"] for line in out.read_text().splitlines()}

    held = answered(n=3, train=False)
    assert "samples" not in capsys.readouterr().out
    some = answered(n=5, train=True)
    told = capsys.readouterr()
    assert re.search(r"^samples +training$", told.out, re.MULTILINE)
    assert told.err == ""
    every = answered(n=99, train=True)
    assert (len(some), len(every)) == (5, 17)
    assert some < every
    assert not held & every


def test_a_policy_that_no_sample_was_scored_of_is_an_error(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "results.jsonl"
    with pytest.raises(typer.Exit) as stop:
        evaluate(
            str(run),
            settings=["reward.use=tests.train.runs.tiny:broken"],
            out=out,
            display=Display.PLAIN,
        )
    told = capsys.readouterr()
    assert (stop.value.exit_code, told.out) == (1, "")
    assert "none of the 3 rollouts of this evaluation has a reward" in told.err
    assert all("boom" in json.loads(line)["error"] for line in out.read_text().splitlines())
