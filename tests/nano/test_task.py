import re
from itertools import pairwise
from random import Random

import pytest

from memagent.cli import needle
from memagent.errors import ConfigError
from memagent.tasks import Sample
from memagent_bench.notes.vocabulary import HELD_OUT as NEW_WORDING
from memagent_nano import gate, measure
from memagent_nano.books import TRAINING, sentences_of
from memagent_nano.expert import NOTHING, Expert, read_memory
from memagent_nano.sizes import NANO, PICO, SIZES
from memagent_nano.task import FAMILIES, UNTRAINED, notes

N = 30
SEEDS = {
    "rewards": 0,
    "imitation": UNTRAINED,
    "more imitation": UNTRAINED + 1,
    "longer": UNTRAINED + 2,
    "gate": UNTRAINED + gate.HELD_OUT,
    "measured": measure.SEED,
}


def samples(family: str = "once", size: str = "pico", seed: int = 0, **new: bool) -> list[Sample]:
    task = notes(family=family, size=size, length=SIZES[size].lengths[-1], seed=seed, **new)
    return [task.sample(index) for index in range(N)]


def said(sample: Sample, syllables: int) -> set[str]:
    """All names and numbers of its notes."""
    reader = Expert("random", entries=999, syllables=syllables)
    asked = "How many coins has Tolu?"
    memory = read_memory(reader.update(asked, [], sample.context))
    return {word for entry in memory for word in entry}


@pytest.mark.parametrize("size", SIZES)
def test_held_out_names_and_numbers_are_in_no_training(size: str) -> None:
    syllables = SIZES[size].syllables
    trained, held = (
        {
            word
            for family in FAMILIES
            for sample in samples(family, size, seed, new_names=new)
            for word in said(sample, syllables)
        }
        for seed, new in ((SEEDS["rewards"], False), (SEEDS["measured"], True))
    )
    assert len(held) > 20
    assert any(word.isdigit() for word in held)
    assert not trained & held
    for sample in samples("hop", size, SEEDS["measured"], new_names=True):
        assert {*sample.outputs} <= held


def test_held_out_sentences_are_in_no_training() -> None:
    new = samples(seed=SEEDS["measured"], new_wording=True)
    reader = Expert("relevant", entries=999, syllables=PICO.syllables)
    forms = [re.escape(text) for text in NEW_WORDING.notes["coins"]]
    held_out = re.compile("|".join(re.sub(r"\\{\w+\\}", r"\\w+", form) for form in forms))
    for sample in new:
        assert said(sample, PICO.syllables) == set()
        assert held_out.search(sample.context)
        with pytest.raises(ConfigError):
            reader.answer(sample.question, [])
    for sample in samples():
        assert reader.update(sample.question, [], sample.context) != NOTHING
        assert not held_out.search(sample.context)


def test_the_held_out_books_are_none_of_the_training() -> None:
    long = {sentence for sentence in sentences_of(TRAINING) if len(sentence) > 40}
    for sample in samples(seed=SEEDS["measured"], new_books=True):
        assert not any(sentence in sample.context for sentence in long)
    assert any(sentence in sample.context for sample in samples() for sentence in long)


def test_each_purpose_has_documents_of_its_own() -> None:
    found = [{one.context for one in samples(seed=seed)} for seed in SEEDS.values()]
    assert len(set.union(*found)) == N * len(SEEDS)


def test_a_seed_makes_the_same_documents() -> None:
    assert samples("hop", seed=5) == samples("hop", seed=5)


def test_nested_documents_ask_the_same_at_all_lengths() -> None:
    tasks = [
        notes(family="last", size="pico", length=length, seed=9, nested=True)
        for length in (448, 896, 1792)
    ]
    for short, long in pairwise(task.sample(3) for task in tasks):
        assert (short.question, short.outputs) == (long.question, long.outputs)
        assert len(short.context) < len(long.context)


def test_what_there_is_none_of_is_refused() -> None:
    with pytest.raises(ConfigError, match="piko"):
        notes(family="once", size="piko", length=448)
    with pytest.raises(ConfigError, match="never"):
        notes(family="never", size="pico", length=448)


def test_the_demo_hides_names_that_no_training_shows() -> None:
    held_out = NANO.words(held_out=True)
    assert set(needle.NAMES) <= set(held_out.names(12, Random(0)))
    assert {len(str(count)) for count in needle.COUNTS} == {NANO.digits}
