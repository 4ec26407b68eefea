"""The notes as a training task: `kind = "task"`, `use = "memagent_nano.task:notes"`."""

from __future__ import annotations

from memagent_bench.length_tokens import length_counter
from memagent_bench.notes.tasks import NotesTask
from memagent_bench.notes.vocabulary import HELD_OUT, TRAINED
from memagent_bench.options import DataOptions
from memagent_nano.books import MEASURING, TRAINING
from memagent_nano.sizes import size_of

FAMILIES = ("once", "last", "hop")
"""Families that are trained on."""
UNTRAINED = 10**6
"""Added to the imitation's seed, so that reinforcement learning has other documents."""


def notes(
    *,
    family: str,
    size: str,
    length: int,
    seed: int = 0,
    new_names: bool = False,
    new_wording: bool = False,
    new_books: bool = False,
    nested: bool = False,
    every: int = 0,
) -> NotesTask:
    """Makes the task with the notes of a family, for a size.

    Args:
        family: one of `memagent_bench.notes.families.FAMILIES`.
        size: `pico` or `nano`.
        length: length of documents, in GPT-2 tokens.
        seed: seed of all samples.
        new_names: use names and numbers that no training shows.
        new_wording: use sentences that no training shows.
        new_books: use five books that no training shows, instead of the four of the training.
        nested: use the same relevant notes for an index at all lengths.
        every: tokens of document per note; default: the size's.

    Raises:
        ConfigError: there is no such family or size.
    """
    scale = size_of(size)
    options = DataOptions(
        counter=length_counter(None),
        seed=seed,
        essays=MEASURING if new_books else TRAINING,
        nested=nested,
    )
    return NotesTask(
        family,
        length,
        options,
        words=scale.words(held_out=new_names),
        wording=HELD_OUT if new_wording else TRAINED,
        every=every or scale.every,
    )
