"""With the model that needs no weights; policies are tested where torch is."""

import json

import pytest
import typer
from tests.cli.conftest import Invoke, only_json

from memagent.cli.demo import find_needle
from memagent.cli.exits import WRONG, Outcome
from memagent.cli.needle import Length, Needle
from memagent.cli.options import Display
from memagent.errors import ConfigError


def test_a_needle_that_is_found_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    find_needle("extractive", Length.K16, 0, Outcome())
    said = capsys.readouterr().out
    for words in ("is hidden", "  + The purse of", "right: it is", " tokens/s"):
        assert words in said
    assert "more than once" not in said


def test_another_answer_is_wrong(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Needle, "is_right", lambda needle, answer: False)
    with pytest.raises(typer.Exit) as stop:
        find_needle("extractive", Length.K16, 0, Outcome())
    assert stop.value.exit_code == WRONG
    assert "wrong: it is" in capsys.readouterr().out


def test_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = Outcome(Display.JSON)
    find_needle("extractive", Length.K16, 5, outcome)
    assert outcome.told
    said = json.loads(capsys.readouterr().out)
    assert said["right"] is True
    assert said["answer"] in said["fact"]
    assert 0 < said["place"] < said["characters"]
    assert said["usage"]["calls"] == said["chunks"] + 1
    assert said["fact"] in said["memory"]


def test_the_answer_alone(capsys: pytest.CaptureFixture[str]) -> None:
    find_needle("extractive", Length.K16, 0, Outcome(Display.NONE))
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_a_model_that_cannot_be_had_is_an_error() -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        find_needle("nowhere:x", Length.K16, 0, Outcome(Display.NONE))


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("Who?", "--model", "nano"), "'Who?'"),
        (("--tokens", "16k"), "--tokens 16k"),
        (("--tokens", "1m"), "--tokens 1M"),
        (("--model", "nan"), "'nan'"),
    ],
)
def test_what_does_not_go_together(invoke: Invoke, args: tuple[str, ...], words: str) -> None:
    done = invoke("demo", *args, "--display", "json")
    assert done.exit_code == 2
    assert words in only_json(done.stdout)["error"]["message"]
