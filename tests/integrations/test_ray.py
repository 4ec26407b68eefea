"""Documents read by Ray Data: on two local nodes, one of which is killed midway; and the class without Ray."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockBuster

from memagent import ChatRequest, Completion, Limits, RunStore, ScriptedModel
from memagent.errors import ConfigError
from memagent.integrations.ray import DocumentReader
from memagent.messages import FinishReason

QUESTION = "What is the code of the gate?"
DOCUMENTS = 40


def write(folder: Path, count: int) -> list[str]:
    """Files of about 60 chunks, each with one code."""
    filler = "The sky over the harbour was grey. " * 600
    for number in range(count):
        text = f"{filler}The code of the gate is {1000 + number}. {filler}"
        (folder / f"{number}.txt").write_text(text)
    return [str(folder / f"{number}.txt") for number in range(count)]


def read(store: Path) -> DocumentReader:
    return DocumentReader("extractive", QUESTION, window=2048, store=store)


def test_a_batch_gets_its_answers(tmp_path: Path) -> None:
    paths = write(tmp_path, 3)
    found = read(tmp_path / "runs.sqlite")({"path": paths, "owner": ["a", "b", "c"]})
    assert found["owner"] == ["a", "b", "c"]
    assert found["answer"] == [f"The code of the gate is {code}." for code in (1000, 1001, 1002)]
    assert found["detail"] == ["", "", ""]
    texts = [Path(path).read_text() for path in paths]
    assert read(tmp_path / "other.sqlite")({"text": texts})["answer"] == found["answer"]


def test_a_missing_file_is_a_row(tmp_path: Path) -> None:
    found = read(tmp_path / "runs.sqlite")(
        {"path": [*write(tmp_path, 1), str(tmp_path / "none.txt")]}
    )
    assert found["answer"] == ["The code of the gate is 1000.", None]
    assert "none.txt" in found["detail"][1]
    assert found["calls"][1] == 0


@pytest.mark.parametrize("column", ["path", "text"])
def test_a_null_is_a_row_without_an_answer(tmp_path: Path, column: str) -> None:
    (path,) = write(tmp_path, 1)
    document: Any = path if column == "path" else Path(path).read_text()
    found = read(tmp_path / "runs.sqlite")({column: [None, document, float("nan")]})
    assert found["answer"] == [None, "The code of the gate is 1000.", None]
    assert found["detail"] == [f"this row has no {column}", "", f"this row has no {column}"]
    assert (found["calls"][0], found["run_id"][0]) == (0, None)


def test_a_row_says_that_its_answer_is_incomplete() -> None:
    def cut(request: ChatRequest) -> Completion:
        finish = FinishReason.LENGTH if request.kind == "answer" else FinishReason.STOP
        return Completion(text="The code of the", finish_reason=finish)

    reader = DocumentReader(ScriptedModel(cut, window=2048), QUESTION, store=None)
    found = reader({"text": ["The code of the gate is 7."]})
    assert found["answer"] == ["The code of the"]
    assert found["detail"] == ["the reply was cut off by its token limit"]
    limits = Limits(calls=2, answer=True)
    reader = DocumentReader("extractive", QUESTION, window=2048, store=None, limits=limits)
    found = reader({"text": [f"The code of the gate is 7. {'The sky was grey. ' * 2000}"]})
    assert found["answer"] == ["The code of the gate is 7."]
    assert "calls=2" in found["detail"][0]


def test_a_batch_may_be_empty(tmp_path: Path) -> None:
    found = read(tmp_path / "runs.sqlite")({"text": []})
    assert found == {"text": [], "answer": [], "detail": [], "calls": [], "run_id": []}


def test_other_columns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no column 'path' or 'text', only \['body'\]"):
        read(tmp_path / "runs.sqlite")({"body": ["a"]})


def test_a_document_in_use_is_waited_for(tmp_path: Path) -> None:
    """As an error it would end the whole job, which Ray doesn't try again."""
    store, paths = tmp_path / "runs.sqlite", write(tmp_path, 2)
    (run_id,) = read(store)({"path": paths[:1]})["run_id"]
    runs = RunStore(store)
    runs.remove(run_id)  # a stored answer would be read in spite of the lock
    held = runs.hold(run_id)
    held.__enter__()
    timer = threading.Timer(1.5, held.__exit__, (None, None, None))
    timer.start()
    found = read(store)({"path": paths})
    assert not timer.is_alive()
    assert found["answer"] == [f"The code of the gate is {code}." for code in (1000, 1001)]


@pytest.fixture
def cluster(blockbuster: BlockBuster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head that only drives, and two nodes that work."""
    blockbuster.deactivate()
    monkeypatch.setenv("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    import ray
    from ray.cluster_utils import Cluster

    room = {"object_store_memory": 100_000_000}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **room})
    cluster.add_node(num_cpus=2, **room)
    ray.shutdown()  # of whatever a test before this one connected to
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.mark.extra
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_a_node_is_killed_midway(cluster: Any, tmp_path: Path) -> None:
    import ray.data

    paths, store = write(tmp_path, DOCUMENTS), tmp_path / "runs.sqlite"
    answers = (
        ray.data.from_items([{"path": path} for path in paths])
        .repartition(DOCUMENTS // 2)
        .map_batches(
            DocumentReader,
            fn_constructor_args=("extractive", QUESTION),
            fn_constructor_kwargs={"window": 2048, "store": str(store)},
            batch_size=2,
            concurrency=(1, 3),
        )
    )
    rows: list[dict[str, Any]] = []
    for row in answers.iter_rows():
        rows.append(row)
        if len(rows) == 6:
            cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
    assert sorted(row["path"] for row in rows) == sorted(paths)
    for row in rows:
        assert row["answer"] == f"The code of the gate is {1000 + int(Path(row['path']).stem)}."
    runs = RunStore(store)
    assert [run.status for run in runs.runs()] == ["finished"] * DOCUMENTS
    # The nodes are on one machine: what a killed worker had read isn't read again, but for its calls in flight.
    again = sum(runs.usage(run.id).retries for run in runs.runs())
    assert again <= 3 * 2
