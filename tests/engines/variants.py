"""Makes of a tiny model what a trainer may send: python tests/engines/variants.py MODEL OUT.

Run by the python of an engine's venv. OUT gets `adapter` (of random weights, as peft writes it), `merged` (the model
with it) and `bfloat16` (the model in that type).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

RANK, SCALE = 4, 2.0


def main(model: str, out: Path) -> None:
    """Writes the three folders."""
    # Here, because only an engine's venv has them.
    import torch  # pyright: ignore[reportMissingImports]
    from safetensors.torch import save_file  # pyright: ignore[reportMissingImports]
    from transformers import AutoModelForCausalLM  # pyright: ignore[reportMissingImports]

    torch.manual_seed(7)
    whole = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    whole.to(torch.bfloat16).save_pretrained(out / "bfloat16")
    whole = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    weights = dict[str, torch.Tensor]()
    targets = set[str]()
    for name, layer in whole.model.named_modules(prefix="model"):
        if isinstance(layer, torch.nn.Linear):
            down, up = torch.randn(RANK, layer.in_features), torch.randn(layer.out_features, RANK)
            down, up = down * 0.1, up * 0.02
            layer.weight.data += SCALE * up @ down
            targets.add(name.rpartition(".")[2])
            weights[f"base_model.model.{name}.lora_A.weight"] = down
            weights[f"base_model.model.{name}.lora_B.weight"] = up
    whole.save_pretrained(out / "merged")
    settings = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "bias": "none", "r": RANK}
    settings |= {"lora_alpha": SCALE * RANK, "target_modules": sorted(targets)}
    (out / "adapter").mkdir()
    save_file(weights, out / "adapter" / "adapter_model.safetensors")
    (out / "adapter" / "adapter_config.json").write_text(json.dumps(settings))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
