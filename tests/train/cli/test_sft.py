"""`memagent-train sft`: from traces to a policy."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
import tomli_w
from tests.train.runs.tiny import write_model

from memagent.cli.options import Display
from memagent_train.cli.sft import sft


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    write_model(tmp_path / "model")
    said = [{"role": "user", "content": "ask fox"}, {"role": "assistant", "content": "fox"}]
    (tmp_path / "t.jsonl").write_text(json.dumps({"messages": said}) + "\n")
    file = tmp_path / "sft.toml"
    tables = {
        "model": {"path": "model"},
        "traces": {"source": [{"kind": "messages", "files": ["t.jsonl"]}]},
        "batch": {"rows": 1, "micro_batches": 1},
        "optimizer": {"steps": 2},
        "resources": {"device": "cpu"},
    }
    file.write_text(tomli_w.dumps(tables))
    return file


def test_a_dry_run_shows_settings_that_read_back(
    settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sft(settings, settings.parent / "run", dry_run=True, display=Display.PLAIN)
    assert tomllib.loads(capsys.readouterr().out)["optimizer"]["steps"] == 2
    sft(settings, settings.parent / "run", dry_run=True, display=Display.JSON)
    assert json.loads(capsys.readouterr().out)["settings"]["batch"]["rows"] == 1
    assert not (settings.parent / "run").exists()


def test_it_says_what_it_learnt_from(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sft(settings, settings.parent / "run", display=Display.PLAIN)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("1/2  loss ")
    assert lines[-2] == "traces   1 conversations, 0 overlong ones dropped"
    sft(settings, settings.parent / "run", display=Display.JSON)
    told = json.loads(capsys.readouterr().out)
    assert (told["conversations"], told["steps"]) == (1, 2)
