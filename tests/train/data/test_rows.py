"""Tables of the user's as sources."""

import logging
from pathlib import Path

import pytest
from tests.train.data.files import COUNTER, data, jsonl, rows

from memagent.errors import ConfigError
from memagent_train.data.jsonl import JsonlRows
from memagent_train.data.rows import RowSource, open_jsonl
from memagent_train.data.settings import JsonlSettings
from memagent_train.data.tried_questions import Header, TriedQuestion, line
from memagent_train.errors import DataError


def opened(path: Path, **more: object) -> RowSource:
    return open_jsonl(
        JsonlSettings.model_validate({"kind": "jsonl", "files": (path,), **more}), COUNTER
    )


def test_a_row_is_a_sample(tmp_path: Path) -> None:
    source = opened(jsonl(tmp_path / "a.jsonl", rows(3)), scorer="f1", generate=20)
    sample = source.sample(2, 5)
    assert sample.context == "House 2 has 6 windows."
    assert sample.question == "How many windows has house 2?"
    assert (sample.outputs, sample.index, sample.task) == (("6",), 2, "a.jsonl")
    assert sample.tokens == COUNTER.count(sample.prompt) + 20 == sample.length
    assert (sample.scorer, sample.columns) == ("f1", {"level": 2})
    assert source.sample(2, 0) == sample


def test_the_first_bad_row_is_named_with_the_remedy(tmp_path: Path) -> None:
    lines: list[object] = [
        *rows(2),
        {"text": "x", "question": "q", "answers": "a"},
        "{bad",
        *rows(1, 9),
    ]
    path = jsonl(tmp_path / "a.jsonl", lines)
    with pytest.raises(DataError) as found:
        opened(path)
    assert (
        "a.jsonl', line 3: there is no column 'document' (the columns are 'text', 'question', 'answers')"
        in str(found.value)
    )
    assert "columns.document" in str(found.value)
    assert "unusable = 'drop'" in str(found.value)


def test_bad_rows_are_dropped_where_asked_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines: list[object] = [{"a": 1}, *rows(2), "{bad", *rows(1, 9)]
    with caplog.at_level(logging.WARNING):
        source = opened(jsonl(tmp_path / "a.jsonl", lines), unusable="drop")
    assert [source.sample(i, 0).index for i in range(len(source))] == [1, 2, 4]
    assert source.facts["unusable"] == 2
    assert "2 rows lack something" in caplog.text
    with pytest.raises(DataError, match="no usable sample"):
        opened(jsonl(tmp_path / "b.jsonl", ["{bad"]), unusable="drop")


def test_rows_that_say_the_same_are_used_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    again = {**rows(1)[0], "level": 99}
    source = opened(jsonl(tmp_path / "a.jsonl", [*rows(3), again, rows(1)[0]]))
    assert len(source) == 3
    assert source.facts["twice"] == 2
    assert "2 rows repeat an earlier one" in caplog.text


def test_a_score_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'equivalent'"):
        opened(jsonl(tmp_path / "a.jsonl", rows(3)), scorer="equivalence")


@pytest.mark.parametrize(
    ("scorer", "answers", "why"),
    [
        ("number_match", "red", "number_match needs one number as reference, got 'red'"),
        ("values", ["\x01"], "none blank"),
    ],
)
def test_answers_that_the_score_cannot_use_make_a_row_unusable(
    tmp_path: Path, scorer: str, answers: object, why: str
) -> None:
    path = jsonl(tmp_path / "a.jsonl", [*rows(2), {**rows(1, 5)[0], "answers": answers}])
    with pytest.raises(DataError, match=r"line 3: .*give the source another scorer") as found:
        opened(path, scorer=scorer)
    assert why in str(found.value)
    source = opened(path, scorer=scorer, unusable="drop")
    assert (len(source), source.facts["unusable"]) == (2, 1)


def test_only_the_first_so_many(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", [*rows(3), "{bad"])
    assert len(opened(path, count=2)) == 2
    assert len(opened(path, count=3)) == 3


def test_known_rows_are_left_out(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", rows(4))
    source = opened(path)
    header = Header(
        source="a", data=source.data, model="m", tries=4, scorer="f1", prompt="p", seed=0
    )
    tried = [TriedQuestion(index=i, right=i, tries=4) for i in range(4)]
    (file := tmp_path / "tried.jsonl").write_bytes(line(header) + b"".join(map(line, tried)))
    left = opened(path, no_context=file, known=0.5)
    assert [left.read_question(i).index for i in range(len(left))] == [0, 1]
    assert left.digests.tolist() == source.digests[:2].tolist()
    assert left.read_question(1).question == "How many windows has house 1?"
    other = jsonl(tmp_path / "b.jsonl", rows(4, 50))
    with pytest.raises(DataError, match="for other data"):
        opened(other, no_context=file)


def test_a_file_that_changes_while_it_is_used_is_told(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", rows(3))
    source = opened(path)
    with path.open("r+b") as file:
        file.write(b"#" * 20)
    with pytest.raises(DataError, match="line 1: this is not JSON"):
        source.sample(0, 0)


def test_facts_notice_what_changes(tmp_path: Path) -> None:
    def of(lines: list[dict[str, object]], **more: object) -> str:
        (folder := tmp_path / str(len(list(tmp_path.iterdir())))).mkdir()
        file = jsonl(folder / "a.jsonl", lines)
        return str(data({"kind": "jsonl", "files": [file], **more}).facts)

    changed = rows(3)
    changed[1]["document"] += "!"
    other_column = rows(3)
    other_column[1]["level"] = 77
    before = of(rows(3))
    assert of(rows(3)) == before
    every = [
        before,
        of(changed),
        of(other_column),
        of(rows(4)),
        of(rows(3), scorer="f1"),
        of(rows(3)[::-1]),
    ]
    assert len(set(every)) == len(every)


def test_columns_that_no_json_holds_are_allowed() -> None:
    class Table:
        name = "table"

        def __len__(self) -> int:
            return 1

        def __iter__(self):
            yield self.row(0)

        def row(self, place: int) -> dict[str, object]:
            return {**rows(1)[0], "image": object()}

        def where(self, place: int) -> str:
            return "row 0"

    settings = JsonlSettings(kind="jsonl", files=(Path("unused"),))
    assert RowSource(settings, Table(), COUNTER).data == RowSource(settings, Table(), COUNTER).data


def test_a_gzipped_file_is_the_same_data(tmp_path: Path) -> None:
    plain = opened(jsonl(tmp_path / "a.jsonl", rows(5)))
    packed = RowSource(
        JsonlSettings(kind="jsonl", files=(Path("unused"),)),
        JsonlRows((jsonl(tmp_path / "a.jsonl.gz", rows(5)),)),
        COUNTER,
    )
    assert packed.data == plain.data
    assert packed.sample(4, 0).context == plain.sample(4, 0).context
