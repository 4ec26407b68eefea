"""Tracking samples: their answers are in their text, their evidence where it is said to be, their length as asked."""

from dataclasses import replace
from functools import cache

import pytest
from tests.bench.short_book import book_options, own
from tests.bench.tracking.solver import SOLVERS

from memagent.errors import ConfigError
from memagent.tasks import SCORERS, Sample
from memagent_bench.length_tokens import length_counter
from memagent_bench.options import DataOptions
from memagent_bench.tracking.tasks import TASKS

EVERY = pytest.mark.parametrize("name", TASKS)
LENGTH = 4096
SAMPLES = 60


@pytest.fixture(scope="session")
def options(tmp_path_factory: pytest.TempPathFactory) -> DataOptions:
    return book_options(tmp_path_factory.mktemp("essays"))


@cache
def samples(name: str, options: DataOptions) -> list[Sample]:
    task = TASKS[name](LENGTH, options)
    return [task.sample(index) for index in range(SAMPLES)]


@EVERY
def test_the_text_alone_gives_the_answer(name: str, options: DataOptions) -> None:
    task = TASKS[name](LENGTH, options)
    for sample in samples(name, options):
        answer = SOLVERS[name](sample.context, sample.question)
        assert answer is not None
        assert answer == ", ".join(sample.outputs)
        assert SCORERS[task.scorer](answer, sample.outputs) == 1
        assert sample.after.endswith("\nAnswer:")
        assert sample.question.startswith(sample.before.split(" Keep track")[0])


@EVERY
def test_a_long_text_alone_gives_the_answer_too_and_its_facts_fill_a_window(
    name: str, options: DataOptions
) -> None:
    counter = length_counter(None)
    sample = TASKS[name](2**17, replace(options, counter=counter)).sample(0)
    answer = SOLVERS[name](sample.context, sample.question)
    assert answer == ", ".join(sample.outputs)
    told = counter.count(own(sample))
    # Chains do not grow: a reader has to keep all of their notes.
    assert told < 1000 if name == "chain" else told > 6500
    for place in sample.evidence:
        text = sample.context[: place.start] + sample.context[place.end :]
        changed = SOLVERS[name](text, sample.question) != answer
        assert changed or name == "facts"


@pytest.mark.parametrize("name", ["ledger", "counter", "chain"])
def test_without_a_place_of_evidence_the_text_gives_another_answer(
    name: str, options: DataOptions
) -> None:
    for sample in samples(name, options):
        for place in sample.evidence:
            text = sample.context[: place.start] + sample.context[place.end :]
            assert SOLVERS[name](text, sample.question) != ", ".join(sample.outputs)


@EVERY
def test_evidence_stands_where_it_is_said_to(name: str, options: DataOptions) -> None:
    for sample in samples(name, options):
        assert bool(sample.evidence) == (name != "tally")
        starts = [place.start for place in sample.evidence]
        assert starts == sorted(starts)
        for place in sample.evidence:
            fact = sample.context[place.start : place.end]
            assert fact.endswith(".")
            assert fact.count(".") == 1
            assert not set(fact) & {"\n"}
            assert place.notes
            assert set(place.supports) <= set(range(len(sample.outputs)))
            if name in ("ledger", "chain", "counter"):
                assert place.notes[0] in fact


def test_a_ledgers_evidence_is_the_last_entry_of_each_asked_account(options: DataOptions) -> None:
    for sample in samples("ledger", options):
        by_output = {place.supports: place.notes for place in sample.evidence}
        assert by_output == {(i,): (value,) for i, value in enumerate(sample.outputs)}
        # No balance comes twice: an outdated one is never right.
        assert all(sample.context.count(value) == 1 for value in sample.outputs)


def test_a_counters_notes_are_its_values_from_there_on(options: DataOptions) -> None:
    for sample in samples("counter", options):
        assert len(sample.evidence) == 13
        values = []
        for place in sample.evidence:
            values.append(SOLVERS["counter"](sample.context[: place.end], sample.question))
        for i, place in enumerate(sample.evidence):
            assert list(place.notes[1 if i else 0 :]) == list(dict.fromkeys(values[i:]))


def test_a_chains_notes_tell_its_places_apart(options: DataOptions) -> None:
    for sample in samples("chain", options):
        assert len(sample.evidence) == 7
        asked = sample.question.split("from waymark ")[1].split()[0]
        before: set[str] = set()
        for place in sample.evidence:
            assert place.notes[0] != asked
            fresh = place.notes[0] not in before
            words = set(sample.context[place.start : place.end].strip(".").split())
            # Only a note between two others that were both read brings no name of its own.
            assert fresh or sum(word in before for word in words) == 2 or asked in words
            before |= {word for word in words if word[0].isupper() or word.isdigit()} - {"Trail"}


def test_facts_ask_for_people_and_things(options: DataOptions) -> None:
    asked = [sample.question.rsplit("Where is ", 1)[1] for sample in samples("facts", options)]
    things = sum(question.startswith("the ") for question in asked)
    assert 15 < things < 45
    carried = sum("or" not in e.notes for s in samples("facts", options) for e in s.evidence)
    assert carried > SAMPLES


@pytest.mark.parametrize("name", ["ledger", "facts"])
def test_what_is_asked_is_not_always_told_last(name: str, options: DataOptions) -> None:
    places = [
        evidence.end / len(sample.context)
        for sample in samples(name, options)
        for evidence in sample.evidence
    ]
    early = sum(place < 0.6 for place in places) / len(places)
    assert 0.15 < early < 0.85


@EVERY
def test_samples_depend_on_seed_task_index_and_length_alone(
    name: str, options: DataOptions
) -> None:
    first = samples(name, options)
    again = TASKS[name](LENGTH, options)
    assert [again.sample(index) for index in (7, 0, 7)] == [first[7], first[0], first[7]]
    assert len({sample.context for sample in first}) == SAMPLES
    others = (
        TASKS[name](LENGTH, replace(options, seed=43)).sample(0),
        TASKS[name](LENGTH + 500, options).sample(0),
    )
    assert all(other.question != first[0].question or name == "tally" for other in others)
    assert all(other.context != first[0].context for other in others)


@EVERY
def test_nested_samples_are_the_same_facts_under_more_filler(
    name: str, options: DataOptions
) -> None:
    nested = replace(options, nested=True)
    short, long = (TASKS[name](length, nested).sample(3) for length in (LENGTH, 4 * LENGTH))
    assert (short.question, short.outputs) == (long.question, long.outputs)
    assert own(short) == own(long)
    assert len(long.context) > 3.5 * len(short.context)
    for one, other in zip(short.evidence, long.evidence, strict=True):
        assert (one.notes, one.supports) == (other.notes, other.supports)
        assert one.start / len(short.context) == pytest.approx(
            other.start / len(long.context), abs=0.15
        )
    apart = TASKS[name](4 * LENGTH, options).sample(3)
    assert own(apart) != own(samples(name, options)[3])


@EVERY
def test_a_length_without_room_is_refused_with_one_that_has(
    name: str, options: DataOptions
) -> None:
    with pytest.raises(ConfigError, match=f"300 tokens are too few for {name} ") as caught:
        TASKS[name](300, options).sample(0)
    enough = int(str(caught.value).split("at least ")[1])
    for index in range(20):
        assert TASKS[name](enough, options).sample(index).tokens <= enough


def test_what_a_record_has_to_say(options: DataOptions) -> None:
    for name, make in TASKS.items():
        task = make(LENGTH, options)
        assert task.name == name
        assert task.scorer in SCORERS
        assert task.facts["length_tokenizer"] == "words"
        assert str(task.facts["haystack"]).startswith("book.txt")
    facts = TASKS["facts"]
    assert facts(LENGTH, options).facts["kind"] == "BABILong-style"
    assert facts(1024, options).facts["rounds"] == 1
    assert facts(32768, options).facts["rounds"] == 11
