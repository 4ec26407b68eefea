"""The neutral record has what other trainers read, and nothing else."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

from tests.train.runs.test_rollout_log import ANSWER, UPDATE, decode, rollout

from memagent_train.runs.neutral import FIELDS, write_records
from memagent_train.runs.rollout_log import log_path, read_rollouts, write_rollouts


def test_a_line_a_conversation(tmp_path: Path) -> None:
    log = log_path(tmp_path / "rollouts", 3)
    made = [rollout("r1", UPDATE, ANSWER), rollout("r2", reward=None)]
    write_rollouts(log, 3, made, advantages={}, decode=decode)
    file = tmp_path / "out" / "trajectories.jsonl"
    assert write_records(file, read_rollouts(log)) == 2
    first, last = (json.loads(line) for line in file.read_text().splitlines())
    assert tuple(first) == FIELDS
    assert first == {
        "group_id": "g",
        "rollout_id": "r1",
        "traj_idx": 0,
        "prompt_ids": [1, 2],
        "response_ids": [3, 4],
        "loss_mask": [1, 1],
        "spans": [],
        "logprobs": [-0.5, -0.25],
        "reward": 1.0,
        "is_final": False,
        "overlong": False,
    }
    assert (last["traj_idx"], last["is_final"]) == (1, True)
    assert [path.name for path in file.parent.iterdir()] == ["trajectories.jsonl"]


def test_a_link_stays_and_its_file_is_replaced(tmp_path: Path) -> None:
    (link := tmp_path / "link").symlink_to(file := tmp_path / "there" / "trajectories.jsonl")
    for made in ([], [{"traj_idx": 0}]):
        assert write_records(link, made) == len(file.read_text().splitlines()) == len(made)
    assert link.is_symlink()
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_records(pipe, [{"traj_idx": 0}])
    reader.join(10)
    assert found[0].count(b"\n") == 1
    assert pipe.is_fifo()
