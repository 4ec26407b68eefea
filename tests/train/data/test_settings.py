"""The section `[data]`."""

import tomllib
from pathlib import Path

import pytest
from pydantic import ValidationError
from tests.train.data.files import settings

from memagent_train.data.settings import (
    DataSettings,
    HotpotqaSettings,
    JsonlSettings,
    RulerSettings,
)


def test_the_example_of_the_docstring_is_valid() -> None:
    doc = DataSettings.__doc__ or ""
    example = tomllib.loads(doc.partition("```toml")[2].partition("```")[0])
    read = DataSettings.model_validate(example["data"])
    first, second = read.source
    assert isinstance(first, HotpotqaSettings)
    assert isinstance(second, JsonlSettings)
    assert first.lengths == (8192, 32768)
    assert second.columns.document == "text"
    assert second.files == (Path("contracts.jsonl"),)


@pytest.mark.parametrize(
    ("given", "lengths"),
    [
        ("8k", (8192,)),
        ("4k,...,16k", (4096, 8192, 16384)),
        (5000, (5000,)),
        (["1k", 3000], (1024, 3000)),
    ],
)
def test_lengths_are_written_as_people_do(given: object, lengths: tuple[int, ...]) -> None:
    (source,) = settings({"kind": "ruler", "lengths": given}).source
    assert isinstance(source, RulerSettings)
    assert source.lengths == lengths


@pytest.mark.parametrize(
    "source",
    [
        {},
        {"kind": "books"},
        {"kind": "ruler", "lengths": []},
        {"kind": "ruler", "lengths": "8q"},
        {"kind": "ruler", "lengths": [0]},
        {"kind": "ruler", "tasks": []},
        {"kind": "ruler", "weight": 0},
        {"kind": "ruler", "files": []},
        {"kind": "jsonl"},
        {"kind": "jsonl", "files": []},
        {"kind": "jsonl", "files": ["a"], "columns": {"text": "a"}},
        {"kind": "jsonl", "files": ["a"], "known": 0},
        {"kind": "hub", "path": ""},
        {"kind": "task"},
    ],
)
def test_what_cannot_be_is_refused(source: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        settings(source)


def test_there_is_at_least_one_source() -> None:
    with pytest.raises(ValidationError):
        settings()
