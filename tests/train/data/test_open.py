"""All of the data: mixed, split, at other lengths, and always the same."""

import json
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from tests.bench.longqa import data as made
from tests.train.data.files import data, jsonl, rows

from memagent.errors import ConfigError
from memagent_train.data.samples import TrainingSample
from memagent_train.errors import DataError

OWN = "tests.train.data.files"


def sums(**more: object) -> dict[str, object]:
    return {"kind": "task", "use": f"{OWN}:Sums", "lengths": "1k,2k", "count": 40, **more}


@pytest.fixture
def table(tmp_path: Path) -> dict[str, object]:
    return {"kind": "jsonl", "files": [jsonl(tmp_path / "a.jsonl", rows(20))]}


def what(sample: TrainingSample) -> tuple[str, int]:
    return sample.task, sample.index


def test_each_item_comes_once_in_an_epoch(table: dict[str, object]) -> None:
    found = data(table, sums())
    assert len(found) == 60
    for epoch in range(3):
        samples = [what(found.sample(index, epoch)) for index in range(60)]
        assert len(set(samples)) == 60
        assert Counter(task for task, _ in samples) == {"jsonl": 20, "sums": 40}


def test_another_epoch_has_another_order_and_new_samples(table: dict[str, object]) -> None:
    found = data(table, sums())
    first, second = ([what(found.sample(i, e)) for i in range(60)] for e in (0, 1))
    of_table = [[index for task, index in epoch if task == "jsonl"] for epoch in (first, second)]
    assert of_table[0] != of_table[1]
    assert sorted(of_table[0]) == sorted(of_table[1])
    of_sums = [{index for task, index in epoch if task == "sums"} for epoch in (first, second)]
    assert not of_sums[0] & of_sums[1]


def test_weights_decide_the_mix_and_the_rest_comes_in_the_next_epoch(
    table: dict[str, object],
) -> None:
    found = data(table | {"weight": 1}, sums(weight=1))
    assert len(found) == 40
    epochs = [[what(found.sample(i, e)) for i in range(40)] for e in (0, 1)]
    assert all(Counter(task for task, _ in epoch) == {"jsonl": 20, "sums": 20} for epoch in epochs)
    assert len({sample for epoch in epochs for sample in epoch if sample[0] == "sums"}) == 40
    with pytest.raises(DataError, match="have no weight"):
        data(table, sums(weight=1))


def test_a_source_of_little_weight_is_not_left_out(table: dict[str, object]) -> None:
    found = data(table | {"weight": 300}, sums(weight=1))
    assert len(found) == 20
    assert Counter(found.sample(i).task for i in range(20)) == {"jsonl": 19, "sums": 1}


def test_a_size_of_ones_own(table: dict[str, object]) -> None:
    short = data(table, size=8)
    assert len(short) == 8
    both = {what(short.sample(i, e)) for e in (0, 1) for i in range(8)}
    assert len(both) == 16
    long = data(table, size=50)
    assert Counter(Counter(what(long.sample(i)) for i in range(50)).values()) == {2: 10, 3: 10}


def test_the_same_in_any_order_thread_and_process(table: dict[str, object]) -> None:
    first = data(table, sums(), seed=3)
    expected = [what(first.sample(i, 1)) for i in range(60)]
    again = data(table, sums(), seed=3)
    found: dict[int, tuple[str, int]] = {}
    threads = [
        threading.Thread(
            target=lambda part=part: found.update(
                {i: what(again.sample(i, 1)) for i in range(part, 60, 4)}
            )
        )
        for part in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[i] for i in range(60)] == expected
    assert [what(data(table, sums(), seed=4).sample(i, 1)) for i in range(60)] != expected
    code = (
        "import json, sys; from tests.train.data.files import data; "
        "found = data(*json.loads(sys.argv[1]), seed=3); "
        "print(json.dumps([[s.task, s.index] for s in (found.sample(i, 1) for i in range(60))] + [found.facts]))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, json.dumps([table, sums()], default=str)],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join([".", *sys.path]), "PYTHONHASHSEED": "7"},
    )
    *samples, facts = json.loads(ran.stdout)
    assert [tuple(sample) for sample in samples] == expected
    assert facts == first.facts


def test_held_out_items_are_never_trained_on(table: dict[str, object], tmp_path: Path) -> None:
    hotpot = {
        "kind": "hotpotqa",
        "files": [made.write(tmp_path / "h.json", made.hotpot())],
        "lengths": 1024,
    }
    train, held = data(table, sums(), hotpot).split(11)
    assert (len(train), len(held)) == (55, 11)
    seen = [train.sample(index, epoch) for epoch in range(4) for index in range(len(train))]
    kept = [held.sample(index) for index in range(len(held))]
    assert Counter(sample.task for sample in kept) == {"jsonl": 3, "sums": 7, "hotpotqa": 1}
    assert not {(s.task, s.question, s.context) for s in seen} & {
        (s.task, s.question, s.context) for s in kept
    }
    questions = {s.question for s in kept if s.task == "hotpotqa"}
    assert not questions & {s.question for s in seen}
    again = data(table, sums(), hotpot).split(11)[1]
    assert [again.sample(i) for i in range(11)] == kept


def test_a_split_has_the_shares_of_the_mix(table: dict[str, object]) -> None:
    train, held = data(table | {"weight": 1}, sums(weight=3)).split(8)
    assert Counter(held.sample(i).task for i in range(8)) == {"jsonl": 2, "sums": 6}
    assert Counter(train.sample(i).task for i in range(len(train))) == {"jsonl": 11, "sums": 34}


@pytest.mark.parametrize(
    ("held_out", "said"),
    [
        (0, "at least 1"),
        (-3, "at least 1"),
        (20, "20 samples of 'jsonl' would be held out"),
        (99, "fewer than 99"),
    ],
)
def test_what_cannot_be_held_out(table: dict[str, object], held_out: int, said: str) -> None:
    with pytest.raises(DataError, match=said):
        data(table).split(held_out)


def test_questions_in_two_sources_are_not_held_out_of_one(tmp_path: Path) -> None:
    files = [made.write(tmp_path / "h.json", made.hotpot())]
    short, long = (
        {"kind": "hotpotqa", "files": files, "lengths": length} for length in (1024, 2048)
    )
    assert len(data(short, long)) > 1
    with pytest.raises(DataError, match="'hotpotqa' and 'hotpotqa-2' have the same questions"):
        data(short, long).split(2)


def test_rows_that_another_source_holds_out_are_not_trained_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    few = [row | {"level": "another column"} for row in rows(20)]
    tables = [
        {"kind": "jsonl", "name": name, "files": [jsonl(tmp_path / f"{name}.jsonl", lines)]}
        for name, lines in (("few", few), ("many", rows(40)), ("others", rows(9, start=99)))
    ]
    train, held = data(*tables).split(16)
    seen, kept = ({found.sample(i).question for i in range(len(found))} for found in (train, held))
    assert not seen & kept
    assert seen | kept == {row["question"] for row in rows(40) + rows(9, start=99)}
    removed = 69 - 16 - len(train)
    assert train.facts["held_out_elsewhere"] == removed > 0
    assert "few: " in caplog.text
    assert "are held out of another source and are left out of training" in caplog.text
    assert "others: " not in caplog.text
    apart = data(tables[1], tables[2]).split(16)[0]
    assert len(apart) == 33
    assert "held_out_elsewhere" not in apart.facts, "a run made before resumes"


def test_questions_that_another_source_holds_out_are_not_trained_on(tmp_path: Path) -> None:
    questions = made.hotpot()
    first = made.write(tmp_path / "first.json", questions[:-1])
    every = made.write(tmp_path / "every.json", questions)
    sources = ({"kind": "hotpotqa", "files": [file], "lengths": 1024} for file in (first, every))
    train, held = data(*sources).split(2)
    seen, kept = ({found.sample(i).question for i in range(len(found))} for found in (train, held))
    assert not seen & kept


def test_a_source_that_is_all_held_out_of_another_is_refused(tmp_path: Path) -> None:
    few, many = (jsonl(tmp_path / f"{n}.jsonl", rows(n)) for n in (2, 3))
    sources = [
        {"kind": "jsonl", "files": [few], "name": "few", "weight": 1},
        {"kind": "jsonl", "files": [many], "name": "many", "weight": 1},
    ]
    refusals: list[str] = []
    for seed in range(8):
        try:
            train, held = data(*sources, seed=seed).split(2)
        except DataError as error:
            refusals.append(str(error))
        else:
            both = ({found.sample(i).question for i in range(2)} for found in (train, held))
            assert not set.intersection(*both)
    assert 0 < len(refusals) < 8
    assert all("that could be trained on are held out of other" in said for said in refusals)


def test_other_lengths(table: dict[str, object]) -> None:
    _, held = data(table, sums()).split(9)
    longer = held.at(16384)
    assert len(longer) == 6
    assert {longer.sample(i).length for i in range(6)} == {16384}
    assert {what(longer.sample(i)) for i in range(6)} <= {what(held.sample(i)) for i in range(9)}
    assert longer.facts != held.facts
    with pytest.raises(DataError, match="have fixed lengths"):
        data(table).at(8192)
    with pytest.raises(ConfigError, match="too few"):
        data({"kind": "ruler", "tasks": ["vt"], "lengths": 1024}).at(300)


def test_sources_of_one_kind_are_told_apart() -> None:
    vt = {"kind": "tracking", "tasks": ["chain"], "lengths": 2048, "count": 2}
    found = data(vt, vt, vt)
    assert found.name == "tracking, tracking-2, tracking-3"
    assert len({found.sample(i).context for i in range(6)}) == 6


def test_lengths_are_counted_as_asked() -> None:
    vt = {"kind": "ruler", "tasks": ["vt"], "lengths": 2048, "count": 1}
    by_bytes = data(vt | {"lengths": 4096}, length_tokenizer="bytes")
    assert len(by_bytes.sample(0).prompt) < 4096
    assert by_bytes.facts["length_tokenizer"] == "utf8-bytes"
    assert data(vt, length_tokenizer="gpt2").sample(0) == data(vt).sample(0)
    with pytest.raises(ConfigError, match="no tokenizer"):
        data(vt, length_tokenizer="no such tokenizer")


def test_facts_are_plain_and_made_of_everything(table: dict[str, object]) -> None:
    found = data(table, sums())
    assert json.loads(json.dumps(found.facts)) == found.facts
    parts = [
        found,
        *found.split(5),
        found.at(4096),
        data(table, sums(), size=7),
        data(table, sums(), seed=1),
    ]
    assert len({str(part.facts) for part in parts}) == len(parts)
    assert repr(found) == f"Data({found.name!r}, {len(found)} samples)"


@pytest.mark.parametrize(("index", "epoch"), [(-1, 0), (20, 0), (0, -1)])
def test_samples_that_there_are_not(table: dict[str, object], index: int, epoch: int) -> None:
    with pytest.raises(IndexError, match="there are 20"):
        data(table).sample(index, epoch)
