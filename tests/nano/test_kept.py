from collections.abc import Callable
from pathlib import Path

import pytest

from memagent import ScriptedModel
from memagent.errors import ConfigError
from memagent.messages import ChatRequest
from memagent.tokens import load_counter
from memagent_nano import kept as module
from memagent_nano.kept import kept
from memagent_nano.lessons import teacher
from memagent_nano.sizes import PICO

N = 48


def shares(
    reader: Callable[[ChatRequest], str],
    tokenizer: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, float]:
    """What is kept by a program in a policy's place."""
    (folder / "config.json").touch()
    counter = load_counter(tokenizer)
    monkeypatch.setattr(
        module,
        "TransformersModel",
        lambda _: ScriptedModel(reader, window=PICO.window, counter=counter),
    )
    found = kept(PICO, folder, n=N)
    assert all(one["low"] <= one["share"] + 1e-9 <= one["high"] + 2e-9 for one in found.values())
    return {kind: one["share"] for kind, one in found.items()}


def test_who_keeps_what_is_asked_for(
    tokenizers: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = shares(teacher(PICO, "relevant", 0), tokenizers["pico"], tmp_path, monkeypatch)
    assert found["made up"] == 0.0
    assert found["asked"] > 0.95
    assert found["other"] < 0.05


def test_who_keeps_anything(
    tokenizers: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = shares(teacher(PICO, "random", 0), tokenizers["pico"], tmp_path, monkeypatch)
    assert found["made up"] == 0.0
    assert found["asked"] == pytest.approx(found["other"], abs=0.15)
    assert 0.3 < found["other"] < 0.8


def test_entries_that_nobody_said_are_made_up(
    tokenizers: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = shares(lambda _: "- Nobody 7", tokenizers["pico"], tmp_path, monkeypatch)
    # The second memory of a document has it from the first.
    assert 0.5 < found["made up"] < 1.0
    assert found["asked"] == 0.0


def test_without_a_policy_the_error_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="train it first"):
        kept(PICO, tmp_path / "none", n=1)
