from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from memagent.errors import TokenizerError
from memagent.models.counting import local_counter


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a tokenizer."""
    path = tmp_path / "org" / "model"
    path.mkdir(parents=True)
    tokenizer = Tokenizer(WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    tokenizer.save(str(path / "tokenizer.json"))
    return path


def test_a_given_tokenizer_is_taken(folder: Path) -> None:
    counter = local_counter("nowhere/model", str(folder / "tokenizer.json"))
    assert counter is not None
    assert counter.count("a") == 1
    with pytest.raises(TokenizerError):
        local_counter("nowhere/model", "missing.json")


def test_a_model_in_a_folder_brings_its_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(folder.parents[1])
    assert local_counter("org/model", None) is not None
    assert local_counter(str(folder), None) is not None
    assert caplog.records == []


@pytest.mark.parametrize("model", ["nowhere/model", "a b: c", "x" * 5000, "null\0byte"])
def test_there_may_be_none(model: str) -> None:
    assert local_counter(model, None) is None


def test_a_folder_of_that_name_without_tokenizer_is_another_thing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    assert local_counter("data", None) is None
