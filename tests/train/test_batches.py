import torch
from hypothesis import given
from hypothesis import strategies as st

from memagent_train.advantages import TrainingRow
from memagent_train.batches import deal, padding_row, tensors
from memagent_train.rollouts import Row


@given(
    lengths=st.lists(st.integers(2, 9000), max_size=60),
    ranks=st.integers(1, 5),
    updates=st.integers(1, 4),
    micro_batches=st.integers(1, 9),
)
def test_every_row_is_dealt_once_and_all_processes_alike(
    lengths: list[int], ranks: int, updates: int, micro_batches: int
) -> None:
    dealt = deal(lengths, ranks=ranks, updates=updates, micro_batches=micro_batches, seed="0")
    places = [place for process in dealt for batch in process for place in batch]
    assert sorted(place for place in places if place is not None) == list(range(len(lengths)))
    shapes = [[len(batch) for batch in process] for process in dealt]
    assert len(dealt) == ranks
    assert all(shape == shapes[0] for shape in shapes)
    assert len(shapes[0]) == updates * micro_batches
    assert min(shapes[0]) >= 1
    # No more padding than the shape asks for: less than a row a micro-batch, and one a process for the odd row.
    rows = sum(shapes[0]) * ranks
    assert rows <= len(lengths) + updates * ranks * (micro_batches + 1)


def test_work_is_balanced_over_processes() -> None:
    lengths = [8000, 4000, 4000, 100, 100, 100, 7900, 200]
    dealt = deal(lengths, ranks=2, updates=1, micro_batches=4, seed="0")
    work = [
        sum(lengths[p] for batch in process for p in batch if p is not None) for process in dealt
    ]
    assert abs(work[0] - work[1]) <= 100


def test_rows_of_a_micro_batch_are_of_like_length() -> None:
    lengths = [1, 9, 2, 8, 3, 7]
    dealt = deal(lengths, ranks=1, updates=1, micro_batches=3, seed="0")
    assert [[lengths[p] for p in batch if p is not None] for batch in dealt[0]] == [
        [9, 8],
        [7, 3],
        [2, 1],
    ]


def test_updates_share_rows_out_at_random_by_the_seed() -> None:
    def first_update(seed: str) -> set[int | None]:
        return set(deal([5] * 20, ranks=1, updates=2, micro_batches=1, seed=seed)[0][0])

    assert first_update("1/0") == first_update("1/0") != first_update("1/1")


def test_tensors_are_padded_towards_the_response() -> None:
    rows = [
        TrainingRow(Row((5,), (6, 7, 8), (1, 0, 1), (-0.5, 0.0, -1.5)), advantage=2.0),
        TrainingRow(Row((2, 3), (4,), (1,), (-0.25,)), advantage=-1.0),
        padding_row(1),
    ]
    made = tensors(rows, [0.5, 3.0, 0.0], pad=0, device=torch.device("cpu"))
    assert {name: tensor.tolist() for name, tensor in made.items()} == {
        "prompt_ids": [[0, 5], [2, 3], [0, 1]],
        "prompt_mask": [[0, 1], [1, 1], [0, 1]],
        "completion_ids": [[6, 7, 8], [4, 0, 0], [1, 0, 0]],
        "completion_mask": [[1, 1, 1], [1, 0, 0], [1, 0, 0]],
        "tool_mask": [[0.5, 0.0, 0.5], [3.0, 0.0, 0.0], [0.0, 0.0, 0.0]],
        "advantages": [[2.0, 0.0, 2.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 0.0]],
        "sampling_per_token_logps": [[-0.5, 0.0, -1.5], [-0.25, 0.0, 0.0], [0.0, 0.0, 0.0]],
    }
    assert made["prompt_ids"].dtype == torch.long
