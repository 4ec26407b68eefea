"""Merges low-rank adapters into the weights of the model that they were trained on, and no other."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedModel

from memagent.errors import ConfigError
from memagent_engines.lora import WEIGHTS, read_lora, refuse_unreadable

BASE = "base_sha256"
"""Metadata key of an adapter's weights: `weights_sha256` of its model."""
PREFIX = "base_model.model."
NO_WEIGHTS = hashlib.sha256().hexdigest()
"""`weights_sha256` of a folder without weights that it can read."""


def merge_adapter(model: PreTrainedModel, base: Path, adapter: Path) -> None:
    """Merges a LoRA adapter into the weights that it was trained on: W + alpha / r * B A (Hu et al., arXiv 2106.09685).

    Args:
        model: loaded from `base`; modified in place.
        base: folder of the model.
        adapter: folder written by `memagent-train export --adapter` or peft.

    Raises:
        ConfigError: the files can't be read, the adapter isn't plain LoRA, or it belongs to another model.
    """
    lora = read_lora(adapter)
    check_base(base, adapter)
    try:
        weights = load_file(adapter / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise refuse_unreadable(adapter, error) from error
    with torch.no_grad():
        for name, down, up in _pairs(weights, adapter):
            try:
                weight = model.get_parameter(f"{name}.weight")
                weight += lora.scale * (up.float() @ down.float()).to(weight.device)
            except (AttributeError, RuntimeError) as error:
                raise ConfigError(
                    f"the adapter {str(adapter)!r} does not fit {str(base)!r} ({name}: {error}): use it with the "
                    f"model that it was made for"
                ) from error


def check_base(base: Path, adapter: Path) -> None:
    """Checks that an adapter was trained on this model, if its metadata names one.

    Raises:
        ConfigError: the adapter was trained on another model, or can't be read.
    """
    try:
        with safe_open(adapter / WEIGHTS, "pt") as file:
            bound = (file.metadata() or {}).get(BASE)
    except (OSError, SafetensorError) as error:
        raise refuse_unreadable(adapter, error) from error
    if bound is not None and bound != (base_sha256 := weights_sha256(base)):
        raise ConfigError(
            f"the adapter {str(adapter)!r} was not trained on {str(base)!r}: the models' sha256 are "
            f"{bound} and {base_sha256}. Use it with the model that it was made for"
        )


def weights_sha256(folder: Path) -> str:
    """Digests a model's tensors (names, dtypes, shapes and values), independent of how they are split into files.

    Without safetensors it digests the bytes of the `.bin` files, whose tensors can only be read all at once; without
    these, of the `.pt` and `.gguf` files.
    """
    digest = hashlib.sha256()
    tensors: dict[str, Path] = {}
    for file in folder.glob("*.safetensors"):
        with safe_open(file, "pt") as reader:
            tensors |= dict.fromkeys(reader.keys(), file)
    for name in sorted(tensors):
        with safe_open(tensors[name], "pt") as reader:
            tensor: Tensor = reader.get_tensor(name).contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    pickles = sorted(folder.glob("*.bin")) or sorted([*folder.glob("*.pt"), *folder.glob("*.gguf")])
    for file in [] if tensors else pickles:
        with file.open("rb") as reader:
            digest.update(hashlib.file_digest(reader, "sha256").digest())
    return digest.hexdigest()


def _pairs(weights: dict[str, Tensor], adapter: Path) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yields each layer's name and its two factors, r x in and out x r."""
    for key in sorted(weights):
        name, _, factor = key.removeprefix(PREFIX).partition(".lora_")
        other = key.replace(".lora_A.", ".lora_B.")
        if factor not in ("A.weight", "B.weight") or other not in weights:
            raise ConfigError(
                f"the adapter {str(adapter)!r} has a tensor {key!r} that is not a factor of a layer: merge it into its "
                f"model with peft, and give the merged folder"
            )
        if factor == "A.weight":
            yield name, weights[key], weights[other]
