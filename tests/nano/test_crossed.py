from pathlib import Path

import pytest
from typer.testing import CliRunner

from memagent import ScriptedModel
from memagent.tokens import load_counter
from memagent_nano import controls
from memagent_nano import crossed as module
from memagent_nano.command import app
from memagent_nano.crossed import cross
from memagent_nano.lessons import teacher
from memagent_nano.sizes import PICO

N = 36


@pytest.fixture
def experts(tokenizers: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Programs in policies' places: what a folder of theirs is called."""
    counter = load_counter(tokenizers["pico"])

    def model(folder: Path) -> ScriptedModel:
        keep = "relevant" if folder.name == "relevant" else "random"
        return ScriptedModel(teacher(PICO, keep, 0), window=PICO.window, counter=counter)

    for user in (module, controls):
        monkeypatch.setattr(user, "TransformersModel", model)
    return {name: Path(name) for name in ("relevant", "random")}


def test_what_the_writer_kept_is_what_the_answerer_knows(experts: dict[str, Path]) -> None:
    found = cross(PICO, experts["relevant"], experts["random"], n=N)
    assert [one["n"] for one in found.values()] == [N] * 4
    assert found["own"]["mean"] == 1.0
    assert found["blank"]["mean"] == 0.0
    assert found["swapped"]["mean"] < 0.1
    assert found["read for another question"]["mean"] < 0.1
    anything = cross(PICO, experts["random"], experts["relevant"], n=N)
    assert 0.1 < anything["own"]["mean"] < 0.7


def test_a_stage_without_a_policy_is_named(tmp_path: Path) -> None:
    asked = ["cross", "pico", "--out", str(tmp_path), "--writer", "shown", "--answerer", "nope"]
    ended = CliRunner().invoke(app, asked)
    assert ended.exit_code == 2
    assert "stage 'shown' has left no policy" in ended.output.replace("\n", " ")
