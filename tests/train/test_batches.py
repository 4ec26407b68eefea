import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from memagent_train.advantages import TrainingRow
from memagent_train.batches import (
    PADDING,
    deal,
    padding_row,
    rows_of_updates,
    tensors,
    token_shares,
)
from memagent_train.rollouts import Row


def flat(process: list[list[list[int]]]) -> list[int]:
    return [at for part in process for one in part for at in one if at != PADDING]


@given(
    lengths=st.lists(st.integers(2, 9000), max_size=60),
    ranks=st.integers(1, 5),
    micro_batches=st.integers(1, 9),
    most_tokens=st.none() | st.integers(1, 40_000),
)
def test_every_row_is_dealt_once_and_all_processes_alike(
    lengths: list[int], ranks: int, micro_batches: int, most_tokens: int | None
) -> None:
    dealt = deal(lengths, ranks=ranks, micro_batches=micro_batches, most_tokens=most_tokens)
    assert sorted(at for process in dealt for at in flat(process)) == list(range(len(lengths)))
    sizes = [[[len(one) for one in part] for part in process] for process in dealt]
    assert len(dealt) == ranks
    assert all(others == sizes[0] for others in sizes)
    assert len(sizes[0]) == micro_batches
    assert all(len(part) >= 1 and min(part) >= 1 for part in sizes[0])
    # No more padding than the shape asks for: a row for an empty pass, and one a process for the odd row.
    rows = sum(sum(part) for part in sizes[0])
    assert rows <= len(lengths) // ranks + micro_batches + 1
    for part in (part for process in dealt for part in process):
        for one in part:
            padded = len(one) * max((lengths[at] for at in one if at != PADDING), default=0)
            assert most_tokens is None or len(one) == 1 or padded <= most_tokens


def test_work_is_balanced_over_processes() -> None:
    lengths = [8000, 4000, 4000, 100, 100, 100, 7900, 200]
    dealt = deal(lengths, ranks=2, micro_batches=4)
    work = [sum(lengths[at] for at in flat(process)) for process in dealt]
    assert abs(work[0] - work[1]) <= 100


def test_long_rows_share_a_pass_with_fewer_others() -> None:
    lengths = [1, 9, 2, 8, 3, 7]
    dealt = deal(lengths, ranks=1, micro_batches=3)
    assert [[lengths[at] for at in one] for part in dealt[0] for one in part] == [
        [9],
        [8, 7],
        [3, 2, 1],
    ]


def test_a_row_too_many_costs_no_padding() -> None:
    dealt = deal([10] * 17, ranks=1, micro_batches=16)
    assert sorted(len(one) for part in dealt[0] for one in part) == [1] * 15 + [2]


def test_more_tokens_than_a_pass_may_have_take_more_passes() -> None:
    few = deal([100] * 10, ranks=1, micro_batches=2)
    assert [[len(one) for one in part] for part in few[0]] == [[5], [5]]
    many = deal([100] * 10, ranks=1, micro_batches=2, most_tokens=300)
    assert [[len(one) for one in part] for part in many[0]] == [[3, 3], [3, 1]]


def test_shares_make_a_mean_over_tokens_of_means_over_passes() -> None:
    dealt = [[[[0, 1]], [[2], [PADDING]]], [[[3, PADDING]], [[4], [PADDING]]]]
    tokens = [1.0, 2.0, 3.0, 4.0, 5.0, 0.0]
    assert token_shares(dealt, tokens) == [[7 / 5], [8 / 5, 0.0]]
    assert math.isnan(token_shares([[[[-1]]]], tokens)[0][0]), "0 would be averaged"


def test_updates_share_rows_out_at_random_by_the_seed() -> None:
    first, again, other = (rows_of_updates(11, 2, seed) for seed in ("1/0", "1/0", "1/1"))
    assert sorted(first[0] + first[1]) == list(range(11))
    assert len(first[0]) == 6
    assert first == again != other


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
        "advantages": [2.0, -1.0, 0.0],
        "sampling_per_token_logps": [[-0.5, 0.0, -1.5], [-0.25, 0.0, 0.0], [0.0, 0.0, 0.0]],
    }
    assert made["prompt_ids"].dtype == torch.long
