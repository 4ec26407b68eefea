"""From what a user writes to a counter."""

import shutil
from pathlib import Path

import pytest

from memagent.errors import TokenizerError
from memagent.tokens import ByteBound, TokenizerFile, load_counter

TOKENIZER = Path(__file__).parents[1] / "data" / "tokenizer"


def test_paths_as_str_and_path_files_and_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {
        load_counter(spec).name
        for spec in (
            TOKENIZER,
            str(TOKENIZER),
            TOKENIZER / "tokenizer.json",
            f"{TOKENIZER}/tokenizer.json",
        )
    }
    assert len(names) == 1
    monkeypatch.setenv("HOME", str(TOKENIZER.parent))
    assert load_counter("~/tokenizer").name in names


def test_bytes_and_counters() -> None:
    assert isinstance(load_counter("bytes"), ByteBound)
    counter = ByteBound()
    assert load_counter(counter) is counter


def test_a_model_name_is_found_in_the_hub_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "0" * 40
    repo = tmp_path / "models--org--tiny"
    shutil.copytree(TOKENIZER, repo / "snapshots" / commit)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    counter = load_counter("org/tiny")
    assert isinstance(counter, TokenizerFile)
    assert counter.name == load_counter(TOKENIZER).name


@pytest.mark.parametrize(
    "spec",
    [
        *("org/none", "no such file.json", "a:b:c", "", Path("gone.json")),
        *("x" * 300, "~nobody-here/tokenizer", Path("~nobody-here")),
    ],
)
def test_what_is_not_there_is_an_error_that_lists_where_it_looked(
    spec: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(TokenizerError) as caught:
        load_counter(spec)
    assert str(spec) in str(caught.value)
