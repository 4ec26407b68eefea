import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent.budget import ContextBudget
from memagent.errors import BudgetError, QuestionTooLong, WindowTooSmall


def test_the_published_division() -> None:
    budget = ContextBudget.divide(8192, frame=104, question=30)
    usable = 8192 - 104 - 16
    assert usable == 8072
    assert (budget.memory, budget.output, budget.chunk) == (1024, 1024, 5000)


def test_the_chunk_takes_the_rest_of_a_small_window() -> None:
    budget = ContextBudget.divide(1024, frame=200, question=40)
    share = int((1024 - 200 - 16) * 1024 / 8072)
    assert budget.memory == share
    assert budget.chunk == min(1024 - 200 - 16 - 40 - 2 * share, 625)


@given(
    window=st.integers(1, 40_000),
    frame=st.integers(0, 3000),
    question=st.integers(0, 3000),
    empty=st.integers(0, 50),
    memory=st.none() | st.integers(1, 20_000),
    chunk=st.none() | st.integers(1, 20_000),
)
def test_parts_never_exceed_the_window(
    window: int, frame: int, question: int, empty: int, memory: int | None, chunk: int | None
) -> None:
    try:
        budget = ContextBudget.divide(
            window, frame=frame, question=question, empty_memory=empty, memory=memory, chunk=chunk
        )
    except BudgetError:
        return
    assert budget.prompt + budget.output <= window
    assert budget.chunk >= 32
    assert budget.memory >= max(empty, 1)
    assert memory is None or budget.memory == budget.output == memory
    assert chunk is None or budget.chunk == chunk


def test_a_long_question_gets_the_numbers_and_the_remedy() -> None:
    with pytest.raises(
        QuestionTooLong,
        match=r"takes 1500 tokens, but a window of 8192 allows 1024:.*use a larger window$",
    ):
        ContextBudget.divide(8192, frame=104, question=1500)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"window": 100, "frame": 90, "question": 5}, "own wording takes 106 tokens; use"),
        ({"window": 256, "frame": 220, "question": 1}, "own wording takes 236 tokens; use"),
        ({"window": 270, "frame": 220, "question": 1}, "at least 32"),
        ({"window": 8192, "frame": 104, "question": 30, "memory": 5000}, "smaller memory_tokens$"),
        (
            {"window": 8192, "frame": 734, "question": 1, "memory": 100000},
            "room for a chunk of at least 32: frame 734, .* output 100000 already take 200751; use",
        ),
        ({"window": 8192, "frame": 104, "question": 30, "chunk": 7000}, "it must be 32 to"),
        ({"window": 8192, "frame": 104, "question": 30, "chunk": 8}, "chunk of 8 tokens"),
        ({"window": 8192, "frame": 104, "question": 3, "memory": 4, "empty_memory": 9}, "takes 9"),
    ],
)
def test_a_small_window_gets_the_numbers_and_the_remedy(
    arguments: dict[str, int], says: str
) -> None:
    with pytest.raises(WindowTooSmall, match=says):
        ContextBudget.divide(**arguments)
