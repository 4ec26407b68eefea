from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from memagent_viewer.deltas import Delta, find_delta, units

TEXTS = st.text(
    st.one_of(st.sampled_from("ab .\n\u3002\U0001f33f\u202e"), st.characters(codec="utf-8")),
    max_size=60,
)


def apply(old: str, delta: Delta) -> str:
    """What the page's script does, in UTF-16."""
    raw, at, made = old.encode("utf-16-le"), 0, b""
    for operation in delta:
        if isinstance(operation, str):
            made += operation.encode("utf-16-le")
            continue
        end = at + 2 * abs(operation)
        assert end <= len(raw)
        made += raw[at:end] if operation > 0 else b""
        at = end
    assert at == len(raw)
    return made.decode("utf-16-le")


@given(TEXTS, TEXTS)
def test_a_delta_rebuilds_the_text(old: str, new: str) -> None:
    assert apply(old, find_delta(old, new)) == new


@given(st.lists(TEXTS, max_size=4), st.lists(TEXTS, max_size=4), TEXTS)
def test_a_delta_of_related_texts_too(before: list[str], after: list[str], shared: str) -> None:
    old, new = shared.join(before), shared.join(after)
    delta = find_delta(old, new)
    assert apply(old, delta) == new
    kinds = [type(o) if isinstance(o, str) else o > 0 for o in delta]
    assert all(a != b for a, b in pairwise(kinds))


def test_an_equal_text_is_kept_whole() -> None:
    assert find_delta("Kiel. Emden.", "Kiel. Emden.") == [12]
    assert find_delta("", "") == []
    assert find_delta("\U0001f33f", "\U0001f33f") == [units("\U0001f33f")] == [2]


def test_a_word_is_found_in_its_sentence() -> None:
    delta = find_delta("The clerk counted 40 ships.", "The clerk counted 41 ships.")
    assert delta == [17, -3, " 41", 7]


def test_a_line_added_at_the_end_changes_nothing_before_it() -> None:
    assert find_delta("- Kiel", "- Kiel\n- Emden") == [6, "\n- Emden"]


def test_sentences_with_nothing_in_common_are_not_mixed() -> None:
    old, new = "The harbour of Kiel froze in May.", "We ate soup at the inn, of course."
    assert find_delta(old, new) == [-len(old), new]


def test_a_word_shared_by_chance_is_no_island() -> None:
    delta = find_delta("The mayor of Kiel slept very well.", "The king of Prussia slept very well.")
    assert delta == [3, -14, " king of Prussia", 17]


def test_passages_too_repetitive_to_compare_are_replaced() -> None:
    old, new = "x" + " x" * 1000, "x" + " x y" * 1000
    assert find_delta(old, new) == [-len(old), new]
