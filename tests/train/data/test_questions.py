"""HotpotQA and SQuAD with places that are fresh."""

from pathlib import Path

import pytest
from tests.bench.longqa import data as made
from tests.train.data.files import COUNTER, data

from memagent.errors import ConfigError, DocumentError
from memagent_train.data.questions import PlacedQuestions, open_hotpotqa, open_squad
from memagent_train.data.settings import HotpotqaSettings, SquadSettings
from memagent_train.data.tried_questions import Header, TriedQuestion, line
from memagent_train.errors import DataError


@pytest.fixture
def hotpot(tmp_path: Path) -> Path:
    return made.write(tmp_path / "hotpot.json", made.hotpot())


@pytest.fixture
def squad(tmp_path: Path) -> Path:
    return made.write(tmp_path / "squad.json", made.squad())


def opened(hotpot: Path, **more: object) -> PlacedQuestions:
    settings = HotpotqaSettings.model_validate(
        {"kind": "hotpotqa", "files": (hotpot,), "lengths": 1500, **more}
    )
    return open_hotpotqa(settings, COUNTER, 3)


def shares(source: PlacedQuestions, item: int, round_: int) -> tuple[float, ...]:
    """Where in its document an item's evidence stands."""
    sample = source.sample(item, round_)
    assert all(sample.context[e.start : e.end] for e in sample.evidence)
    return tuple(e.start / len(sample.context) for e in sample.evidence)


def test_gold_paragraphs_stand_elsewhere_in_each_sample_and_round(hotpot: Path) -> None:
    source = opened(hotpot)
    places = [shares(source, item, round_) for item in range(len(source)) for round_ in range(4)]
    assert len(set(places)) > 20
    assert shares(source, 2, 1) == shares(opened(hotpot), 2, 1)
    questions = [source.sample(2, round_).question for round_ in range(4)]
    assert len(set(questions)) == 1


def test_samples_are_questions_with_answers_and_evidence(hotpot: Path, squad: Path) -> None:
    source = opened(hotpot, lengths="1k,1500")
    assert len(source) == 6
    sample = source.sample(0, 0)
    assert sample.outputs == ("40 bridges",)
    assert len(sample.evidence) == 2
    assert sample.scorer == "sub_exact_match"
    assert sample.tokens <= sample.length
    assert {source.sample(i, r).length for i in range(6) for r in range(3)} == {1024, 1500}
    settings = SquadSettings(kind="squad", file=squad, lengths=(1024,))
    short = open_squad(settings, COUNTER, 0)
    assert len(short) == 30
    assert short.read_question(3).references == ("1003 mills", "1003")


def test_the_data_folder_is_used_with_a_warning(
    hotpot: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    data({"kind": "hotpotqa", "files": [hotpot], "lengths": 1024})
    assert caplog.text == ""
    hotpot.rename(hotpot.with_name("hotpot_dev_distractor_v1.json"))
    monkeypatch.setenv("MEMAGENT_DATA", str(hotpot.parent))
    assert len(data({"kind": "hotpotqa", "lengths": 1024})) == 6
    assert "cannot be measured on them" in caplog.text
    monkeypatch.delenv("MEMAGENT_DATA")
    with pytest.raises(ConfigError, match="HotpotQA was not found"):
        data({"kind": "hotpotqa", "lengths": 1024})


def test_further_paragraphs_and_other_lengths(hotpot: Path, squad: Path) -> None:
    with pytest.raises(ConfigError, match="available paragraphs"):
        opened(hotpot, lengths=16384)
    source = opened(hotpot, lengths=2048, paragraphs=(squad,))
    assert source.sample(0, 0, 4096).length == 4096
    assert opened(hotpot, lengths=16384, allow_repeats=True).sample(0, 0).tokens > 12000


def test_questions_whose_paragraphs_do_not_fit_are_left_out(tmp_path: Path) -> None:
    entries = made.hotpot()
    entries[1]["context"][3][1] = ["An endless tale of the town. " * 300]
    file = made.write(tmp_path / "long.json", entries)
    source = opened(file, lengths=1024)
    assert len(source) == 5
    assert 1 not in [source.read_question(item).index for item in range(5)]
    assert len(opened(file, lengths=4096, allow_repeats=True)) == 6
    mixed = opened(file, lengths="1k,4k", allow_repeats=True)
    assert {mixed.sample(1, round_).length for round_ in range(8)} == {4096}
    with pytest.raises(DataError, match="no question of 'hotpotqa' remains"):
        opened(hotpot=file, lengths=300)


def test_known_questions_are_left_out(hotpot: Path, tmp_path: Path) -> None:
    source = opened(hotpot)
    header = Header(
        source="hotpotqa", data=source.data, model="m", tries=2, scorer="f1", prompt="p", seed=0
    )
    tried = [TriedQuestion(index=i, right=i % 3, tries=2) for i in range(6)]
    file = tmp_path / "tried.jsonl"
    file.write_bytes(line(header) + b"".join(map(line, tried)))
    left = opened(hotpot, no_context=file)
    assert [left.read_question(item).index for item in range(len(left))] == [0, 3]
    assert left.sample(1, 0).index == 3
    assert left.facts["known"] == 4
    assert len(opened(hotpot, no_context=file, count=4)) == 2
    file.write_bytes(
        line(header)
        + b"".join(map(line, [TriedQuestion(index=i, right=2, tries=2) for i in range(6)]))
    )
    with pytest.raises(DataError, match="remains"):
        opened(hotpot, no_context=file)


def test_facts_notice_what_changes(hotpot: Path, tmp_path: Path) -> None:
    source = {"kind": "hotpotqa", "files": [hotpot], "lengths": 1500}
    before = data(source)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    (moved / hotpot.name).write_bytes(hotpot.read_bytes())
    assert data(source | {"files": [moved / hotpot.name]}).facts == before.facts
    entries = made.hotpot()
    entries[5]["context"][0][1][0] = "Something else altogether."
    (changed := tmp_path / "changed").mkdir()
    made.write(changed / hotpot.name, entries)
    assert data(source | {"files": [changed / hotpot.name]}).facts != before.facts
    assert data(source | {"lengths": 1400}).facts != before.facts
    assert data(source, seed=1).facts != before.facts


def test_a_file_of_another_form_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="does not have the expected form"):
        opened(made.write(tmp_path / "odd.json", {"a": 1}))
