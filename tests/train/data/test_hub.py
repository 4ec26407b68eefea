"""Data sets that `datasets` loads, all of them local: nothing is fetched."""

import shutil
from pathlib import Path

import datasets
import pytest
from tests.train.data.files import data, jsonl, rows

from memagent_train.data.hub import HubRows
from memagent_train.data.settings import HubSettings
from memagent_train.errors import DataError


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()


def opened(path: Path | str, **more: str) -> HubRows:
    return HubRows(HubSettings.model_validate({"kind": "hub", "path": str(path), **more}))


def saved(path: Path) -> Path:
    """Rows in the form that the end of the name says."""
    table = datasets.Dataset.from_list(rows(4))
    match path.suffix:
        case ".parquet":
            table.to_parquet(path)
        case ".csv":
            table.remove_columns("answers").add_column("answers", ["a", "b", "c", "d"]).to_csv(path)
        case ".json" | ".jsonl":
            jsonl(path, rows(4))
        case _:
            table.save_to_disk(path)
    return path


@pytest.mark.parametrize("name", ["a.parquet", "a.json", "a.jsonl", "a.csv", "folder"])
def test_local_data_sets(name: str, tmp_path: Path) -> None:
    table = opened(saved(tmp_path / name))
    assert len(table) == 4
    assert table.row(2)["document"] == rows(4)[2]["document"]
    assert [row["question"] for row in table] == [row["question"] for row in rows(4)]
    assert table.where(2).endswith("row 2")


def test_a_folder_of_parquet_files(tmp_path: Path) -> None:
    (folder := tmp_path / "set").mkdir()
    saved(folder / "train-0.parquet")
    assert len(opened(folder)) == 4


@pytest.mark.parametrize("path", ["set/train.csv", "set"])
def test_references_in_csv_are_what_the_file_says(path: str, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    said = ["007", "1.10", "None", "NA", "true", "1e5", "42", '""']
    lines = [f"d{i},{i},{one},{i}" for i, one in enumerate(said)]
    text = "\n".join(["text,question,answers,level", *lines])
    (tmp_path / "set" / "train.csv").write_text(text)
    source = {"kind": "hub", "path": str(tmp_path / path), "unusable": "drop"}
    found = data(source | {"columns": {"document": "text"}})
    samples = sorted((found.sample(i) for i in range(len(found))), key=lambda one: one.index)
    assert [one.outputs for one in samples] == [(one,) for one in said[:-1]]
    assert samples[3].question == "3"
    assert samples[3].columns == {"level": 3}  # pyright: ignore[reportAttributeAccessIssue]


def test_csv_that_was_read_is_found_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a data set of the hub is without a network."""
    monkeypatch.chdir(tmp_path)
    (folder := tmp_path / "set").mkdir()
    (folder / "train.csv").write_text("document,question,answers\nd,q,007\n")
    before = list(opened("set"))
    shutil.rmtree(folder)
    assert list(opened("set")) == before == [{"document": "d", "question": "q", "answers": "007"}]


def test_a_local_file_is_not_counted_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("datasets.load.get_session", lambda: asked.append("session"))
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("datasets.config.HF_UPDATE_DOWNLOAD_COUNTS", True)
    assert len(opened(saved(tmp_path / "a.jsonl"))) == 4
    assert asked == []


def test_splits(tmp_path: Path) -> None:
    parts = {
        "train": datasets.Dataset.from_list(rows(4)),
        "dev": datasets.Dataset.from_list(rows(2)),
    }
    datasets.DatasetDict(parts.items()).save_to_disk(tmp_path / "set")
    assert len(opened(tmp_path / "set", split="dev")) == 2
    with pytest.raises(DataError, match=r"no split 'test' \(it has 'train', 'dev'\)"):
        opened(tmp_path / "set", split="test")
    assert len(opened(saved(tmp_path / "a.parquet"), split="train[1:3]")) == 2


def test_a_name_that_is_not_here_is_told_without_a_network() -> None:
    with pytest.raises(
        DataError, match=r"'nobody/nothing'.*in the local cache if there is no network"
    ):
        opened("nobody/nothing")


@pytest.mark.parametrize(
    "path",
    ["nope.csv", "./nope", "~/nope/nothing", "/nope/train", "here/nope.JSONL", "a/b/c.parquet"],
)
def test_a_file_that_is_not_here_is_not_looked_up_on_the_hub(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datasets.load_dataset_builder", None)
    with pytest.raises(DataError, match=f"there is no data file or folder '{path}'"):
        opened(path)


def test_a_name_on_the_hub_may_end_like_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.load_dataset_builder", None)
    with pytest.raises(DataError, match=r"'owner/set\.json'.*cannot be loaded: TypeError"):
        opened("owner/set.json")


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    (bad := tmp_path / "a.parquet").write_bytes(b"no parquet")
    with pytest.raises(DataError, match="cannot be loaded"):
        opened(bad)
    (tmp_path / "latin.csv").write_bytes("café".encode("latin-1"))
    with pytest.raises(DataError, match="UnicodeDecodeError: 'utf-8' codec can't decode byte 0xe9"):
        opened(tmp_path / "latin.csv")
    (odd := tmp_path / "a.xlsx").write_bytes(b"x")
    with pytest.raises(DataError, match=r"unsupported format: give one that ends in \.parquet"):
        opened(odd)
    (empty := tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="cannot be loaded"):
        opened(empty)
    nothing = datasets.Dataset.from_dict({"document": []})
    nothing.to_parquet(tmp_path / "none.parquet")
    with pytest.raises(DataError, match="no data"):
        opened(tmp_path / "none.parquet")


def test_columns_by_name(tmp_path: Path) -> None:
    nested = [
        {"text": row["document"], "meta": {"q": row["question"]}, "a": {"text": row["answers"]}}
        for row in rows(3)
    ]
    datasets.Dataset.from_list(nested).to_parquet(tmp_path / "a.parquet")
    source = {
        "kind": "hub",
        "path": str(tmp_path / "a.parquet"),
        "columns": {"document": "text", "question": "meta.q", "answers": "a.text"},
    }
    found = data(source)
    assert {found.sample(i).outputs for i in range(3)} == {("0",), ("3",), ("6",)}
    with pytest.raises(
        DataError,
        match=r"row 0: there is no column 'document' \(the columns are 'text', 'meta', 'a'\)",
    ):
        data(source | {"columns": {}})
