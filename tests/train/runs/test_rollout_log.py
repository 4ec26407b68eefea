"""Rollouts go to a file a step, and come back as they were."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent.tasks import Sample
from memagent_train.errors import DataError
from memagent_train.rollouts import Rollout, Row, Status
from memagent_train.runs.rollout_log import cut, log_path, read_rollouts, write_rollouts

SAMPLE = Sample(
    task="relay",
    index=4,
    length=10,
    tokens=9,
    context="c",
    question="q?",
    outputs=("a", "b"),
    generate=2,
)
UPDATE = Row((1, 2), (3, 4), (1, 1), (-0.5, -0.25), kind="update")
ANSWER = Row((5,), (6,), (1,), (-1.0,), kind="answer", final=True, truncated=True)


def rollout(name: str, *rows: Row, reward: float | None = 1.0) -> Rollout:
    return Rollout(
        group_id="g",
        rollout_id=name,
        sample=SAMPLE,
        rows=rows,
        answer="a",
        status=Status.FAILED if reward is None else Status.SCORED,
        reward=reward,
        scores={"precision": 0.5},
        step_rewards=(0.5, None) if len(rows) == 2 else None,
        error="boom" if reward is None else "",
    )


def decode(ids: Sequence[int]) -> str:
    return " ".join(map(str, ids))


def write(folder: Path, step: int, *rollouts: Rollout, process: int = 0) -> Path:
    file = log_path(folder, step, process)
    write_rollouts(file, step, rollouts, advantages={"r1": 0.25}, decode=decode)
    return file


def test_a_row_a_conversation_with_ids_and_text(tmp_path: Path) -> None:
    file = write(tmp_path / "rollouts", 12, rollout("r1", UPDATE, ANSWER))
    assert file.name == "step-00012.parquet"
    first, last = read_rollouts(file)
    assert (first["traj_idx"], first["kind"]) == (0, "update")
    assert (first["prompt_ids"], first["response_ids"]) == ([1, 2], [3, 4])
    assert (first["loss_mask"], first["logprobs"]) == ([1, 1], [-0.5, -0.25])
    assert (first["prompt"], first["reply"]) == ("1 2", "3 4")
    assert (first["step_reward"], last["step_reward"]) == (0.5, None)
    assert (last["traj_idx"], last["is_final"], last["truncated"]) == (1, True, True)
    for row in (first, last):
        assert (row["step"], row["group_id"], row["rollout_id"]) == (12, "g", "r1")
        assert (row["question"], row["outputs"], row["answer"]) == ("q?", ["a", "b"], "a")
        assert (row["reward"], row["advantage"], row["status"]) == (1.0, 0.25, "scored")
        assert row["scores"] == {"precision": 0.5}


def test_a_rollout_without_a_conversation_has_a_row_with_its_error(tmp_path: Path) -> None:
    (row,) = read_rollouts(write(tmp_path, 1, rollout("r2", reward=None)))
    assert (row["status"], row["error"], row["reward"]) == ("failed", "boom", None)
    assert (row["traj_idx"], row["prompt_ids"], row["advantage"]) == (None, None, None)


def test_a_file_is_replaced_not_added_to(tmp_path: Path) -> None:
    write(tmp_path, 1, rollout("r1", UPDATE), rollout("r2", UPDATE))
    assert len(list(read_rollouts(write(tmp_path, 1, rollout("r1", UPDATE))))) == 1


def test_a_folder_is_read_in_the_order_of_steps_and_processes(tmp_path: Path) -> None:
    write(tmp_path, 2, rollout("c", UPDATE))
    write(tmp_path, 1, rollout("b", UPDATE), process=1)
    write(tmp_path, 1, rollout("a", UPDATE))
    assert sorted(row["rollout_id"] for row in read_rollouts(tmp_path)) == ["a", "b", "c"]
    assert [row["step"] for row in read_rollouts(tmp_path)] == [1, 1, 2]


def test_the_folder_of_a_run_has_its_log(tmp_path: Path) -> None:
    write(tmp_path / "rollouts", 1, rollout("a", UPDATE))
    assert [row["rollout_id"] for row in read_rollouts(tmp_path)] == ["a"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"has no step-\*\.parquet: name the folder"):
        list(read_rollouts(tmp_path / "empty"))


def test_a_cut_removes_later_steps_and_halves(tmp_path: Path) -> None:
    kept = write(tmp_path, 1, rollout("a", UPDATE))
    write(tmp_path, 2, rollout("b", UPDATE))
    write(tmp_path, 2, rollout("c", UPDATE), process=1)
    (tmp_path / "step-00001.new").write_bytes(b"half")
    cut(tmp_path, 1)
    assert list(tmp_path.iterdir()) == [kept]
    cut(tmp_path / "none", 1)


def test_what_is_no_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no step-\*\.parquet"):
        list(read_rollouts(tmp_path))
    (tmp_path / "x.parquet").write_bytes(b"no parquet")
    with pytest.raises(DataError, match="cannot read the rollouts"):
        list(read_rollouts(tmp_path / "x.parquet"))
    pq.write_table(pa.table({"a": [1]}), tmp_path / "y.parquet")
    with pytest.raises(DataError, match="lacks the columns"):
        list(read_rollouts(tmp_path / "y.parquet"))
