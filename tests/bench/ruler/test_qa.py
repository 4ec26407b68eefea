"""RULER's questions: what comes with them at the same depths in every sample of a length, repeats as published."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.bench.longqa.data import hotpot, squad, titled, write

from memagent.tasks import Sample
from memagent_bench.length_tokens import length_counter
from memagent_bench.options import DataOptions
from memagent_bench.ruler.qa import qa_1, qa_2

COUNTER = length_counter(None)
TASKS = {"qa_1": qa_1, "qa_2": qa_2}


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> DataOptions:
    folder = tmp_path_factory.mktemp("qa")
    return DataOptions(
        counter=COUNTER,
        hotpotqa=(write(folder / "h.json", hotpot(8, 20)),),
        squad=write(folder / "s.json", squad(12, 12)),
        paragraphs=(write(folder / "p.json", titled(400)),),
    )


def documents(sample: Sample) -> list[str]:
    parts = re.split(r"(?:^|\n\n)Document (\d+):\n", sample.context)
    assert parts[0] == ""
    assert [int(n) for n in parts[1::2]] == list(range(1, len(parts) // 2 + 1))
    return parts[2::2]


def depths(sample: Sample) -> list[float]:
    """Share of the other documents that stand before each gold one."""
    parts = documents(sample)
    gold = [parts.index(sample.context[e.start : e.end]) for e in sample.evidence]
    return [(place - i) / (len(parts) - len(gold) + 1) for i, place in enumerate(gold)]


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("length", [4096, 32768, 262144])
def test_lengths_are_met_with_repeats_where_data_run_out(
    options: DataOptions, name: str, length: int
) -> None:
    task = TASKS[name](length, options)
    sample = task.sample(5)
    assert sample.tokens == COUNTER.count(sample.prompt) + 32
    assert length - 100 <= sample.tokens <= length
    assert task.scorer == "string_match_part"
    found = documents(sample)
    # Data of 144 or 160 paragraphs.
    again = max(found.count(text) for text in set(found))
    rounds = task.facts["rounds"]
    assert isinstance(rounds, int)
    assert again in (rounds, rounds + 1)
    assert (again == 1) == (length == 4096)
    for e in sample.evidence:
        assert found.count(sample.context[e.start : e.end]) == 1
    assert "Further" not in sample.context


def test_qa_1_shows_text_alone_and_the_article_first(options: DataOptions) -> None:
    sample = qa_1(4096, options).sample(13)
    assert "Old Mills" not in sample.context
    (e,) = sample.evidence
    assert sample.context[e.start : e.end].startswith("In that year 1101 mills stood. Report")
    assert sample.outputs == ("1101 mills", "1101")
    found = [int(n) for n in re.findall(r"In that year (\d+) mills", sample.context)]
    assert {n for n in found if n // 100 == 11} == set(range(1100, 1112))


def test_qa_2_shows_titles_and_the_paragraphs_of_the_question(options: DataOptions) -> None:
    sample = qa_2(4096, options).sample(2)
    found = [text.split("\n")[0] for text in documents(sample)]
    assert {f"Place 2.{i}" for i in range(18)} | {"Cyd Dunn", "Town of Mia Noor"} <= set(found)
    assert sample.outputs == ("42 bridges",)
    assert "Question: How many bridges has the birthplace of Cyd Dunn?" in sample.after


@pytest.mark.parametrize("name", TASKS)
def test_published_places_are_the_same_and_shuffled_ones_are_not(
    options: DataOptions, name: str
) -> None:
    task = TASKS[name](8192, options)
    first, *others = [depths(task.sample(i)) for i in (0, 1, 5, 7)]
    for other in others:
        assert other == pytest.approx(first, abs=0.03)
    elsewhere = TASKS[name](8192, replace(options, seed=3)).sample(0)
    assert depths(elsewhere) != pytest.approx(first, abs=0.03)
    drawn = TASKS[name](8192, replace(options, positions="shuffled"))
    shares = [depths(drawn.sample(i))[0] for i in range(8)]
    assert max(shares) - min(shares) > 0.2
    assert drawn.facts["positions"] == "shuffled"


def test_published_places_are_those_of_the_given_paragraphs_whichever_are_gold(
    tmp_path: Path,
) -> None:
    entries = hotpot(8)
    for n, entry in enumerate(entries):
        entry["context"] = entry["context"][n:] + entry["context"][:n]
    options = DataOptions(counter=COUNTER, hotpotqa=(write(tmp_path / "h.json", entries),))
    task = qa_2(4096, options)
    given: list[list[float]] = []
    gold: set[tuple[float, ...]] = set()
    for n, entry in enumerate(entries):
        sample = task.sample(n)
        parts = documents(sample)
        titles = [text.split("\n")[0] for text in parts]
        given.append([titles.index(title) / len(parts) for title, _ in entry["context"]])
        gold.add(tuple(round(depth, 1) for depth in depths(sample)))
    for places in given:
        assert places == pytest.approx(given[0], abs=0.06)
    # The ten turn by one place from question to question.
    assert len(gold) >= 6


@pytest.mark.parametrize("name", TASKS)
def test_nested_samples_have_the_same_places_and_more_documents(
    options: DataOptions, name: str
) -> None:
    nested = replace(options, nested=True)
    short, long = TASKS[name](4096, nested).sample(3), TASKS[name](16384, nested).sample(3)
    assert short.question == long.question
    assert set(documents(short)) <= set(documents(long))
    assert depths(short) == pytest.approx(depths(long), abs=0.06)
    assert TASKS[name](4096, nested).sample(3) == short
