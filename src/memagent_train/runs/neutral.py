"""The neutral record: one conversation per line, for any trainer that takes trajectories with several contexts.

`{group_id, rollout_id, traj_idx, prompt_ids, response_ids, loss_mask, spans, logprobs, reward, is_final, overlong}`
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from memagent.replacing import replacing

FIELDS = (
    "group_id",
    "rollout_id",
    "traj_idx",
    "prompt_ids",
    "response_ids",
    "loss_mask",
    "spans",
    "logprobs",
    "reward",
    "is_final",
    "overlong",
)


def records(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields the records of logged conversations; rollouts without conversations have none.

    Args:
        rows: from `memagent_train.runs.rollout_log.read_rollouts`.
    """
    for row in rows:
        if row["traj_idx"] is not None:
            yield {name: row.get(name) for name in FIELDS}


def write_records(file: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Writes the records of logged conversations, all or nothing.

    Returns:
        The number of records.

    Raises:
        OSError: the file can't be written.
    """
    count = 0
    with replacing(file) as new, new.open("w", encoding="utf-8") as opened:
        for record in records(rows):
            opened.write(json.dumps(record, ensure_ascii=False) + "\n")
            count += 1
    return count
