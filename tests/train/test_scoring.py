# ruff: noqa: N806  (names of tensors end in their dimensions)

from __future__ import annotations

from typing import Any

import pytest
import torch
from trl.trainer.utils import add_fused_lm_head

from memagent_train.scoring import LastScored
from memagent_train.smoke.model import tiny_model
from memagent_train.smoke.tokenizer import word_tokenizer

LAST = 3
REAL_NT = torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 0]])


@pytest.fixture
def model() -> Any:
    made = tiny_model(word_tokenizer(), seed=0)
    add_fused_lm_head(made, outputs=("log_probs", "entropy"))
    return made


def score(model: Any, call: Any) -> tuple[Any, list[torch.Tensor]]:
    ids_NT = torch.arange(14).reshape(2, 7) + 5
    labels_NT = ids_NT.masked_fill(REAL_NT == 0, -100)
    labels_NT[:, :-LAST] = -100
    given = {"input_ids": ids_NT, "attention_mask": REAL_NT}
    out = call(**given, labels=labels_NT, fused_lm_head=True)
    out.log_probs.sum().backward()
    gradients = [one.grad.clone() for one in model.parameters()]
    model.zero_grad()
    return out, gradients


def test_the_last_tokens_are_scored_as_with_all_positions(model: Any) -> None:
    positions_NT = (REAL_NT.cumsum(-1) - 1).clamp(min=0)
    whole, gradients = score(model, lambda **given: model(**given, position_ids=positions_NT))
    last, others = score(model, LastScored(model, model, LAST))
    assert last.log_probs.shape == (2, LAST)
    torch.testing.assert_close(last.log_probs, whole.log_probs[:, -LAST:])
    torch.testing.assert_close(last.entropy, whole.entropy[:, -LAST:])
    torch.testing.assert_close(others, gradients)


def test_the_model_is_as_before_afterwards(model: Any) -> None:
    with pytest.raises(ValueError, match="input_ids"):
        LastScored(model, model, LAST)(labels=REAL_NT, attention_mask=REAL_NT)
    assert not model.base_model._forward_hooks
    ids_NT = REAL_NT + 5
    assert model(input_ids=ids_NT).logits.shape[:2] == ids_NT.shape
