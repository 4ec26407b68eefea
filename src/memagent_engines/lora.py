"""Settings of low-rank adapters in peft's format."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memagent.errors import ConfigError

SETTINGS, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
"""peft's names of an adapter's files."""
PLAIN = {"peft_type": "LORA", "bias": "none", "fan_in_fan_out": False, "use_dora": False}
"""Settings of adapters whose merging is one product per layer."""


@dataclass(frozen=True)
class Lora:
    """A plain adapter: it adds `scale` * B A to the weights of a layer (Hu et al., arXiv 2106.09685)."""

    rank: int
    """r: rows of A, columns of B."""
    scale: float
    """alpha / r, or alpha / sqrt(r) if peft's `use_rslora` is on."""


def read_lora(adapter: Path) -> Lora:
    """Reads the settings of an adapter.

    Raises:
        ConfigError: they can't be read, or it isn't plain LoRA.
    """
    try:
        settings: dict[str, Any] = json.loads((adapter / SETTINGS).read_text(encoding="utf-8"))
        rank = int(settings["r"])
        scale = settings["lora_alpha"] / (rank**0.5 if settings.get("use_rslora") else rank)
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise refuse_unreadable(adapter, error) from error
    differences = {
        name: settings[name] for name, plain in PLAIN.items() if settings.get(name, plain) != plain
    }
    if differences or settings.get("rank_pattern") or settings.get("alpha_pattern"):
        raise ConfigError(
            f"the adapter {str(adapter)!r} is not plain LoRA ({differences or 'ranks differ by layer'}): merge it into "
            f"its model with peft, and give the merged folder"
        )
    return Lora(rank, scale)


def refuse_unreadable(adapter: Path, error: Exception) -> ConfigError:
    """Returns the error for an adapter whose files can't be read."""
    return ConfigError(
        f"{str(adapter)!r} has no readable adapter ({type(error).__name__}: {error}): give a folder "
        f"with {SETTINGS} and {WEIGHTS}, as written by memagent-train export --adapter"
    )
