"""Low-rank adapters: merged into the weights of the model that they were trained on, and no other."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedModel

from memagent.errors import ConfigError

SETTINGS, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
"""peft's names for the files of an adapter."""
BASE = "base_sha256"
"""Key in the metadata of an adapter's weights: `weights_sha256` of its model."""
PLAIN = {"peft_type": "LORA", "bias": "none", "fan_in_fan_out": False, "use_dora": False}
"""Settings with which merging is one product per layer."""
PREFIX = "base_model.model."


def merge_adapter(model: PreTrainedModel, base: Path, adapter: Path) -> None:
    """Merges a LoRA adapter into the weights that it was trained on: W + alpha / r * B A (Hu et al., arXiv 2106.09685).

    Args:
        model: loaded from `base`; modified in place.
        base: folder of the model.
        adapter: folder written by `memagent-train export --adapter` or peft.

    Raises:
        ConfigError: the files can't be read, the adapter isn't plain LoRA, or it belongs to another model.
    """
    try:
        settings: dict[str, Any] = json.loads((adapter / SETTINGS).read_text(encoding="utf-8"))
        scale = settings["lora_alpha"] / settings["r"]
        weights = load_file(adapter / WEIGHTS)
        with safe_open(adapter / WEIGHTS, "pt") as file:
            bound = (file.metadata() or {}).get(BASE)
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError, SafetensorError) as error:
        raise ConfigError(
            f"{str(adapter)!r} has no readable adapter ({type(error).__name__}: {error}): give a folder "
            f"with {SETTINGS} and {WEIGHTS}, as written by memagent-train export --adapter"
        ) from error
    unlike = {
        name: settings[name] for name, plain in PLAIN.items() if settings.get(name, plain) != plain
    }
    if unlike or settings.get("rank_pattern") or settings.get("alpha_pattern"):
        raise ConfigError(
            f"the adapter {str(adapter)!r} is not plain LoRA ({unlike or 'ranks differ by layer'}): merge it into "
            f"its model with peft, and give the merged folder"
        )
    if bound is not None and bound != weights_sha256(base):
        raise ConfigError(
            f"the adapter {str(adapter)!r} was not trained on {str(base)!r}: the models' sha256 are "
            f"{bound} and {weights_sha256(base)}. Use it with the model that it was made for"
        )
    if settings.get("use_rslora"):
        scale *= settings["r"] ** 0.5
    with torch.no_grad():
        for name, down, up in _pairs(weights, adapter):
            try:
                weight = model.get_parameter(f"{name}.weight")
                weight += scale * (up.float() @ down.float()).to(weight.device)
            except (AttributeError, RuntimeError) as error:
                raise ConfigError(
                    f"the adapter {str(adapter)!r} does not fit {str(base)!r} ({name}: {error}): use it with the "
                    f"model that it was made for"
                ) from error


def weights_sha256(folder: Path) -> str:
    """Digest of a model's tensors (names, dtypes, shapes and values), independent of how they are split into files."""
    found = hashlib.sha256()
    tensors: dict[str, Path] = {}
    for file in folder.glob("*.safetensors"):
        with safe_open(file, "pt") as opened:
            tensors |= dict.fromkeys(opened.keys(), file)
    for name in sorted(tensors):
        with safe_open(tensors[name], "pt") as opened:
            tensor: Tensor = opened.get_tensor(name).contiguous()
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _pairs(weights: dict[str, Tensor], adapter: Path) -> Iterator[tuple[str, Tensor, Tensor]]:
    """A layer's name and its two factors, r x in and out x r."""
    for key in sorted(weights):
        name, _, which = key.removeprefix(PREFIX).partition(".lora_")
        other = key.replace(".lora_A.", ".lora_B.")
        if which not in ("A.weight", "B.weight") or other not in weights:
            raise ConfigError(
                f"the adapter {str(adapter)!r} has a tensor {key!r} that is not a factor of a layer: merge it into its "
                f"model with peft, and give the merged folder"
            )
        if which == "A.weight":
            yield name, weights[key], weights[other]
