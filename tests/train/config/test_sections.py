"""Sections that are the runs' own: their defaults make sense together, and nonsense is refused."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import ValidationError

from memagent_train.config.sections import (
    CheckpointSettings,
    EvaluationSettings,
    LoraSettings,
    ModelSettings,
    ResourceSettings,
)


def test_lengths_are_written_as_people_do() -> None:
    settings = EvaluationSettings.model_validate_json('{"lengths": ["8k", 100]}', strict=True)
    assert settings.lengths == (8192, 100)
    assert settings.columns == (8192, 100)
    assert EvaluationSettings.model_validate_json(
        '{"lengths": "8k,...,32k", "as_they_are": true}', strict=True
    ).columns == (0, 8192, 16384, 32768)
    assert EvaluationSettings().columns == ()


@pytest.mark.parametrize(
    ("section", "given"),
    [
        (ModelSettings, {"path": ""}),
        (ModelSettings, {"path": "m", "dtype": "int8"}),
        (LoraSettings, {"rank": 0}),
        (LoraSettings, {"targets": []}),
        (LoraSettings, {"dropout": 1.0}),
        (EvaluationSettings, {"n": 0}),
        (EvaluationSettings, {"lengths": ["8x"]}),
        (CheckpointSettings, {"every": 0}),
        (ResourceSettings, {"processes": 0}),
        (ResourceSettings, {"sharding": "zero1"}),
    ],
)
def test_nonsense_is_refused(section: type, given: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        section(**given)


def test_weights_are_in_fp32_unless_asked_otherwise() -> None:
    assert ModelSettings(path="m").dtype == "float32"


def test_settings_load_without_a_heavy_library() -> None:
    parts = ("config.train", "config.sft", "roles")
    code = f"import sys, {', '.join(f'memagent_train.{one}' for one in parts)}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {"torch", "transformers", "trl", "datasets", "pyarrow", "numpy", "tiktoken"}
    assert not heavy & set(loaded)
