from typing import Any

import pytest
import torch
from tests.train.handmade import policy
from transformers import GPT2Config, GPT2LMHeadModel, MistralConfig, MistralForCausalLM

from memagent_train.advantages import TrainingRow
from memagent_train.packing import (
    Bundle,
    bundle,
    even_length,
    pack,
    pass_of,
    rows_of_passes,
)
from memagent_train.rollouts import Row

CPU = torch.device("cpu")


def row(prompt: list[int], response: list[int]) -> Row:
    return Row(tuple(prompt), tuple(response), (1,) * len(response), (0.0,) * len(response))


def lines(shared: int, own: int, count: int, at: int = 0) -> dict[int, tuple[int, ...]]:
    alike = range(1000 * at, 1000 * at + shared)
    return {at * count + n: (*alike, *[10_000 + n] * own) for n in range(count)}


class TestBundle:
    def test_rows_that_begin_alike_are_one_sequence(self) -> None:
        rows = [(1, 2, 3, 4, 5), (9, 8, 7), (1, 2, 3, 4), (1, 2, 3, 4, 6)]
        assert bundle(dict(enumerate(rows)), even=100, most=100) == [
            Bundle((2, 0, 3), 6),
            Bundle((1,), 3),
        ]

    def test_not_where_attention_would_be_more_work(self) -> None:
        # One sequence of 1,900 tokens, or two of 1,000.
        little = lines(100, 900, 2)
        assert len(bundle(little, even=1000, most=9000)) == 2
        assert len(bundle(little, even=40_000, most=9000)) == 1
        half = lines(500, 500, 2)
        assert len(bundle(half, even=1000, most=9000)) == 1

    def test_nor_more_than_have_room(self) -> None:
        sizes = [one.size for one in bundle(lines(90, 10, 10), even=1000, most=120)]
        assert sizes == [120, 120, 120, 100]

    def test_nor_where_the_model_cannot(self) -> None:
        assert len(bundle(lines(9, 1, 3), even=0, most=9000)) == 3

    def test_of_nothing(self) -> None:
        assert bundle({}, even=1000, most=0.0) == []

    @pytest.mark.parametrize(("ranks", "rows"), [(1, [16]), (2, [8, 8]), (4, [4] * 4)])
    def test_as_many_as_leave_no_process_without_work(self, ranks: int, rows: list[int]) -> None:
        made = bundle(lines(900, 50, 16), even=2000, most=9000, ranks=ranks)
        assert [len(one.rows) for one in made] == rows

    def test_but_not_more_where_all_have_work(self) -> None:
        two = lines(900, 50, 16) | lines(900, 50, 16, at=1)
        assert [len(one.rows) for one in bundle(two, even=2000, most=9000, ranks=2)] == [16, 16]


def test_a_token_sees_its_own_row_only() -> None:
    made = pack(
        [[row([1, 2], [3, 4]), row([1, 2, 3], [5]), row([1, 2], [6])], [row([7], [8])]],
        pad=0,
        device=CPU,
    )
    assert made.ids.tolist() == [[1, 2, 3, 4, 5, 6], [7, 8, 0, 0, 0, 0]]
    assert made.positions.tolist() == [[0, 1, 2, 3, 3, 2], [0, 1, 0, 0, 0, 0]]
    added = made.mask(torch.bfloat16)
    assert added.dtype == torch.bfloat16
    assert set(added.flatten().tolist()) == {0.0, -torch.inf}
    mask = added == 0
    assert mask.any(-1).all(), "attention to nothing would be NaN"
    assert mask.shape == (2, 1, 6, 6)
    assert mask[0, 0].int().tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 1, 0, 1, 0],
        [1, 1, 0, 0, 0, 1],
    ]
    assert mask[1, 0, :2].int().tolist() == [[1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0]]
    # The token before each that is scored, and that token.
    assert made.scored.tolist() == [[1, 2, 2, 1, 6], [2, 3, 4, 5, 7]]
    assert made.numbers.tolist() == [[0, 1], [2, -1], [3, -1], [4, -1]]


def test_a_token_that_rows_share_is_scored_once() -> None:
    rows = [row([1, 2], [3, 4]), row([1, 2], [3, 4]), row([1, 2], [3, 5]), row([1], [2])]
    made = pack([rows], pad=0, device=CPU)
    assert made.scored.tolist() == [[1, 2, 2, 0], [2, 3, 4, 1]]
    assert made.numbers.tolist() == [[0, 1], [0, 1], [0, 2], [3, -1]]


def test_rows_that_fill_up_a_pass_have_nothing_to_score() -> None:
    one = TrainingRow(row([1, 2], [3, 4, 5]), advantage=1.0)
    made = pass_of([[(one, 1.0)]], 48, pad=0, device=CPU)
    assert made["completion_mask"].shape == (48, 3)
    assert made["packed"].scored.shape == (2, 3)
    assert made["tool_mask"].sum() == 3


def test_without_shared_rows_a_model_gets_a_plain_mask() -> None:
    made = pack([[row([1, 2], [3])], [row([4], [5])]], pad=0, device=CPU)
    assert made.mask(torch.float32).tolist() == [[1, 1, 1], [1, 1, 0]]


def test_processes_have_the_same_number_of_rows_in_a_pass() -> None:
    bundles = [Bundle((0, 1, 2), 9), Bundle((3,), 4), Bundle((4, 5), 4), Bundle((6,), 0)]
    dealt = [[[[0, 1]], [[-1]]], [[[2, -1]], [[-1]]]]
    assert rows_of_passes(dealt, bundles) == [[4], [1]]


def windowed(layers: int | None) -> Any:
    small = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
    config: Any = MistralConfig
    return MistralForCausalLM(
        config(
            vocab_size=48,
            num_hidden_layers=1,
            num_key_value_heads=2,
            sliding_window=layers,
            **small,
        )
    )


@pytest.mark.parametrize(
    ("model", "even"),
    [
        (policy(), 128),
        (windowed(None), 128),
        (windowed(8), 0),
        (GPT2LMHeadModel(GPT2Config(n_embd=32, n_head=4, n_layer=1)), 128),
    ],
    ids=["full", "no window", "window", "learned positions"],
)
def test_models_whose_layers_see_whole_rows_can_share(model: Any, even: int) -> None:
    assert even_length(model) == even


def test_only_sdpa_gets_the_mask() -> None:
    model: Any = policy()
    model.set_attn_implementation("eager")
    assert even_length(model) == 0
