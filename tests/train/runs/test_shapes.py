"""Shapes count the weights that models of that shape really have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from memagent.errors import ConfigError
from memagent_train.runs.shapes import SHAPES, from_config, shape_of

SMALL: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
CONFIGS = [
    Qwen2Config(**SMALL, tie_word_embeddings=True),
    Qwen2Config(**SMALL, tie_word_embeddings=False),
    Qwen3Config(**SMALL, head_dim=16),
    LlamaConfig(**SMALL),
]


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # of peft's
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.model_type)
def test_the_weights_are_those_of_the_model(config: PretrainedConfig) -> None:
    shape = from_config(config.to_dict())
    assert shape is not None
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
        assert shape.parameters == sum(weight.numel() for weight in model.parameters())
        adapted = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear"))
    trained = sum(weight.numel() for weight in adapted.parameters() if weight.requires_grad)
    assert shape.adapter(4) == trained


def test_the_published_sizes_are_those_of_their_model_cards() -> None:
    assert SHAPES["qwen2.5-7b"].parameters == 7_615_616_512
    assert SHAPES["qwen2.5-14b"].parameters == 14_770_033_664


@pytest.mark.parametrize("name", ["Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b", "other/Qwen2.5-7B"])
def test_a_known_name_has_its_shape_without_the_hub(name: str) -> None:
    assert shape_of(name) is SHAPES["qwen2.5-7b"]


def test_a_folder_has_the_shape_of_its_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS[0].to_dict()))
    shape = shape_of(str(tmp_path))
    assert shape is not None
    assert (shape.layers, shape.hidden, shape.head_dim, shape.tied) == (3, 32, 8, True)


@pytest.mark.parametrize("config", [{}, {"model_type": "qwen3_moe"}, {"model_type": "qwen2"}])
def test_what_is_not_known_has_no_shape(config: dict[str, str]) -> None:
    assert from_config(config) is None


def test_an_unknown_name_has_no_shape_and_a_damaged_config_is_named(tmp_path: Path) -> None:
    assert shape_of("someone/model") is None
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"config\.json"):
        shape_of(str(tmp_path))
