"""Long questions: gold paragraphs where the evidence says, others that do not give them away, exact lengths."""

import re
from dataclasses import replace
from importlib import resources
from itertools import pairwise
from pathlib import Path

import pytest
from tests.bench.longqa.data import hotpot, squad, story, titled, write
from tests.bench.longqa.test_data import memagents

from memagent.errors import ConfigError
from memagent.tasks import Sample
from memagent_bench.length_tokens import length_counter
from memagent_bench.longqa import tasks
from memagent_bench.longqa.tasks import TASKS, WithoutContext
from memagent_bench.options import DataOptions
from memagent_bench.ruler.qa import qa_2

COUNTER = length_counter(None)
HEAD = re.compile(r"(?:^|\n\n)Document (\d+):\n(.*)\n")


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> DataOptions:
    folder = tmp_path_factory.mktemp("longqa")
    return DataOptions(
        counter=COUNTER,
        hotpotqa=(write(folder / "h.json", hotpot(8, 20)),),
        squad=write(folder / "s.json", squad(12, 12)),
        paragraphs=(write(folder / "p.json", titled(400)),),
    )


def titles(sample: Sample) -> list[str]:
    """Of the documents, in order."""
    found = HEAD.findall(sample.context)
    assert [int(number) for number, _ in found] == list(range(1, len(found) + 1))
    return [title for _, title in found]


def gold_shares(sample: Sample) -> list[float]:
    return [e.start / len(sample.context) for e in sample.evidence]


@pytest.mark.parametrize("suite", ["qa", "ruler"])
def test_questions_of_unknown_gold_have_all_their_paragraphs(tmp_path: Path, suite: str) -> None:
    make = {"qa": tasks.hotpotqa, "ruler": qa_2}[suite]
    path = write(tmp_path / "eval_10.json", memagents(hotpot(8)))
    task = make(2048, DataOptions(counter=COUNTER, hotpotqa=(path,)))
    for index in range(8):
        sample = task.sample(index)
        assert {f"Place {index}.{i}" for i in range(8)} < set(titles(sample))
        assert sample.evidence == ()
        assert 2048 - 100 <= sample.tokens == COUNTER.count(sample.prompt) + 32 <= 2048
    with pytest.raises(ConfigError, match="too few"):
        make(512, DataOptions(counter=COUNTER, hotpotqa=(path,))).sample(0)


def test_a_quarter_of_a_million_tokens_with_repeats(options: DataOptions) -> None:
    task = tasks.hotpotqa(262144, replace(options, allow_repeats=True))
    sample = task.sample(2)
    assert COUNTER.count(sample.prompt) + sample.generate == sample.tokens
    assert 262144 - 100 <= sample.tokens <= 262144
    found = titles(sample)
    assert found.count("Cyd Dunn") == found.count("Town of Mia Noor") == 1, "gold comes once"
    assert found.count("Further 7") >= 2
    rounds = task.facts["rounds"]
    assert isinstance(rounds, int)
    assert max(found.count(title) for title in set(found)) in (rounds, rounds + 1)


def test_evidence_is_the_gold_paragraphs(options: DataOptions) -> None:
    sample = tasks.hotpotqa(8192, options).sample(4)
    texts = {sample.context[e.start : e.end] for e in sample.evidence}
    assert texts == {
        "Eva Falk\nEva Falk is a poet. Eva Falk was born in the Town of Kim Lund.",
        "Town of Kim Lund\nThe Town of Kim Lund has 44 bridges. Most are of stone.",
    }
    for e in sample.evidence:
        assert re.search(r"Document \d+:\n$", sample.context[: e.start])
        assert sample.context[e.end : e.end + 2] in ("\n\n", "")
        assert e.supports == (0,)
        note = "44 bridges" if "44" in sample.context[e.start : e.end] else "Town of Kim Lund"
        assert e.notes == (note,)
    assert [e.start for e in sample.evidence] == sorted(e.start for e in sample.evidence)
    assert sample.question.startswith("How many bridges has the birthplace of Eva Falk?")
    assert sample.outputs == ("44 bridges",)


def test_squad_shows_titles_and_all_forms_of_the_answer(options: DataOptions) -> None:
    sample = tasks.squad(8192, options).sample(13)
    assert sample.outputs == ("1101 mills", "1101")
    (evidence,) = sample.evidence
    text = sample.context[evidence.start : evidence.end]
    assert text == f"Old Mills 1\nIn that year 1101 mills stood. {story(1101)}"
    assert evidence.supports == (0, 1)
    assert evidence.notes == sample.outputs
    assert titles(sample).count("Old Mills 1") == 1, "no other paragraph of the article"


def test_no_other_document_has_or_names_a_gold_title(tmp_path: Path) -> None:
    entries = hotpot(2, 30)
    # A longer name of which it is a part does not name it.
    entries[1]["context"][0] = ["Trap", ["Ana Brel lived here, in fact."]]
    entries[1]["context"][1] = ["Near miss", ["Ana Brelling lived here."]]
    entries[1]["context"][2] = ["Ana Brel", ["Another one of the name."]]
    path = write(tmp_path / "h.json", entries)
    options = DataOptions(counter=COUNTER, hotpotqa=(path,), allow_repeats=True)
    found = titles(tasks.hotpotqa(8192, options).sample(0))
    assert "Trap" not in found
    assert "Near miss" in found
    assert found.count("Ana Brel") == 1


def test_own_paragraphs_come_first_and_further_ones_where_they_run_out(
    options: DataOptions,
) -> None:
    short, long = tasks.hotpotqa(4096, options), tasks.hotpotqa(16384, options)
    assert not [t for t in titles(short.sample(0)) if t.startswith("Further")]
    found = titles(long.sample(0))
    assert {t for t in found if t.startswith("Place 3")} == {f"Place 3.{i}" for i in range(18)}
    assert [t for t in found if t.startswith("Further")]
    assert short.facts["further"] == ""
    assert str(long.facts["further"]).startswith("p.json:")


def test_those_that_come_with_the_question_are_among_them(options: DataOptions) -> None:
    for index in range(4):
        found = titles(tasks.hotpotqa(4096, options).sample(index))
        assert {f"Place {index}.{i}" for i in range(18)} <= set(found)


def test_gold_places_are_fresh_for_every_sample(options: DataOptions) -> None:
    shares = [s for i in range(8) for s in gold_shares(tasks.hotpotqa(8192, options).sample(i))]
    assert len({round(share, 3) for share in shares}) > 12
    ordered = sorted([0, *shares, 1])
    assert max(b - a for a, b in pairwise(ordered)) < 0.45
    task = tasks.squad(8192, options)
    shares = sorted(share for i in range(100) for share in gold_shares(task.sample(i)))
    assert shares[5] < 0.2
    assert 0.3 < shares[50] < 0.7
    assert shares[-5] > 0.8


def test_nested_samples_keep_question_places_and_documents(options: DataOptions) -> None:
    nested = replace(options, nested=True)
    short, long = tasks.hotpotqa(4096, nested).sample(1), tasks.hotpotqa(16384, nested).sample(1)
    assert short.question == long.question
    few, many = titles(short), titles(long)
    assert set(few) < set(many)
    gold = {"Bo Carter", "Town of Ned Olin"}
    filler = [title for title in few if title not in gold]
    assert [title for title in many if title in filler] == filler, "in the same order"
    for title in gold:
        assert few.index(title) / len(few) == pytest.approx(many.index(title) / len(many), abs=0.06)


def test_without_repeats_too_long_is_refused_with_the_longest_length(options: DataOptions) -> None:
    with pytest.raises(ConfigError, match=r"--paragraphs FILE.*--allow-repeats") as caught:
        tasks.hotpotqa(1024 * 1024, options)
    found = re.search(r"up to (\d+) tokens, not of 1M", str(caught.value))
    assert found
    longest = int(found[1])
    for name, others in (("hotpotqa", options), ("squad", replace(options, paragraphs=()))):
        with pytest.raises(ConfigError) as caught:
            TASKS[name](1024 * 1024, others)
        longest = int(str(caught.value).split("up to ")[1].split()[0])
        task = TASKS[name](longest, others)
        for index in range(8):
            sample = task.sample(index)
            assert longest * 0.95 < sample.tokens <= longest
            documents = re.split(r"\n\nDocument \d+:\n", sample.context)
            assert len(set(documents)) == len(documents)
        assert task.facts["rounds"] == 1


def test_the_last_question_is_the_last_sample(options: DataOptions) -> None:
    task = tasks.hotpotqa(4096, options)
    assert (len(task), task.scorer) == (8, "sub_exact_match")
    task.sample(7)
    for index in (8, -1):
        with pytest.raises(ConfigError, match=f"no sample {index}: its data has 8 questions"):
            task.sample(index)


def test_too_short_a_length_is_refused(options: DataOptions) -> None:
    with pytest.raises(ConfigError, match=r"100 tokens are too few for hotpotqa \(sample 0 needs"):
        tasks.hotpotqa(100, options).sample(0)


def test_another_seed_asks_the_same_among_other_paragraphs(options: DataOptions) -> None:
    first, other = (tasks.hotpotqa(4096, replace(options, seed=n)).sample(0) for n in (0, 1))
    assert other.question == first.question
    assert other.context != first.context


@pytest.mark.parametrize("name", ["hotpotqa", "squad"])
def test_the_control_asks_the_same_with_nothing_to_read(options: DataOptions, name: str) -> None:
    with_text, control = TASKS[name](4096, options), TASKS[f"{name}_no_context"](4096, options)
    assert isinstance(control, WithoutContext)
    assert (control.name, control.scorer) == (f"{name}_no_context", with_text.scorer)
    asked, sample = with_text.sample(3), control.sample(3)
    assert sample.context == "(There is no document.)"
    assert (sample.question, sample.outputs) == (asked.question, asked.outputs)
    assert sample.evidence == ()
    assert sample.task == control.name
    assert sample.tokens == COUNTER.count(sample.prompt) + sample.generate < 150
    assert control.facts["context"] == "none"


def test_the_shipped_extracts_make_samples_of_8k() -> None:
    folder = resources.files("memagent_bench") / "data"
    options = DataOptions(
        counter=COUNTER,
        hotpotqa=(Path(str(folder / "hotpotqa_sample.json")),),
        squad=Path(str(folder / "squad_sample.json")),
    )
    hotpotqa, squad_ = tasks.hotpotqa(8192, options), tasks.squad(8192, options)
    assert (len(hotpotqa), len(squad_)) == (8, 60)
    for index in range(8):
        assert len(hotpotqa.sample(index).evidence) == 2
        assert len(squad_.sample(index).evidence) == 1
    notice = (folder / "README.md").read_text(encoding="utf-8")
    for word in ("CC BY-SA 4.0", "Zhilin Yang", "Pranav Rajpurkar", "Changes:", "dwyl"):
        assert word in notice
