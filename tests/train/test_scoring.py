# ruff: noqa: N806  (names of tensors end in their dimensions)

from __future__ import annotations

from typing import Any

import pytest
import torch
from trl.trainer.utils import add_fused_lm_head

from memagent_train.packing import Packed, pack
from memagent_train.rollouts import Row
from memagent_train.scoring import LastScored
from memagent_train.smoke.model import tiny_model
from memagent_train.smoke.tokenizer import word_tokenizer

LAST = 3
REAL_NT = torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 0]])
IDS_NT = torch.arange(14).reshape(2, 7) + 5


def packed() -> Packed:
    """Rows of 2 + 3 and 4 + 2 tokens."""
    lines = [ids[real == 1].tolist() for ids, real in zip(IDS_NT, REAL_NT, strict=True)]
    rows = [
        Row(tuple(line[:prompt]), tuple(line[prompt:]), (), ())
        for line, prompt in zip(lines, (2, 4), strict=True)
    ]
    return pack([[row] for row in rows], pad=0, device=torch.device("cpu"))


@pytest.fixture
def model() -> Any:
    made = tiny_model(word_tokenizer(), seed=0)
    add_fused_lm_head(made, outputs=("log_probs", "entropy"))
    return made


def score(model: Any, call: Any) -> tuple[Any, list[torch.Tensor]]:
    labels_NT = IDS_NT.masked_fill(REAL_NT == 0, -100)
    labels_NT[:, :-LAST] = -100
    given = {"input_ids": IDS_NT, "attention_mask": REAL_NT}
    out = call(**given, labels=labels_NT, fused_lm_head=True)
    out.log_probs.sum().backward()
    gradients = [one.grad.clone() for one in model.parameters()]
    model.zero_grad()
    return out, gradients


def test_the_last_tokens_are_scored_as_with_all_positions(model: Any) -> None:
    positions_NT = (REAL_NT.cumsum(-1) - 1).clamp(min=0)
    whole, gradients = score(model, lambda **given: model(**given, position_ids=positions_NT))
    last, others = score(model, LastScored(model, model, packed()))
    assert last.log_probs.shape == (2, LAST)
    torch.testing.assert_close(last.log_probs, whole.log_probs[:, -LAST:])
    torch.testing.assert_close(last.entropy, whole.entropy[:, -LAST:])
    torch.testing.assert_close(others, gradients)


@pytest.mark.parametrize("half", [False, True], ids=["float32", "bf16 passes"])
def test_all_layers_keep_one_mask(half: bool) -> None:
    model: Any = tiny_model(word_tokenizer(), seed=0)
    add_fused_lm_head(model)
    assert model.config.num_hidden_layers > 1
    rows = [Row((5, 6, 7), (at, 9), (), ()) for at in range(8, 40)]
    shared = pack([rows], pad=0, device=torch.device("cpu"))
    width, kept = shared.ids.size(1), set[int]()

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.shape[-2:] == (width, width):
            kept.add(tensor.untyped_storage().data_ptr())
        return tensor

    with (
        torch.autocast("cpu", torch.bfloat16, enabled=half),
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
    ):
        none = torch.zeros(0)
        call = LastScored(model, model, shared)
        out = call(input_ids=none, attention_mask=none, labels=none, fused_lm_head=True)
    assert len(kept) == 1
    out.log_probs.sum().backward()
    assert all(weight.grad.isfinite().all() for weight in model.parameters())


def test_the_model_is_as_before_afterwards(model: Any) -> None:
    call = LastScored(model, model, packed())
    given = {"labels": REAL_NT, "input_ids": IDS_NT, "attention_mask": REAL_NT}
    with pytest.raises(ValueError, match="input_ids"):
        call(**given, inputs_embeds=torch.zeros(2, 6, 64))
    assert not model.base_model._forward_hooks
    ids_NT = REAL_NT + 5
    assert model(input_ids=ids_NT).logits.shape[:2] == ids_NT.shape
