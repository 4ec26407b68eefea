"""Counts how often summaries keep the value asked for, from the logs of a training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from memagent_train.runs import metrics
from memagent_train.runs.rollout_log import read_rollouts
from memagent_train.smoke.tokenizer import KINDS

LAST = 10
"""Number of last steps whose overlong sessions are counted."""


class KeptCount(NamedTuple):
    """Summaries of one logged step whose context showed the value."""

    kept: int
    """Number of summaries that contain the value."""
    all: int


def count_kept(file: Path, tokenizer: PreTrainedTokenizerBase) -> KeptCount:
    """Counts the summaries of a step; a rejected one doesn't count.

    Args:
        file: `rollouts/step-*.parquet` of a training.
        tokenizer: of the policy.
    """
    outcomes = [outcome for row in read_rollouts(file) for outcome in _summaries(row, tokenizer)]
    return KeptCount(sum(outcomes), len(outcomes))


def kept_shares(folder: Path, policy: Path) -> list[float | None]:
    """Returns the share of kept values at each logged step of a run; None for a step without a summary to count.

    Args:
        folder: folder of the run.
        policy: policy that it began with.
    """
    tokenizer = AutoTokenizer.from_pretrained(policy)
    files = sorted((folder / "rollouts").glob("*.parquet"))
    counts = [count_kept(file, tokenizer) for file in files]
    return [count.kept / count.all if count.all else None for count in counts]


def overlong_share(folder: Path) -> float | None:
    """Returns the share of overlong sessions in the last steps of a run; None if it has no rollouts."""
    lines = [line for line in metrics.read(folder / "metrics.jsonl") if "rollouts/overlong" in line]
    shares = [float(line["rollouts/overlong"]) for line in lines[-LAST:]]
    return sum(shares) / len(shares) if shares else None


def _summaries(row: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> Iterator[bool]:
    """Yields, for each summary of a conversation after the value, whether it contains the value."""
    values = KINDS[row["question"].removeprefix("ask ")]
    ids = [*row["prompt_ids"], *row["response_ids"]]

    def words(start: int, end: int) -> list[str]:
        return str(tokenizer.decode(ids[start:end], skip_special_tokens=True)).split()

    for span in row["spans"]:
        if span["kind"] == "summary" and not span["rejected"]:
            start, end = (len(row["prompt_ids"]) + span[at] for at in ("start", "end"))
            mentions = [word for word in words(0, start) if word in values]
            if mentions:
                yield words(start, end)[:1] == mentions[:1]
