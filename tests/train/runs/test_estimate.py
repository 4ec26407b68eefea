"""The memory estimate against figures worked by hand, and against what a real model keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from memagent_train.runs.estimate import GIB, Load, kv_bytes, memory
from memagent_train.runs.shapes import SHAPES, from_config

SEVEN = Load(
    shape=SHAPES["qwen2.5-7b"],
    weight_bytes=4,
    half=True,
    adapter_rank=None,
    reference=True,
    row_tokens=8192,
    rows=1,
    checkpointing=True,
    conversations=16,
)
P = 7_615_616_512


def test_all_weights_in_fp32_take_16_bytes_each_and_the_reference_4_more() -> None:
    found = memory(SEVEN)
    assert (found.weights, found.gradients, found.optimizer) == (4 * P, 4 * P, 8 * P)
    assert (found.reference, found.casts) == (4 * P, 2 * P)


def test_a_checkpointed_pass_keeps_one_input_a_layer_and_one_layer() -> None:
    # 28 * 3584 + 4 * 3584 + 2 * 3584 + 2 * 512 + 4 * 18944 = 198656 numbers of 2 bytes a token, and a mask
    assert memory(SEVEN).activations == 8192 * 2 * (198_656 + 8192)


def test_keys_and_values_of_a_token() -> None:
    assert kv_bytes(SEVEN.shape) == 2 * 28 * 4 * 128 * 2
    assert memory(SEVEN).cache == 16 * 8192 * 57_344


def test_fsdp_divides_all_and_gathers_two_layers() -> None:
    one, eight = memory(SEVEN), memory(replace(SEVEN, devices=8, sharding="fsdp"))
    assert eight.optimizer == one.optimizer / 8
    assert eight.gradients == one.gradients / 8
    assert one.weights / 8 < eight.weights < one.weights / 8 + 3 * GIB
    assert eight.casts == 0


def test_zero_keeps_bf16_weights_and_fp32_ones_with_the_moments() -> None:
    two, three = (memory(replace(SEVEN, devices=8, sharding=kind)) for kind in ("zero2", "zero3"))
    assert two.weights == 2 * P
    assert three.weights < two.weights
    assert two.optimizer == three.optimizer == 12 * P / 8
    assert two.gradients == 2 * P / 8


def test_an_adapter_needs_no_reference_and_hardly_an_optimizer() -> None:
    found = memory(replace(SEVEN, adapter_rank=32, reference=False, weight_bytes=2))
    assert found.reference == 0
    assert found.weights == 2 * P
    assert found.optimizer == 2 * found.gradients == 2 * 4 * SEVEN.shape.adapter(32)


def test_rollouts_and_passes_do_not_stand_side_by_side() -> None:
    found = memory(SEVEN)
    kept = found.weights + found.optimizer + found.reference
    assert found.peak == kept + found.casts + found.gradients + found.activations
    many = memory(replace(SEVEN, conversations=10_000))
    assert many.peak == kept + many.cache


def test_lines_name_every_part_and_the_peak() -> None:
    lines = dict(memory(SEVEN).lines())
    assert lines["weights"] == "28.4 GiB"
    assert list(lines)[-1] == "peak"


@pytest.mark.parametrize("checkpointing", [False, True])
def test_what_a_real_model_keeps_of_a_pass_is_as_estimated(checkpointing: bool) -> None:
    config = Qwen2Config(
        vocab_size=64,
        hidden_size=128,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        use_cache=False,
    )
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").train()
    if checkpointing:
        model.activation_checkpointing_enable()
    weights = {weight.data_ptr() for weight in model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    ids = torch.randint(0, 64, (2, 256))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model.model(ids)
    shape = from_config(config.to_dict())
    assert shape is not None
    load = replace(
        SEVEN, shape=shape, half=False, row_tokens=256, rows=2, checkpointing=checkpointing
    )
    estimated = memory(load).activations
    if checkpointing:  # the layer that is computed again is not there yet
        estimated -= memory(
            replace(load, shape=replace(shape, layers=1), checkpointing=False)
        ).activations
    assert estimated == pytest.approx(sum(kept.values()), rel=0.35)
