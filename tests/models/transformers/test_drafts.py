import pytest

from memagent.models.transformers.drafts import KEPT, Drafts


def noted(*replies: list[int]) -> Drafts:
    drafts = Drafts()
    for reply in replies:
        drafts.note(reply)
    return drafts


@pytest.mark.parametrize(
    ("prompt", "guess"),
    [
        ([1, 5, 6, 7, 8, 9, 2], [5, 6, 7, 8, 9]),  # the whole reply stands there
        ([1, 5, 6, 7, 8, 3, 2], [5, 6, 7, 8, 9]),  # its beginning does
        ([1, 5, 6, 7, 3, 8, 9], []),  # too little of it
        ([7, 8, 9], []),
        ([], []),
    ],
)
def test_a_reply_that_begins_in_the_prompt_is_guessed(prompt: list[int], guess: list[int]) -> None:
    assert noted([5, 6, 7, 8, 9]).guess(prompt, 10) == guess


def test_a_short_reply_is_guessed_where_all_of_it_stands() -> None:
    assert noted([5]).guess([3, 5, 4], 10) == [5]
    assert noted([5, 6]).guess([3, 5, 4], 10) == []


def test_of_several_the_one_with_most_in_the_prompt_and_then_the_latest() -> None:
    assert noted([5], [5, 6, 7, 8, 9], [5, 6]).guess([5, 6, 7, 8, 9], 10) == [5, 6, 7, 8, 9]
    assert noted([5, 6, 7, 8, 1], [5, 6, 7, 8, 2]).guess([5, 6, 7, 8], 10)[-1] == 2
    assert noted([5, 6, 7, 8, 1], [5, 6, 7, 8, 2], [5, 6, 7, 8, 1]).guess([5, 6, 7, 8], 10)[-1] == 1


def test_no_more_than_asked_for_is_guessed() -> None:
    assert noted([5, 6, 7, 8, 9]).guess([5, 6, 7, 8, 9], 2) == [5, 6]
    assert noted([5]).guess([5], 0) == []


def test_ids_of_large_vocabularies_and_surrogates_are_ids_like_others() -> None:
    assert noted([0xD800, 262_143]).guess([1, 0xD800, 262_143, 1], 10) == [0xD800, 262_143]


def test_old_replies_are_forgotten_and_empty_ones_never_known() -> None:
    drafts = noted([1], [2], [])
    for one in range(3, KEPT + 2):
        drafts.note([one])
    assert drafts.guess([1], 10) == []
    assert drafts.guess([2], 10) == [2]
