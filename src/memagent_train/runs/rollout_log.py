"""`rollouts/step-00012.parquet`: all conversations of a step's rollouts, one per row, as ids and text."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from memagent.replacing import replacing
from memagent_train.errors import DataError
from memagent_train.rollouts import Rollout

FOLDER = "rollouts"
"""Folder of the logs in a run's folder."""
NAME = re.compile(r"step-(\d+)(?:-part\d+)?\.parquet")
Decode = Callable[[Sequence[int]], str]
"""Decodes token ids to text, including control tokens."""

IDS = pa.list_(pa.int32())
SPAN = pa.struct(
    [
        ("start", pa.int32()),
        ("end", pa.int32()),
        ("kind", pa.string()),
        ("role", pa.string()),
        ("rejected", pa.bool_()),
    ]
)
SCHEMA = pa.schema(
    [
        ("step", pa.int32()),
        ("group_id", pa.string()),
        ("rollout_id", pa.string()),
        ("traj_idx", pa.int32()),  # null if the rollout has no conversation
        ("kind", pa.string()),
        ("task", pa.string()),
        ("sample", pa.int64()),
        ("question", pa.string()),
        ("outputs", pa.list_(pa.string())),
        ("answer", pa.string()),
        ("reward", pa.float64()),
        ("scores", pa.map_(pa.string(), pa.float64())),
        ("step_reward", pa.float64()),
        ("advantage", pa.float64()),
        ("status", pa.string()),
        ("error", pa.string()),
        ("seconds", pa.float64()),
        ("is_final", pa.bool_()),
        ("truncated", pa.bool_()),
        ("overlong", pa.bool_()),
        ("prompt_ids", IDS),
        ("response_ids", IDS),
        ("loss_mask", pa.list_(pa.int8())),
        ("logprobs", pa.list_(pa.float32())),
        ("spans", pa.list_(SPAN)),
        ("prompt", pa.string()),
        ("reply", pa.string()),
    ]
)

LATER = {"spans"}
"""Columns missing from logs of earlier versions."""


def log_path(folder: Path, step: int, process: int = 0) -> Path:
    """Returns the file of a step; of several processes, the first one writes the file with the plain name."""
    part = f"-part{process}" if process else ""
    return folder / f"step-{step:05d}{part}.parquet"


def write_rollouts(
    file: Path,
    step: int,
    rollouts: Sequence[Rollout],
    *,
    advantages: Mapping[str, float | None],
    decode: Decode,
) -> None:
    """Writes the rollouts of a step, all or nothing; an existing file is replaced.

    Args:
        file: its folder is created if missing.
        step: number of the step.
        rollouts: the rollouts, in any order.
        advantages: advantages by rollout id; rollouts left out of the loss have none, or None.
        decode: decodes ids with the tokenizer.

    Raises:
        OSError: the file can't be written.
    """
    rows = [row for rollout in rollouts for row in _rows(step, rollout, advantages, decode)]
    with replacing(file) as new:
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), new, compression="zstd")


def read_rollouts(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the rows of one file, or of all files in a folder in the order of steps.

    Args:
        path: a file, its folder, or the folder of the run.

    Raises:
        DataError: there is no such file, or it isn't a rollout log.
    """
    logs = _logs(path) or _logs(path / FOLDER)
    files = [path] if path.is_file() else [file for file, _ in logs]
    if not files:
        raise DataError(
            f"{str(path)!r} has no step-*.parquet: name the folder of a training with logging.rollouts = 1"
        )
    for file in files:
        try:
            opened = pq.ParquetFile(file)
        except (OSError, pa.ArrowInvalid) as error:
            raise DataError(f"cannot read the rollouts {str(file)!r}: {error}") from error
        missing = set(SCHEMA.names) - LATER - set(opened.schema_arrow.names)
        if missing:
            raise DataError(
                f"{str(file)!r} lacks the columns {sorted(missing)}: it is not a rollout log"
            )
        for batch in opened.iter_batches():
            yield from batch.to_pylist(maps_as_pydicts="strict")


def cut(folder: Path, step: int) -> None:
    """Removes the logs of later steps, and partial files left by a killed process."""
    for file, of in _logs(folder):
        if of > step:
            file.unlink()
    for half in folder.glob("step-*.new"):
        half.unlink()


def _logs(folder: Path) -> list[tuple[Path, int]]:
    if not folder.is_dir():
        return []
    named = [(file, NAME.fullmatch(file.name)) for file in folder.iterdir()]
    return sorted((file, int(name[1])) for file, name in named if name)


def _rows(
    step: int, rollout: Rollout, advantages: Mapping[str, float | None], decode: Decode
) -> Iterator[dict[str, Any]]:
    sample = rollout.sample
    shared = {
        "step": step,
        "group_id": rollout.group_id,
        "rollout_id": rollout.rollout_id,
        "task": sample.task,
        "sample": sample.index,
        "question": sample.question,
        "outputs": list(sample.outputs),
        "answer": rollout.answer,
        "reward": rollout.reward,
        "scores": list(rollout.scores.items()),
        "advantage": advantages.get(rollout.rollout_id),
        "status": str(rollout.status),
        "error": rollout.error,
        "seconds": rollout.seconds,
        "overlong": rollout.overlong,
    }
    if not rollout.rows:
        yield shared
    steps = rollout.step_rewards or (None,) * len(rollout.rows)
    for place, (row, step_reward) in enumerate(zip(rollout.rows, steps, strict=True)):
        yield {
            **shared,
            "traj_idx": place,
            "kind": row.kind,
            "step_reward": step_reward,
            "is_final": row.final,
            "truncated": row.truncated,
            "prompt_ids": row.prompt_ids,
            "response_ids": row.response_ids,
            "loss_mask": row.loss_mask,
            "logprobs": row.logprobs,
            "spans": [asdict(span) for span in row.spans],
            "prompt": decode(row.prompt_ids),
            "reply": decode(row.response_ids),
        }
