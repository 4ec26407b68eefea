import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent.cli.changes import Change, changes, gist, mark_changes, words
from memagent.quotes import sentences

texts = st.text(alphabet="ab .\n。!", max_size=60)


@given(texts)
def test_sentences_join_to_the_text(text: str) -> None:
    assert "".join(sentences(text)) == text


@given(texts, texts)
def test_marked_parts_join_to_the_new_text(old: str, new: str) -> None:
    parts = mark_changes(old, new)
    assert "".join(part for part, _ in parts) == new
    if old == new:
        assert not any(fresh for _, fresh in parts)
        assert changes(old, new) == []


@given(texts, texts)
def test_a_rewritten_sentence_can_be_rebuilt_from_its_words(old: str, new: str) -> None:
    parts = list(words(Change(old, new)))
    assert "".join(text for kind, text in parts if kind != "+") == old
    assert "".join(text for kind, text in parts if kind != "-") == new


def test_sentences_of_other_scripts() -> None:
    assert sentences("राम गया। वह आया॥ सब") == ["राम गया। ", "वह आया॥ ", "सब"]


def test_a_closing_quote_belongs_to_the_sentence_before_it() -> None:
    assert sentences("He said “No.” She left.\nWe") == ["He said “No.” ", "She left.\n", "We"]
    old, new = (f"He said “No.” {rest}" for rest in ("She left.", "The rain fell all week."))
    assert mark_changes(old, new) == [("He said “No.” ", False), ("The rain fell all week.", True)]


def test_added_removed_and_rewritten() -> None:
    old = "Ada lives in Bath. The dog barks.\nIt rains."
    new = "Ada lives in York. It rains.\nBob came."
    assert changes(old, new) == [
        Change("Ada lives in Bath.", "Ada lives in York."),
        Change("The dog barks.", ""),
        Change("", "Bob came."),
    ]
    rewritten = Change("Ada lives in Bath.", "Ada lives in York.")
    assert [part for part in words(rewritten) if part[0] != "="] == [("-", "Bath"), ("+", "York")]


def test_a_word_keeps_its_vowel_signs() -> None:
    parts = list(words(Change("वह किताब पढ़ता है", "वह किताबें पढ़ता है")))
    assert parts == [("=", "वह "), ("-", "किताब"), ("+", "किताबें"), ("=", " पढ़ता है")]


def test_unlike_sentences_are_not_shown_as_one_rewritten() -> None:
    assert changes("The dog barks.", "Nobody ever came to 7 Elm Street!") == [
        Change("The dog barks.", ""),
        Change("", "Nobody ever came to 7 Elm Street!"),
    ]


def test_the_gist_of_one_long_sentence_compares_no_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memagent.cli.changes.WORDS", None)
    assert gist("word " * 9999, "other " * 9999, 12) == "+ other oth…"


def test_a_repetitive_text_is_not_compared_for_minutes() -> None:
    old, new = "the" + " the" * 5000, "the" + " the the the x" * 1250
    assert changes(old, old) == []
    assert changes(old, new) == [Change(old, ""), Change("", new)]
    lines = "- yes.\n- yes.\n- no.\n" * 900
    assert gist("- yes.\n" * 2700, lines) == "+ - yes."
    assert mark_changes(lines, lines) == [(line, False) for line in sentences(lines)]


def test_gist_prefers_what_came() -> None:
    assert gist("It rains. Ada left.", "Ada left. Bob came.") == "+ Bob came."
    assert gist("It rains. Ada left.", "Ada left.") == "- It rains."
    assert gist("It rains.", "It rains.\n") == ""
    assert gist("1. Ada left.", "1. Ada left.\n2. Bob came.") == "+ 2. Bob came."
    assert gist("", "word " * 99, 20) == "+ word word word wo…"
