import math

import pytest
import torch

from memagent.messages import Sampling
from memagent_engines.transformers.batching import Request
from memagent_engines.transformers.drawing import Drawing

END = 4
LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0, -60.0])
"""The last one is the end, which practically never comes."""
NOTHING = torch.zeros(1, 0, dtype=torch.long)


def make(sampling: Sampling, seeds: list[int | None]) -> Drawing:
    return Drawing([Request([], 99, sampling, seed) for seed in seeds], [END])


def drawn(
    sampling: Sampling, seeds: list[int | None], steps: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    """`(B, T)` ids and their log-probs."""
    drawing = make(sampling, seeds)
    rows = LOGITS.repeat(len(seeds), 1)
    ids = torch.zeros(len(seeds), 0, dtype=torch.long)
    for _ in range(steps):
        ids = torch.cat([ids, drawing(ids, rows.clone()).argmax(-1, keepdim=True)], dim=-1)
    replies = drawing.read_rows(ids)
    assert [reply[0] for reply in replies] == ids.tolist()
    return ids, torch.tensor([reply[1] for reply in replies])


def test_ids_come_as_often_as_they_are_likely() -> None:
    ids, _ = drawn(Sampling(temperature=1.0, top_p=1.0), list(range(4000)))
    shares = torch.bincount(ids.flatten(), minlength=5) / 4000
    assert torch.allclose(shares, LOGITS.softmax(-1), atol=0.03)  # 4 standard errors


def test_logprobs_are_after_temperature_and_before_top_p() -> None:
    ids, logprobs = drawn(Sampling(temperature=0.5, top_p=0.6), list(range(50)))
    assert set(ids.flatten().tolist()) == {0}, "the likeliest has 0.87 at this temperature"
    wanted = (LOGITS / 0.5).log_softmax(-1)[0]
    assert torch.allclose(logprobs, wanted.expand_as(logprobs), atol=1e-6)


@pytest.mark.parametrize(("top_p", "kept"), [(0.1, {0}), (0.65, {0, 1}), (0.9, {0, 1, 2})])
def test_top_p_keeps_the_likeliest_that_reach_it(top_p: float, kept: set[int]) -> None:
    # 0.644, 0.237, 0.087, 0.032
    ids, _ = drawn(Sampling(temperature=1.0, top_p=top_p), list(range(500)))
    assert set(ids.flatten().tolist()) == kept


def test_temperature_0_takes_the_likeliest_with_logprobs_of_temperature_1() -> None:
    ids, logprobs = drawn(Sampling(temperature=0.0, top_p=1.0), [1, 2, None])
    assert ids.flatten().tolist() == [0, 0, 0]
    assert torch.allclose(logprobs, LOGITS.log_softmax(-1)[0])


def test_what_a_row_draws_depends_on_its_seed_alone() -> None:
    sampling = Sampling(temperature=1.0, top_p=1.0)
    together, _ = drawn(sampling, [11, 5, 7, 5], steps=20)
    alone, _ = drawn(sampling, [5], steps=20)
    assert torch.equal(together[1], alone[0])
    assert torch.equal(together[3], alone[0])
    assert not torch.equal(together[0], together[2])


def test_without_a_seed_nothing_is_repeated() -> None:
    sampling = Sampling(temperature=1.0, top_p=1.0)
    first, second = (drawn(sampling, [None], steps=40)[0] for _ in range(2))
    assert not torch.equal(first, second)


def test_generate_is_left_one_choice() -> None:
    drawing = make(Sampling(temperature=1.0, top_p=1.0), [3])
    scores = drawing(NOTHING, LOGITS.clone().unsqueeze(0))
    assert sorted(scores.flatten().tolist()) == [-math.inf] * 4 + [0.0]


def test_ids_that_cannot_come_are_never_drawn() -> None:
    logits, nothing = torch.full((300, 50), -math.inf), NOTHING.expand(300, 0)
    logits[:, 17] = 0.0
    drawing = make(Sampling(temperature=1.0, top_p=0.9), list(range(300)))
    assert set(drawing(nothing, logits).argmax(-1).tolist()) == {17}


def test_rows_that_have_enough_or_that_nobody_waits_for_are_given_the_end() -> None:
    greedy = Sampling(temperature=0.0, top_p=1.0)
    rows = [Request([], most, greedy, None) for most in (1, 2, 9, 9)]
    drawing = Drawing(rows, [END])
    rows[3].reply.cancel()
    ids = torch.zeros(4, 0, dtype=torch.long)
    for _ in range(3):
        ids = torch.cat([ids, drawing(ids, LOGITS.repeat(4, 1)).argmax(-1, keepdim=True)], -1)
    assert ids.tolist() == [[0, END, END], [0, 0, END], [0, 0, 0], [0, END, END]]
    assert [reply[0] for reply in drawing.read_rows(ids)] == [[0], [0, 0], [0, 0, 0], [0]]
