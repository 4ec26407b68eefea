"""From rows to documents, questions and answers."""

from datetime import date

import pytest

from memagent_train.data.columns import BadRow, read_row
from memagent_train.data.settings import ColumnSettings

ROW = {"document": "A mill.", "question": "What?", "answers": ["mill", "a mill"], "level": 3}


def read(columns: dict[str, str] | None = None, **row: object):
    return read_row({**ROW, **row}, ColumnSettings(**(columns or {})))


def test_a_row_is_read() -> None:
    record = read()
    assert (record.document, record.question, record.answers) == (
        "A mill.",
        "What?",
        ("mill", "a mill"),
    )
    assert record.others == {"level": 3}


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ("mill", ("mill",)),
        (12, ("12",)),
        (1.5, ("1.5",)),
        (7.0, ("7",)),
        (10**400, (f"1{400 * '0'}",)),
        (["a", "b", "a"], ("a", "b")),
        (("a", 2), ("a", "2")),
        ({"text": ["a", "b"], "start": [3, 4]}, ("a", "b")),
        ([{"text": "a"}, {"text": "b"}], ("a", "b")),
    ],
)
def test_answers_come_in_several_forms(answers: object, found: tuple[str, ...]) -> None:
    nested = isinstance(answers, dict) or (
        isinstance(answers, list) and isinstance(answers[0], dict)
    )
    columns = {"answers": "answers.text"} if nested else {}
    assert read(columns, answers=answers).answers == found


def test_documents_may_be_lists() -> None:
    assert read(document=["One.", "Two."]).document == "One.\n\nTwo."


def test_a_dot_goes_into_a_column_unless_one_has_that_name() -> None:
    columns = {"document": "meta.text"}
    nested = read(columns, meta={"text": "inside", "more": 1})
    assert nested.document == "inside"
    assert "meta" not in nested.others
    assert nested.others["document"] == "A mill."
    literal = read(columns, **{"meta.text": "outside", "meta": {"text": "inside"}})
    assert literal.document == "outside"
    assert literal.others["meta"] == {"text": "inside"}


@pytest.mark.parametrize(
    ("columns", "row", "said"),
    [
        (
            {"document": "text"},
            {},
            r"no column 'text' \(the columns are 'document', 'question', 'answers', 'level'\)",
        ),
        ({"document": "text"}, {}, r"columns\.document of the source"),
        ({"answers": "answers.text"}, {}, r"no column 'answers\.text'"),
        ({"answers": "answers.text"}, {"answers": {"value": 1}}, r"no column 'answers\.text'"),
        ({}, {"document": None}, r"'document' must be a text, got None \(NoneType\)"),
        ({}, {"document": "  \n"}, "'document' is blank"),
        ({}, {"document": []}, "'document' is blank"),
        ({}, {"document": ["a", 3]}, r"'document' must be a text, got 3 \(int\)"),
        ({}, {"question": 3}, r"'question' must be a text, got 3 \(int\)"),
        ({}, {"question": b"q"}, r"must be a text, got b'q' \(bytes\)"),
        ({}, {"answers": []}, "'answers' has no answer"),
        ({}, {"answers": None}, r"'answers' has None"),
        ({}, {"answers": b"yes"}, r"'answers' has b'yes' \(bytes\)"),
        ({}, {"answers": [date(2020, 1, 2)]}, r"kind = 'jsonl' keeps it as it is written"),
        ({}, {"answers": True}, r"'answers' has True \(bool\)"),
        ({}, {"answers": float("nan")}, r"'answers' has nan \(float\)"),
        ({}, {"answers": [1.5, float("-inf")]}, r"'answers' has -inf \(float\)"),
        ({}, {"answers": ["a", " "]}, "'answers' is blank"),
        ({}, {"answers": [["a"]]}, r"'answers' has \['a'\] \(list\)"),
        ({}, {"document": "half \ud800 pair"}, "a lone surrogate at character 5"),
        ({}, {f"c{i}": i for i in range(20)} | {"document": None}, "None"),
    ],
)
def test_rows_that_lack_something_are_told(
    columns: dict[str, str], row: dict[str, object], said: str
) -> None:
    with pytest.raises(BadRow, match=said):
        read(columns, **row)


def test_long_lists_of_columns_are_cut() -> None:
    with pytest.raises(BadRow, match=r"'c7' and 12 more\)"):
        read({"document": "text"}, **{f"c{i}": i for i in range(20)})


def test_digests_tell_rows_apart_by_what_they_say() -> None:
    assert read(level=4).digest == read().digest
    others = [read(document="A"), read(question="Who?"), read(answers=["mill a", "mill"])]
    assert len({record.digest for record in [read(), *others]}) == 4
