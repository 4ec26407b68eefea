"""The retrieval tasks: published parameters, exact lengths, evidence that stands where it says."""

import re
import time
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memagent.errors import ConfigError
from memagent_bench.haystacks import sentences
from memagent_bench.length_tokens import length_counter
from memagent_bench.options import DataOptions
from memagent_bench.ruler import niah, words
from memagent_bench.ruler.niah import DEPTHS, GENERATE, NIAH, NiahTask
from memagent_bench.ruler.words import KindName, draw

COUNTER = length_counter(None)
STORY = " ".join(
    f"On day {i} of the voyage, number {i * 7} was called. Nobody came{'!' if i % 3 else '...'}"
    for i in range(400)
)
VALUE = {"numbers": r"[0-9]{7}", "uuids": r"[0-9a-f-]{36}", "words": r"\S+-.+"}


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> DataOptions:
    """A story of the test's own: the shipped book is the business of one test."""
    path = tmp_path_factory.mktemp("essays") / "story.txt"
    path.write_text(STORY, encoding="utf-8")
    return DataOptions(counter=COUNTER, essays=(path,))


def test_published_parameters() -> None:
    assert list(NIAH) == [
        "niah_single_1",
        "niah_single_2",
        "niah_single_3",
        "niah_multikey_1",
        "niah_multikey_2",
        "niah_multikey_3",
        "niah_multivalue",
        "niah_multiquery",
    ]
    table = [(s.haystack, s.key, s.value, s.keys, s.values, s.queries) for s in NIAH.values()]
    assert table == [
        ("noise", "words", "numbers", 1, 1, 1),
        ("essay", "words", "numbers", 1, 1, 1),
        ("essay", "words", "uuids", 1, 1, 1),
        ("essay", "words", "numbers", 4, 1, 1),
        ("needles", "words", "numbers", 1, 1, 1),
        ("needles", "uuids", "uuids", 1, 1, 1),
        ("essay", "words", "numbers", 1, 4, 1),
        ("essay", "words", "numbers", 4, 1, 4),
    ]
    assert GENERATE == 128
    assert DEPTHS[:4] == [0, 3, 5, 8]
    assert (len(set(DEPTHS)), DEPTHS[-1]) == (40, 100)


@pytest.mark.parametrize("name", NIAH)
@pytest.mark.parametrize("nested", [False, True], ids=["apart", "nested"])
@settings(max_examples=20)
@given(index=st.integers(0, 10**6), length=st.integers(600, 6000))
def test_every_sample_is_what_it_says(
    options: DataOptions, name: str, nested: bool, index: int, length: int
) -> None:
    spec = NIAH[name]
    task = NiahTask(name, length, replace(options, nested=nested))
    sample = task.sample(index)

    assert sample.tokens == COUNTER.count(sample.prompt) + GENERATE
    assert sample.tokens <= length
    assert length - sample.tokens < 80, "less than a line or sentence is left over"
    assert (sample.task, sample.index, sample.length) == (name, index, length)

    wanted = spec.values * spec.queries
    assert len(set(sample.outputs)) == len(sample.outputs) == wanted
    assert all(re.fullmatch(VALUE[spec.value], value) for value in sample.outputs)
    assert sorted(i for e in sample.evidence for i in e.supports) == list(range(wanted))
    assert [e.start for e in sample.evidence] == sorted(e.start for e in sample.evidence)
    for found in sample.evidence:
        needle = sample.context[found.start : found.end]
        assert needle.startswith("Take note: ")
        assert needle.endswith(f" is {found.notes[0]}.")
        assert found.notes == (sample.outputs[found.supports[0]],)
        key = re.search(r"that belong to (.+) is ", needle)
        assert key is not None
        assert key[1] in sample.question
        assert key[1] in sample.after
        assert sample.context.count(f"belong to {key[1]} is") == spec.values
    assert sample.context == sample.context.strip()
    assert "  " not in sample.context
    assert "\n\n" not in sample.context


@pytest.mark.parametrize("name", NIAH)
def test_singular_for_one_value_and_one_query(options: DataOptions, name: str) -> None:
    sample = NiahTask(name, 2048, options).sample(0)
    one = len(sample.outputs) == 1
    for text in (sample.before, sample.after, sample.question):
        assert bool(re.search(r"secret (number|identifier)s", text)) != one


def test_other_keys_are_hidden_too(options: DataOptions) -> None:
    sample = NiahTask("niah_multikey_1", 2048, options).sample(3)
    keys = re.findall(r"belong to (.+?) is", sample.context)
    assert len(set(keys)) == 4
    assert [key in sample.question for key in keys].count(True) == 1
    assert len(sample.evidence) == 1


@pytest.mark.parametrize(("name", "others"), [("niah_single_2", 0), ("niah_multikey_1", 3)])
def test_needles_of_other_keys_compete(options: DataOptions, name: str, others: int) -> None:
    sample = NiahTask(name, 2048, options).sample(3)
    assert sample.competing is not None
    assert len(sample.competing) == others
    assert all(" belong to " in sample.context[at : at + 60] for at in sample.competing)


def test_every_line_of_a_haystack_of_needles_competes(options: DataOptions) -> None:
    sample = NiahTask("niah_multikey_2", 2048, options).sample(3)
    assert sample.competing is not None
    lines = sample.context.split("\n")
    assert len(sample.competing) == len(lines) - 1
    found = {sample.context[at:].split("\n")[0] for at in sample.competing}
    assert set(lines) - found == {sample.context[p.start : p.end] for p in sample.evidence}


def test_distractors_are_all_different(options: DataOptions) -> None:
    sample = NiahTask("niah_multikey_3", 8192, options).sample(1)
    lines = sample.context.split("\n")
    assert len(lines) > 80
    assert len(set(lines)) == len(lines)
    keys = [re.findall(VALUE["uuids"], line)[0] for line in lines]
    assert len(set(keys)) == len(keys)


def test_no_distractor_holds_the_answer(
    options: DataOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def few(kind: KindName, rng: Random) -> str:
        return str(rng.randint(1_000_000, 1_000_049)) if kind == "numbers" else draw(kind, rng)

    for module in (niah, words):
        monkeypatch.setattr(module, "draw", few)
    sample = NiahTask("niah_multikey_2", 8192, options).sample(1)
    assert sample.context.count(sample.outputs[0]) == 1
    assert sample.tokens == COUNTER.count(sample.prompt) + GENERATE


def test_noise_is_one_line_over_and_over(options: DataOptions) -> None:
    task = NiahTask("niah_single_1", 4096, options)
    lines = task.sample(0).context.split("\n")
    assert len(set(lines)) == 2
    assert task.facts["rounds"] == pytest.approx(len(lines), abs=10)


def test_essays_are_sentences_in_order_with_needles_at_depths(options: DataOptions) -> None:
    task = NiahTask("niah_multivalue", 4096, options)
    for index in range(20):
        sample = task.sample(index)
        text = sample.context
        for found in reversed(sample.evidence):
            text = text[: found.start].rstrip() + " " + text[found.end :].lstrip()
        units = sentences(text)
        assert units == sentences(STORY)[: len(units)]
        cuts = {int(len(units) * (depth / 100)) for depth in DEPTHS}
        for i, found in enumerate(sample.evidence):
            before = len(sentences(sample.context[: found.start])) - i
            assert before in cuts


@pytest.mark.parametrize("name", ["niah_single_1", "niah_single_2", "niah_multikey_2"])
def test_needles_stand_anywhere(options: DataOptions, name: str) -> None:
    task = NiahTask(name, 2048, options)
    shares = []
    for index in range(300):
        sample = task.sample(index)
        shares.append(sample.evidence[0].start / len(sample.context))
    tenths = [sum(int(share * 10) == i for share in shares) for i in range(10)]
    assert min(tenths) >= 12, "30 expected in each tenth"
    assert max(tenths) <= 55


@pytest.mark.parametrize("name", NIAH)
def test_nested_samples_ask_the_same_at_any_length(options: DataOptions, name: str) -> None:
    nested = replace(options, nested=True)
    short, long = (NiahTask(name, length, nested).sample(5) for length in (2048, 8192))
    assert (short.question, short.outputs) == (long.question, long.outputs)
    assert (short.before, short.after) == (long.before, long.after)
    assert [e.supports for e in short.evidence] == [e.supports for e in long.evidence]
    assert len(long.context) > 3 * len(short.context)
    for one, other in zip(short.evidence, long.evidence, strict=True):
        assert one.notes == other.notes
        depths = (one.start / len(short.context), other.start / len(long.context))
        assert depths[0] == pytest.approx(depths[1], abs=0.08)


@pytest.mark.parametrize("name", ["niah_multikey_2", "niah_multikey_3"])
def test_nested_samples_keep_their_distractors(options: DataOptions, name: str) -> None:
    nested = replace(options, nested=True)
    short, long = (NiahTask(name, length, nested).sample(5) for length in (2048, 8192))
    lines = [line for line in short.context.split("\n") if short.outputs[0] not in line]
    assert len(lines) > 15
    longer = iter(long.context.split("\n"))
    assert all(line in longer for line in lines), "in the same order"


def test_nested_essays_begin_alike(options: DataOptions) -> None:
    nested = replace(options, nested=True)
    short, long = (
        NiahTask("niah_single_2", length, nested).sample(5).context.replace("Take note: ", "\n")
        for length in (2048, 8192)
    )
    # Apart from the needle, which stands at the same depth and so at another place.
    plain = [re.sub(r"\n[^.]+\. ?", "", text) for text in (short, long)]
    assert plain[1].startswith(plain[0])


def test_samples_depend_on_seed_length_and_index_alone(options: DataOptions) -> None:
    def prompt(seed: int, length: int, index: int) -> str:
        return NiahTask("niah_multikey_2", length, replace(options, seed=seed)).sample(index).prompt

    base = prompt(1, 2048, 7)
    task = NiahTask("niah_multikey_2", 2048, replace(options, seed=1))
    task.sample(0)
    task.sample(9)
    assert task.sample(7).prompt == base == prompt(1, 2048, 7)
    for other in ((2, 2048, 7), (1, 2112, 7), (1, 2048, 8)):
        assert prompt(*other).split("belongs to")[1] != base.split("belongs to")[1]


@pytest.mark.parametrize("name", NIAH)
def test_the_least_length_is_named(options: DataOptions, name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        NiahTask(name, 200, options).sample(0)
    assert f"200 tokens are too few for {name}" in str(caught.value)
    least = max(int(number) for number in re.findall(r"[0-9]+", str(caught.value)))
    assert 200 < least < 700
    for index in range(30):
        assert NiahTask(name, least + 64, options).sample(index).tokens <= least + 64


class Counting:
    """GPT-2's counter, with how many characters it was given."""

    def __init__(self) -> None:
        self.chars = 0
        self.name = COUNTER.name
        self.control_tokens = COUNTER.control_tokens
        self.count_messages = COUNTER.count_messages
        self.measure = COUNTER.measure

    def count(self, text: str) -> int:
        self.chars += len(text)
        return COUNTER.count(text)


@pytest.mark.parametrize("name", ["niah_single_1", "niah_multikey_2", "niah_multiquery"])
def test_a_further_sample_tokenises_only_what_is_new(options: DataOptions, name: str) -> None:
    counter = Counting()
    task = NiahTask(name, 65536, replace(options, counter=counter))
    size = len(task.sample(0).prompt)
    first = counter.chars
    task.sample(1)
    assert counter.chars - first < 6000 < size / 30
    assert first < 4 * size, "linear: the text once by parts and once whole"


def test_a_million_tokens_take_no_time(options: DataOptions) -> None:
    """Ten times what it takes on a quiet machine: what is meant is that it does not take seconds."""
    task = NiahTask("niah_single_2", 1024 * 1024, options)
    task.sample(0)
    start = time.process_time()
    sample = task.sample(1)
    assert time.process_time() - start < 0.1
    assert 1024 * 1024 - 80 < sample.tokens <= 1024 * 1024
    assert int(task.facts["rounds"]) > 100, "a short story, many times"


def test_facts_say_what_the_data_is(options: DataOptions) -> None:
    facts = NiahTask("niah_single_2", 4096, options).facts
    assert str(facts.pop("haystack")).startswith("story.txt (sha256 ")
    assert str(facts.pop("wording")).startswith("memagent:")
    assert facts == {
        "rounds": 1,
        "positions": "shuffled",
        "nested": False,
        "length_tokenizer": "tiktoken:gpt2",
    }


def test_without_essays_the_shipped_book_stands_in() -> None:
    task = NiahTask("niah_single_3", 4096, DataOptions(counter=COUNTER))
    assert "War and Peace" in str(task.facts["haystack"])
    sample = task.sample(0)
    assert sample.context.startswith(("“Well, Prince", "Take note"))
    assert 3900 < sample.tokens <= 4096
