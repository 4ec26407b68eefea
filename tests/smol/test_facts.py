"""Facts scattered over books: what is asked, what answers it, and what training never shows."""

from __future__ import annotations

import re

import pytest

from memagent.errors import ConfigError
from memagent.tasks import SCORERS
from memagent_smol.answers import KINDS, sort_answer
from memagent_smol.facts import FAMILIES, FactsTask, facts
from memagent_smol.vocabulary import (
    ATTRIBUTES,
    HELD_OUT_NEEDLES,
    HELD_OUT_ROLES,
    NEEDLES,
    ROLES,
    Words,
)

LENGTH = 2048


def task(family: str, *, held_out: bool = False, many: int = 0) -> FactsTask:
    return facts(family=family, length=LENGTH, held_out=held_out, many=many or 8)


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_document_says_what_answers(family: str, held_out: bool) -> None:
    made = task(family, held_out=held_out)
    for index in range(20):
        sample, story = made.sample(index), made.story(index)
        assert sample.tokens <= LENGTH
        places = [sample.context.index(note.text) for note in story.notes]
        assert places == sorted(places)
        answer = ", ".join(story.outputs)
        assert SCORERS[made.scorer](answer, sample.outputs) == 1.0
        for place in sample.evidence:
            said = sample.context[place.start : place.end]
            assert said in {note.text for note in story.notes}
            assert all(note.lower() in said.lower() for note in place.notes)


def test_the_last_value_counts_and_no_other() -> None:
    made = task("changes")
    for index in range(30):
        sample, story = made.sample(index), made.story(index)
        *outdated, last = story.notes
        assert 1 <= len(outdated) <= 3
        assert all(note.replaces for note in story.notes)
        assert sample.outputs[0].lower() in last.text.lower()
        assert not any(sample.outputs[0] in note.text for note in outdated)
        others = [fact.text for fact in story.facts if fact.text != last.text]
        assert not any(sample.outputs[0] in text for text in others)


def test_no_statement_about_the_asked_uses_the_words_of_the_question() -> None:
    roles = [*ROLES, *HELD_OUT_ROLES]
    for held_out in (False, True):
        made = task("changes", held_out=held_out)
        for index in range(30):
            story = made.story(index)
            for role in roles:
                for word in role:
                    if re.search(rf"\b{word}\b", story.question):
                        assert not any(re.search(rf"\b{word}\b", note.text) for note in story.notes)


def test_what_looks_alike_is_no_answer() -> None:
    made = task("changes", many=32)
    shared = 0
    for index in range(10):
        sample, story = made.sample(index), made.story(index)
        assert sample.competing is not None
        assert len(sample.competing) == 32 + len(story.notes) - 1
        place = re.findall(r"[A-Z][a-z]+", story.question)[-1]
        shared += sum(place in fact.text for fact in story.facts) - len(story.notes)
    assert shared > 10 * 8


def test_easy_stories_have_nothing_that_looks_alike() -> None:
    made = facts(family="changes", length=LENGTH, many=16, near=0.0)
    for index in range(10):
        story = made.story(index)
        place = re.findall(r"[A-Z][a-z]+", story.question)[-1]
        assert sum(place in fact.text for fact in story.facts) == len(story.notes)


def test_held_out_words_are_in_no_training() -> None:
    assert not {word for role in ROLES for word in role} & {
        word for role in HELD_OUT_ROLES for word in role
    }
    for attribute in ATTRIBUTES.values():
        assert not {*attribute.trained.said} & {*attribute.held_out.said}
        assert not {*attribute.trained.asked} & {*attribute.held_out.asked}
    assert not {*NEEDLES.said} & {*HELD_OUT_NEEDLES.said}
    seen, unseen = (
        {
            word
            for index in range(40)
            for word in re.findall(
                r"[A-Z][a-z]+",
                " ".join(task("changes", held_out=part).story(index).question.split()[1:]),
            )
        }
        for part in (False, True)
    )
    assert seen
    assert unseen
    assert not seen & unseen


def test_a_sample_depends_on_its_index_alone() -> None:
    one, other = task("needles"), task("needles")
    other.sample(3)
    assert one.sample(5) == other.sample(5)
    assert one.sample(5) != one.sample(6)


def test_many_chains_have_names_enough() -> None:
    assert len(facts(family="trace", length=LENGTH, many=96).story(0).facts) > 48


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"family": "none"}, "unknown family 'none'; known: changes, needles, trace"),
        ({"family": "trace", "many": -1}, "many must be at least 0, got -1"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        facts(length=LENGTH, **arguments)  # pyright: ignore[reportArgumentType]


def test_words_are_divided() -> None:
    from random import Random

    rng = Random(0)
    for draw in (Words.place, Words.surname, Words.thing, Words.number):
        seen = {draw(Words(), rng) for _ in range(200)}
        unseen = {draw(Words(held_out=True), rng) for _ in range(200)}
        assert not seen & unseen


def test_an_answer_is_sorted_by_the_statement_that_it_comes_from() -> None:
    made = task("changes", many=8)
    story = made.story(3)
    (last,), (first, *_) = story.outputs, story.outdated
    other = next(
        fact.text for fact in story.facts if fact.text not in {n.text for n in story.notes}
    )
    said = {
        f"It was {last.lower()}.": "right",
        f"{first}, then {last}": "right, outdated too",
        first: "outdated",
        f" {other}": "another statement",
        "nobody knows": "in no statement",
        "": "in no statement",
    }
    assert {text: sort_answer(text, story) for text in said} == said
    assert set(said.values()) == set(KINDS)
