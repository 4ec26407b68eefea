"""Where data files are found, and what is said where they are not."""

import gzip
import json
from pathlib import Path

import pytest
from tests.bench.longqa.data import hotpot, squad, titled, write

from memagent.errors import ConfigError
from memagent_bench.length_tokens import length_counter
from memagent_bench.longqa.sources import find_further, hotpotqa_of, squad_of
from memagent_bench.options import DataOptions

OPTIONS = DataOptions(counter=length_counter(None))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "data" / "hotpotqa").mkdir(parents=True)
    monkeypatch.setenv("MEMAGENT_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def test_the_data_folder_and_the_folders_in_it_are_searched(folder: Path) -> None:
    write(folder / "hotpotqa" / "hotpot_dev_distractor_v1.json", hotpot(3))
    packed = gzip.compress(json.dumps(squad(2)).encode())
    (folder / "dev-v2.0.json.gz").write_bytes(packed)
    write(folder / "more_paragraphs.json", titled(4))
    write(folder / "notes.json", {"not": "data"})
    assert len(hotpotqa_of(OPTIONS).questions) == 3
    assert len(squad_of(OPTIONS).questions) == 12
    assert len(find_further(OPTIONS).paragraphs) == 30 + 12 + 4


def test_what_is_named_goes_before_the_folder(folder: Path, tmp_path: Path) -> None:
    write(folder / "hotpot_dev_distractor_v1.json", hotpot(3))
    write(folder / "dev-v2.0.json", squad(2))
    named = DataOptions(
        counter=OPTIONS.counter,
        hotpotqa=(write(tmp_path / "mine.json", hotpot(1)),),
        squad=write(tmp_path / "squad.json", squad(1)),
        paragraphs=(write(tmp_path / "further.json", titled(2)),),
    )
    assert len(hotpotqa_of(named).questions) == 1
    assert len(squad_of(named).questions) == 6
    assert len(find_further(named).paragraphs) == 2


def test_without_data_the_message_names_flags_and_files(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"--hotpotqa FILE.*distractor_v1.json.*--paragraphs"):
        hotpotqa_of(OPTIONS)
    with pytest.raises(ConfigError, match=r"--squad FILE.*dev-v2.0.json.*MEMAGENT_DATA"):
        squad_of(OPTIONS)
    assert len(find_further(OPTIONS).paragraphs) == 0


def test_without_a_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="--hotpotqa FILE"):
        hotpotqa_of(OPTIONS)
    monkeypatch.setenv("MEMAGENT_DATA", "no such folder")
    with pytest.raises(
        ConfigError, match="MEMAGENT_DATA is 'no such folder', which is not a folder"
    ):
        hotpotqa_of(OPTIONS)


def test_two_squad_files_are_no_choice(folder: Path) -> None:
    write(folder / "dev-v2.0.json", squad(2))
    write(folder / "old-dev-v2.0.json", squad(1))
    with pytest.raises(ConfigError, match="several SQuAD files"):
        squad_of(OPTIONS)
