"""Families of the notes: their notes alone give the answer, each of the evidence is needed, and no other changes it."""

import re
from random import Random

import pytest
from tests.bench.notes.solver import NAME, solve

from memagent.tasks import SCORERS
from memagent_bench.notes.families import FAMILIES, TAUGHT, Place, World
from memagent_bench.notes.vocabulary import (
    COINS,
    HELD_OUT,
    MASTER,
    TRAINED,
    Vocabulary,
    Wording,
)

EVERY = pytest.mark.parametrize("name", FAMILIES)
WORDINGS = pytest.mark.parametrize("wording", [TRAINED, HELD_OUT], ids=lambda w: w.label)
DRAWS = 80
WORDS = Vocabulary(3, 4)


def world_of(rng: Random, wording: Wording, words: Vocabulary = WORDS) -> World:
    first, second, *others = words.names(7, rng)
    return World(words, wording, (first, second), tuple(others))


def text_of(told: list[Place], *, without: int | None = None) -> str:
    return " ".join(fact.text for place, (_, fact) in enumerate(told) if place != without)


@EVERY
@WORDINGS
@pytest.mark.parametrize(
    "words",
    [Vocabulary(2, 2), Vocabulary(2, 2, held_out=True), WORDS],
    ids=["short", "short held out", "long"],
)
def test_the_notes_that_matter_give_the_answer_and_none_of_the_evidence_is_idle(
    name: str, wording: Wording, words: Vocabulary
) -> None:
    family, rng = FAMILIES[name], Random(name)
    for _ in range(DRAWS):
        world = world_of(rng, wording, words)
        told, outputs = family.make(world, rng)
        question = world.ask(family.asks, rng)
        answer = solve(text_of(told), question)
        assert answer is not None
        assert answer == ", ".join(outputs)
        assert SCORERS[family.scorer](answer, outputs) == 1
        assert [place for place, _ in told] == sorted(place for place, _ in told)
        assert all(0 <= place < 1 for place, _ in told)
        assert {i for _, fact in told for i in fact.supports} == set(range(len(outputs)))
        for at, (_, fact) in enumerate(told):
            changed = solve(text_of(told, without=at), question) != answer
            assert changed == bool(fact.supports), "evidence is what is needed, and nothing else"
            assert bool(fact.notes) == bool(fact.supports)


@EVERY
@WORDINGS
def test_no_passing_note_changes_an_answer(name: str, wording: Wording) -> None:
    family, rng = FAMILIES[name], Random(name)
    aside = 0
    for _ in range(20):
        world = world_of(rng, wording)
        told, outputs = family.make(world, rng)
        question = world.ask(family.asks, rng)
        others = [world.passing(family.asks, rng) for _ in range(100)]
        assert not [fact for fact in others if fact.supports or fact.notes]
        between = [fact.text for fact in others]
        for _, fact in told:
            between += [fact.text, *(other.text for other in others)]
        assert solve(" ".join(between), question) == ", ".join(outputs)
        # Said by nobody else, the answer cannot be known from them.
        alone = solve(" ".join(fact.text for fact in others), question)
        assert alone in (None, "?, ?")
        aside += sum(world.asked[0] in fact.text for fact in others)
        assert not any(world.asked[1] in fact.text for fact in others)
    # A quarter are masters, or three quarters coins; 15% of these are about the one who is asked for.
    expected = 0.15 * (0.75 if family.asks == MASTER else 0.25)
    assert aside / 2000 == pytest.approx(expected, abs=0.03)


@EVERY
def test_passing_notes_are_of_all_kinds_and_about_all_others(name: str) -> None:
    rng = Random(0)
    world = world_of(rng, TRAINED)
    texts = [world.passing(FAMILIES[name].asks, rng).text for _ in range(1000)]
    masters = [text for text in texts if not re.search(r"\d", text)]
    assert len(masters) / len(texts) == pytest.approx(0.25, abs=0.04)
    assert {name for text in texts for name in NAME.findall(text)} == {
        world.asked[0],
        *world.others,
    }
    assert all(len(set(NAME.findall(text))) == 2 for text in masters)


def test_numbers_that_are_overwritten_are_never_right() -> None:
    rng, seen = Random(0), set[int]()
    for _ in range(DRAWS):
        world = world_of(rng, TRAINED, Vocabulary(2, 2, held_out=True))
        told, outputs = FAMILIES["last"].make(world, rng)
        numbers = re.findall(r"\d+", text_of(told))
        assert numbers[-1] == outputs[0]
        assert len(set(numbers)) == len(numbers)
        seen.add(len(numbers))
    assert seen == {2, 3, 4}


def test_a_hops_master_comes_first_and_may_have_another_number_later() -> None:
    rng, seen = Random(0), set[int]()
    for _ in range(DRAWS):
        world = world_of(rng, TRAINED)
        told, _ = FAMILIES["hop"].make(world, rng)
        who, master = world.asked
        assert {who, master} == set(NAME.findall(told[0][1].text))
        assert told[0][1].notes == (master,)
        assert all(NAME.findall(fact.text) == [master] for _, fact in told[1:])
        seen.add(len(told))
    assert seen == {2, 3}


def test_a_counts_notes_are_its_numbers_from_there_on() -> None:
    rng, seen = Random(0), set[int]()
    for _ in range(DRAWS):
        world = world_of(rng, TRAINED)
        told, outputs = FAMILIES["count"].make(world, rng)
        question = world.ask(COINS, rng)
        values = [solve(text_of(told[: n + 1]), question) for n in range(len(told))]
        for at, (_, fact) in enumerate(told):
            assert list(fact.notes) == values[at:]
        assert int(outputs[0]) == int(values[0] or 0) + len(told) - 1
        seen.add(len(told) - 1)
    assert seen == {1, 2, 3, 4}


def test_a_pair_is_said_in_either_order_and_answered_in_that_of_the_question() -> None:
    rng, first = Random(0), set[bool]()
    for _ in range(DRAWS):
        world = world_of(rng, TRAINED)
        told, outputs = FAMILIES["pair"].make(world, rng)
        for _, fact in told:
            (place,) = fact.supports
            assert fact.notes == (outputs[place],)
            assert NAME.findall(fact.text) == [world.asked[place]]
        assert NAME.findall(world.ask("pair", rng)) == list(world.asked)
        first.add(told[0][1].supports == (0,))
    assert first == {True, False}


def test_what_is_taught_is_there() -> None:
    assert set(TAUGHT) < set(FAMILIES)
    assert {FAMILIES[name].asks for name in TAUGHT} == {COINS, MASTER}
