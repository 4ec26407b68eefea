"""Classifies answers to `changes`: the last value, an outdated one, or somebody else's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from memagent.texts import show_length
from memagent_bench.records import read_records
from memagent_smol.facts import FactsTask, Story, facts
from memagent_smol.measure import CHANGES, SEED

KINDS = ("right", "right, outdated too", "outdated", "another statement", "in no statement")


def answers(folders: Sequence[Path]) -> list[str]:
    """Returns a Markdown table: the share of each kind of answer, for each arm, system, task and length.

    Args:
        folders: one per arm, as `measure` wrote them; the table has its name.

    Raises:
        StoreError: a folder has no records.
    """
    titles = ["Arm", "System", "Task", "n", *KINDS]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    tasks: dict[tuple[str, int], FactsTask] = {}
    for folder in folders:
        counts: dict[tuple[str, str, int], Counter[str]] = {}
        for record in read_records(folder):
            name, length = record.task, record.length
            if not name.startswith(CHANGES):
                continue
            if (task := tasks.get((name, length))) is None:
                many = int(name.removeprefix(CHANGES))
                task = facts(family="changes", length=length, seed=SEED, held_out=True, many=many)
                tasks[name, length] = task
            kind = sort_answer(record.answer or "", task.story(record.index))
            counts.setdefault((record.system, name, length), Counter())[kind] += 1
        for (system, name, length), count in counts.items():
            shares = [f"{count[kind] / count.total():.3f}" for kind in KINDS]
            what = f"{name}, {show_length(length)}"
            lines.append(
                f"| {' | '.join([folder.name, f'`{system}`', what, str(count.total()), *shares])} |"
            )
    return lines


def sort_answer(answer: str, story: Story) -> str:
    """Returns the kind of an answer, one of `KINDS`; an empty answer matches no statement."""
    reply = answer.lower()
    outdated = any(value.lower() in reply for value in story.outdated)
    if all(value.lower() in reply for value in story.outputs):
        return "right, outdated too" if outdated else "right"
    if outdated:
        return "outdated"
    reply = reply.strip(" .")
    notes = {note.text for note in story.notes}
    others = [fact.text.lower() for fact in story.facts if fact.text not in notes]
    return "another statement" if reply and any(reply in text for text in others) else KINDS[-1]
