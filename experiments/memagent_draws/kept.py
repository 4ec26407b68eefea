"""How often summaries keep the value that is asked for, from the logs of a training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from memagent_draws.tokenizer import draws_tokenizer
from memagent_train.runs import metrics
from memagent_train.runs.rollout_log import read_rollouts
from memagent_train.smoke.tokenizer import KINDS

VOCABULARY = {id_: word for word, id_ in draws_tokenizer().get_vocab().items()}
LAST = 10
"""Steps at the end whose overlong sessions are counted."""


class Kept(NamedTuple):
    """Summaries of one logged step whose context showed the value."""

    kept: int
    """Those that say it."""
    all: int


def count_kept(file: Path) -> Kept:
    """Counts the summaries of a step; a rejected one doesn't count.

    Args:
        file: `rollouts/step-*.parquet` of a training.
    """
    found = [kept for row in read_rollouts(file) for kept in _summaries(row)]
    return Kept(sum(found), len(found))


def kept_shares(folder: Path) -> list[float | None]:
    """The share of kept values at each logged step of a run; None for a step without a summary to count."""
    counts = map(count_kept, sorted((folder / "rollouts").glob("*.parquet")))
    return [count.kept / count.all if count.all else None for count in counts]


def overlong_share(folder: Path) -> float | None:
    """The share of overlong sessions in the last steps of a run; None if it has no rollouts."""
    lines = [line for line in metrics.read(folder / "metrics.jsonl") if "rollouts/overlong" in line]
    shares = [float(line["rollouts/overlong"]) for line in lines[-LAST:]]
    return sum(shares) / len(shares) if shares else None


def _summaries(row: dict[str, Any]) -> Iterator[bool]:
    """For each summary of a conversation behind the value: whether it says it."""
    values = KINDS[row["question"].removeprefix("ask ")]
    ids = [*row["prompt_ids"], *row["response_ids"]]
    words = [VOCABULARY[id_] for id_ in ids]
    for span in row["spans"]:
        if span["kind"] == "summary" and not span["rejected"]:
            at = len(row["prompt_ids"]) + span["start"]
            seen = [word for word in words[:at] if word in values]
            if seen:
                yield words[at] == seen[0]
