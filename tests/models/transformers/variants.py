"""Other weights for a model, and adapters: for engines whose environments lack peft."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from memagent_engines.lora import SETTINGS, WEIGHTS
from memagent_engines.transformers.adapter import BASE


def write_weights(base: str, folder: Path, *, scale: float) -> Path:
    """A model with other weights."""
    shutil.copytree(base, folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        model.model.norm.weight.mul_(scale)
    model.save_pretrained(folder)
    return folder


def write_adapter(
    base: str, folder: Path, seed: int, *, rank: int = 4, bound: str | None = None
) -> Path:
    """An adapter with random factors on two layers, large enough to change replies."""
    model: Any = AutoModelForCausalLM.from_pretrained(base)
    targets, random, factors = ("o_proj", "down_proj"), torch.Generator().manual_seed(seed), {}
    for name, layer in model.named_modules():
        if name.endswith(targets):
            high, wide = layer.weight.shape
            for factor, shape in (("A", (rank, wide)), ("B", (high, rank))):
                key = f"base_model.model.{name}.lora_{factor}.weight"
                factors[key] = torch.randn(shape, generator=random) * 0.2
    folder.mkdir()
    save_file(factors, folder / WEIGHTS, metadata={BASE: bound} if bound else None)
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": targets}
    (folder / SETTINGS).write_text(json.dumps(settings | {"bias": "none"}))
    return folder
