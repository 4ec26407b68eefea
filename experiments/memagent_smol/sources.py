"""Divides SQuAD and HotpotQA into training and held-out data."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from memagent.replacing import replacing
from memagent_bench.longqa.forms import content
from memagent_bench.longqa.sources import (
    hotpotqa_files,
    hotpotqa_of,
    squad_file,
    squad_of,
)
from memagent_bench.options import DataOptions

SEEN_SQUAD, UNSEEN_SQUAD = "squad-seen.json.gz", "squad-unseen.json.gz"
SEEN_HOTPOT, UNSEEN_HOTPOT = "hotpotqa-seen.json.gz", "hotpotqa-unseen.json.gz"
HELD_OUT_ARTICLES = 10
"""First articles of SQuAD's development set: those that RULER's `qa_1` asks about first."""
HELD_OUT_QUESTIONS = 500
"""First questions of HotpotQA's development set: those of RULER's `qa_2`."""


def divide(options: DataOptions, folder: Path) -> None:
    """Writes the four files into a folder, the same bytes each time.

    HotpotQA's questions after the first 500 that share no gold article with them are used in training.

    Raises:
        ConfigError: a data set wasn't found; see `memagent_bench.longqa.sources`.
        DocumentError: a file is unusable.
    """
    for look in (squad_of, hotpotqa_of):
        look(options)  # at the form
    folder.mkdir(parents=True, exist_ok=True)
    articles: list[Any] = json.loads(content(squad_file(options)))["data"]
    _write(folder / UNSEEN_SQUAD, {"data": articles[:HELD_OUT_ARTICLES]})
    _write(folder / SEEN_SQUAD, {"data": articles[HELD_OUT_ARTICLES:]})
    entries: list[Any] = []
    for file in hotpotqa_files(options):
        entries += json.loads(content(file))
    # Only the file of the other questions has `supporting_facts`, which the expert needs.
    unseen = [entry for entry in entries if "gold_titles" in entry][:HELD_OUT_QUESTIONS]
    questions = {entry["question"] for entry in unseen}
    articles_of_unseen = {title for entry in unseen for title in entry["gold_titles"]}
    seen = [
        entry
        for entry in entries
        if entry.get("supporting_facts")
        and entry["question"] not in questions
        and articles_of_unseen.isdisjoint(title for title, _ in entry["supporting_facts"])
    ]
    _write(folder / UNSEEN_HOTPOT, unseen)
    _write(folder / SEEN_HOTPOT, seen)


def _write(file: Path, value: Any) -> None:
    with replacing(file) as new:
        new.write_bytes(gzip.compress(json.dumps(value).encode(), mtime=0))
