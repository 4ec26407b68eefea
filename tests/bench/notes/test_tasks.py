"""Samples of the notes: answers are in their text, evidence where it is said to be, the length as asked."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from tests.bench.notes.solver import NAME, solve
from tests.bench.short_book import SENTENCES, book_options, own

from memagent.errors import ConfigError
from memagent.tasks import SCORERS, Sample, Task
from memagent.tokens import ByteBound
from memagent_bench.length_tokens import length_counter
from memagent_bench.notes import tasks
from memagent_bench.notes.families import FAMILIES, TAUGHT
from memagent_bench.notes.tasks import TASKS, NotesTask
from memagent_bench.notes.vocabulary import HELD_OUT, TRAINED, Vocabulary
from memagent_bench.options import DataOptions

EVERY = pytest.mark.parametrize("name", TASKS)
FAMILY = pytest.mark.parametrize("name", FAMILIES)
LENGTH = 2048
SAMPLES = 60
SHORT = Vocabulary(2, 2)


@pytest.fixture(scope="session")
def options(tmp_path_factory: pytest.TempPathFactory) -> DataOptions:
    return book_options(tmp_path_factory.mktemp("essays"))


@cache
def samples(name: str, options: DataOptions) -> list[Sample]:
    task = TASKS[name](LENGTH, options)
    return [task.sample(index) for index in range(SAMPLES)]


@EVERY
def test_the_text_alone_gives_the_answer_and_not_without_its_evidence(
    name: str, options: DataOptions
) -> None:
    task = TASKS[name](LENGTH, options)
    for sample in samples(name, options):
        answer = solve(sample.context, sample.question)
        assert answer is not None
        assert answer == ", ".join(sample.outputs)
        assert SCORERS[task.scorer](answer, sample.outputs) == 1
        assert sample.after == f"\n\n{sample.question}\nAnswer:"
        assert sample.evidence
        for place in sample.evidence:
            text = sample.context[: place.start] + sample.context[place.end :]
            assert solve(text, sample.question) != answer


@EVERY
def test_notes_that_nobody_needs_compete(name: str, options: DataOptions) -> None:
    for sample in samples(name, options):
        assert sample.competing is not None
        assert sample.competing or name.endswith("_sparse")
        assert list(sample.competing) == sorted(sample.competing)
        assert {place.start for place in sample.evidence}.isdisjoint(sample.competing)
        for start in sample.competing:
            assert NAME.search(sample.context[start : sample.context.index(".", start)])


@EVERY
def test_evidence_stands_where_it_is_said_to(name: str, options: DataOptions) -> None:
    for sample in samples(name, options):
        starts = [place.start for place in sample.evidence]
        assert starts == sorted(starts)
        for place in sample.evidence:
            note = sample.context[place.start : place.end]
            assert re.fullmatch(r"[A-Z][^.\n]+\.", note)
            assert place.start == 0 or sample.context[place.start - 1] == " "
            assert place.supports
            assert set(place.supports) <= set(range(len(sample.outputs)))
            assert place.notes[0] in note or name == "count"
            assert NAME.search(note)


@EVERY
def test_there_are_as_many_notes_as_are_due(name: str, options: DataOptions) -> None:
    found = [*samples(name, options)[:10]]
    found += [TASKS[name](length, options).sample(0) for length in (1000, 30_000)]
    for sample in found:
        assert len(notes(sample)) in counts(name, sample.length)
    # What an answer needs is said in any case.
    sample = TASKS[name](300 if name.endswith("_few") else 100, options).sample(0)
    assert solve(sample.context, sample.question) == ", ".join(sample.outputs)


def test_what_is_held_out_is_in_no_sample_of_a_training(options: DataOptions) -> None:
    for name in TAUGHT:
        trained = own_words(samples(name, options)) | own_words(samples(f"{name}_wording", options))
        held = own_words(samples(f"{name}_names", options))
        assert len(held) > SAMPLES
        assert held & trained == set()
        sentences, others = (
            {re.sub(r"\d+", "#", NAME.sub("_", note)) for s in found for note in notes(s)}
            for found in (samples(name, options), samples(f"{name}_wording", options))
        )
        assert sentences
        assert others
        assert sentences & others == set()
        questions, others = (
            {NAME.sub("_", s.question) for s in samples(of, options)}
            for of in (name, f"{name}_wording")
        )
        assert questions & others == set()


@EVERY
def test_samples_depend_on_seed_task_index_and_length_alone(
    name: str, options: DataOptions
) -> None:
    first = samples(name, options)
    again = TASKS[name](LENGTH, options)
    assert [again.sample(index) for index in (7, 0, 7)] == [first[7], first[0], first[7]]
    assert len({sample.context for sample in first}) == SAMPLES
    for other in (
        TASKS[name](LENGTH, replace(options, seed=43)).sample(0),
        TASKS[name](LENGTH + 500, options).sample(0),
    ):
        assert NAME.findall(other.question) != NAME.findall(first[0].question)
        assert own(other) != own(first[0])


def test_samples_are_the_same_as_ever(options: DataOptions) -> None:
    told = own(TASKS["hop"](640, options).sample(0))
    # Policies were trained on samples that were drawn so.
    assert told == (
        "There are 4559 coins in the purse of Gopelu. The purse of Fuzoge holds 8467 coins. "
        "Tuderu is the servant of Lorose. Rukare works for Sokoru. Sokoru has 7657 coins. "
        "The purse of Bofofa holds 6872 coins."
    )


@EVERY
def test_nested_samples_have_the_same_notes_at_the_same_shares_and_more_that_nobody_needs(
    name: str, options: DataOptions
) -> None:
    nested = replace(options, nested=True)
    short, long = (TASKS[name](length, nested) for length in (LENGTH, 8 * LENGTH))
    for index in range(10):
        one, other = short.sample(index), long.sample(index)
        assert (one.question, one.outputs) == (other.question, other.outputs)
        assert needed(one) == needed(other)
        for place, later in zip(one.evidence, other.evidence, strict=True):
            assert (place.notes, place.supports) == (later.notes, later.supports)
            share = place.start / len(one.context)
            assert share == pytest.approx(later.start / len(other.context), abs=0.1)
        few, many = notes(one), notes(other)
        assert len(few) in counts(name, LENGTH)
        assert len(many) in counts(name, 8 * LENGTH)
        rest = iter(many)
        assert all(note in rest for note in few), "those of the shorter one, in their order"
        # The filler begins at the same sentence.
        assert sentence(one, 0) == sentence(other, 0)
        assert solve(other.context, other.question) == ", ".join(other.outputs)
    apart = TASKS[name](8 * LENGTH, options).sample(0)
    assert needed(apart) != needed(samples(name, options)[0])


@EVERY
@pytest.mark.parametrize("length", [1, 40])
def test_a_length_without_room_is_refused_with_one_that_has(
    name: str, length: int, options: DataOptions
) -> None:
    check_refusal(lambda length: TASKS[name](length, options), length, name)


@FAMILY
@pytest.mark.parametrize("every", [70, 80])
def test_where_notes_are_dense_a_longer_length_is_advised(
    name: str, every: int, options: DataOptions
) -> None:
    # A note takes about 35 bytes, and each further one needs a longer document, which has further ones.
    counted = replace(options, counter=ByteBound())
    check_refusal(
        lambda length: NotesTask(name, length, counted, words=SHORT, every=every), 45, name
    )


def check_refusal(task: Callable[[int], Task], length: int, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{length} tokens are too few for {name} ") as caught:
        task(length).sample(0)
    enough = int(str(caught.value).split("at least ")[1])
    assert enough <= 1024
    roomy = task(enough)
    for index in range(40):
        assert roomy.sample(index).tokens <= enough


@pytest.mark.parametrize("length", [60, 5000])
def test_more_notes_than_a_document_holds_are_refused(length: int, options: DataOptions) -> None:
    counted = replace(options, counter=length_counter(None))
    with pytest.raises(ConfigError, match="every=5 leaves no room for sentences") as caught:
        NotesTask("last", length, counted, every=5).sample(0)
    enough = int(str(caught.value).split("at least ")[1])
    assert NotesTask("last", 5000, counted, every=enough + 2).sample(0).tokens <= 5000


def test_wrong_settings_are_refused(options: DataOptions) -> None:
    with pytest.raises(ConfigError, match="no family 'onec' \\(known: once, last, hop"):
        NotesTask("onec", LENGTH, options)
    for every in (0, -4):
        with pytest.raises(ConfigError, match=f"every must be at least 1 .* got {every}"):
            NotesTask("once", LENGTH, options, every=every)
    with pytest.raises(ConfigError, match=r"many must be at least 0 .* got -1"):
        NotesTask("once", LENGTH, options, many=-1)


@FAMILY
def test_a_short_document_of_a_real_book_begins_where_a_sentence_fits(name: str) -> None:
    shipped = DataOptions(counter=length_counter(None))
    task = NotesTask(name, 192, shipped, words=SHORT, every=26)
    found = [task.sample(index) for index in range(200)]
    assert max(sample.tokens for sample in found) <= 192
    for sample in found:
        assert all(output in sample.context for output in sample.outputs) or name == "count"


def test_what_a_record_has_to_say(options: DataOptions) -> None:
    for name, make in TASKS.items():
        task = make(LENGTH, options)
        family = FAMILIES[name.split("_")[0]]
        assert (task.name, task.scorer) == (name, family.scorer)
        facts = task.facts
        assert facts["kind"] == family.label
        told = facts["many"] if "many" in facts else LENGTH // int(facts["every"])
        assert told == due(name, LENGTH)
        assert (facts["syllables"], facts["digits"]) == (3, 4)
        assert facts["length_tokenizer"] == "words"
        assert facts["names"] == ("held out" if name.endswith("_names") else "as in training")
        assert facts["sentences"] == ("held out" if name.endswith("_wording") else "as in training")
    own_wording = replace(TRAINED, label="mine")
    assert NotesTask("once", LENGTH, options, wording=own_wording).facts["sentences"] == "mine"
    assert {TRAINED.label, HELD_OUT.label} == {"as in training", "held out"}


def due(name: str, length: int) -> int:
    """Notes that a document is to have."""
    if name.endswith("_few"):
        return tasks.FEW
    return length // (tasks.SPARSE if name.endswith("_sparse") else tasks.EVERY)


def counts(name: str, length: int) -> set[int]:
    """How many notes a document may have: where few are due, those that an answer needs are all."""
    return {max(needed, due(name, length)) for needed in range(1, 6)}


def notes(sample: Sample) -> list[str]:
    return re.findall(r"\w[^.]+\.", own(sample))


def needed(sample: Sample) -> list[str]:
    return [sample.context[place.start : place.end] for place in sample.evidence]


def own_words(found: list[Sample]) -> set[str]:
    """Names and numbers of samples."""
    texts = [f"{own(sample)} {sample.question}" for sample in found]
    return {word for text in texts for word in (*NAME.findall(text), *re.findall(r"\d+", text))}


def sentence(sample: Sample, place: int) -> str:
    """A sentence of the filler."""
    return re.findall("|".join(map(re.escape, SENTENCES)), sample.context)[place]
