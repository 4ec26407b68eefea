"""Settings from a file and from the command line: every error says where it is and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from memagent.errors import ConfigError
from memagent.messages import Leaf
from memagent_train.config.read import load, value_of


class Source(Leaf):
    path: Path
    weight: float = 1.0


class Model(Leaf):
    path: str
    dtype: str = "bfloat16"


class Batch(Leaf):
    groups: int = Field(default=8, gt=0)
    clip: bool = False


class Settings(Leaf):
    steps: int = 10
    model: Model
    batch: Batch = Batch()
    sources: tuple[Source, ...] = ()
    named: Mapping[str, float] = Field(default_factory=dict[str, float])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "train.toml"
    path.write_text('[model]\npath = "m"\n')
    return path


def test_the_command_line_comes_after_the_file(file: Path) -> None:
    read = load(Settings, file, ["model.path=other", "batch.groups=2", "steps = 5"])
    assert (read.model.path, read.batch.groups, read.steps) == ("other", 2, 5)


def test_a_list_and_its_entries_can_be_set(file: Path) -> None:
    file.write_text('model = {path = "m"}\nsources = [{path = "a"}, {path = "b"}]\n')
    read = load(Settings, file, ["sources.1.weight=0.5", "sources.0={path = 'c'}"])
    assert [source.path.name for source in read.sources] == ["c", "b"]
    assert [source.weight for source in read.sources] == [1.0, 0.5]


def test_quoted_keys_may_hold_dots(file: Path) -> None:
    assert load(Settings, file, ['named."a.b"=1.5']).named == {"a.b": 1.5}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("1e-6", 1e-6),
        ("true", True),
        ("[1, 2]", [1, 2]),
        ('"3"', "3"),
        ("Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7B"),
        ("1\nsteps = 2", "1\nsteps = 2"),
        ("", ""),
        ("a=b", "a=b"),
    ],
)
def test_a_value_is_toml_or_else_a_text(text: str, value: Any) -> None:
    assert value_of(text) == value


def test_paths_are_relative_to_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    read = load(Settings, file, ["sources=[{path = 'sub/x.jsonl'}, {path = '/y'}]"])
    assert [source.path for source in read.sources] == [file.parent / "sub/x.jsonl", Path("/y")]


def test_an_unknown_key_names_the_nearest(file: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(Settings, file, ["batch.gruops=2"])
    assert "--set: there is no setting 'batch.gruops'; did you mean batch.groups?" in str(
        caught.value
    )


def test_an_unknown_section_of_the_file_is_named_with_the_file(file: Path) -> None:
    file.write_text('[model]\npath = "m"\n[bacth]\ngroups = 1\n')
    with pytest.raises(
        ConfigError, match=r"train\.toml: there is no setting 'bacth'; did you mean batch"
    ):
        load(Settings, file)


def test_an_unknown_section_is_named_with_what_gave_it(file: Path) -> None:
    with pytest.raises(ConfigError, match="--set: there is no setting 'bacth'; did you mean batch"):
        load(Settings, file, ["bacth.groups=2", "bacth.clip=true"])
    file.write_text('[model]\npath = "m"\n[bacth]\ngroups = 1\n')
    with pytest.raises(ConfigError, match=r"train\.toml: there is no setting 'bacth'"):
        load(Settings, file, ["bacth.clip=true"])


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("batch.groups=many", "--set: batch.groups = 'many': Input should be a valid integer"),
        ("batch.groups=0", "batch.groups = 0: Input should be greater than 0"),
        ("batch.groups=true", "batch.groups = True"),
        ("batch.clip=1", "batch.clip = 1"),
        ("model.path=3", "model.path = 3: Input should be a valid string"),
        ("batch=3", "batch = 3"),
        ("steps=nan", "steps = nan: give a finite number"),
        ("named.x=inf", "named.x = inf"),
        ("steps=2020-01-01", "steps = '2020-01-01'"),
    ],
)
def test_a_wrong_value_is_named_with_its_key(file: Path, override: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(Settings, file, [override])
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("steps", "write section.key=value, as in optimizer.learning_rate=1e-6"),
        ("=3", "write section.key=value"),
        ("a b=3", "is not a valid key"),
        ("steps.x=3", "the part before 'x' is not a section"),
        ("steps.x.y=3", "the part before 'x' is not a section"),
        ("sources.0.weight=3", "the list has 0 entries"),
    ],
)
def test_an_override_that_makes_no_sense_is_refused(file: Path, override: str, says: str) -> None:
    file.write_text('steps = 3\nsources = []\n[model]\npath = "m"\n')
    with pytest.raises(ConfigError) as caught:
        load(Settings, file, [override])
    assert says in str(caught.value)
    assert repr(override) in str(caught.value)


def test_several_errors_are_told_at_once(file: Path) -> None:
    file.write_text("[batch]\ngroups = 0\n")
    with pytest.raises(ConfigError) as caught:
        load(Settings, file)
    assert "model is missing" in str(caught.value)
    assert "batch.groups = 0" in str(caught.value)


def test_a_long_value_is_shortened(file: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(Settings, file, ["batch.groups=" + "x" * 10_000])
    assert len(str(caught.value)) < 400
