"""Prints what transformers makes of token ids: python tests/engines/forward.py FOLDER IDS P.

Run by the python of an engine's venv. IDS is a JSON list, P how many of them are the prompt. Prints the
log-probabilities of the others, as JSON.
"""

from __future__ import annotations

import json
import sys


def main(folder: str, ids: list[int], prompt: int) -> list[float]:
    """One log-probability for each id after the prompt."""
    # Here, because only an engine's venv has them.
    import torch  # pyright: ignore[reportMissingImports]
    from transformers import AutoModelForCausalLM  # pyright: ignore[reportMissingImports]

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, prompt - 1 : -1]
    chosen = torch.tensor(ids[prompt:])[:, None]
    return torch.log_softmax(logits, -1).gather(1, chosen)[:, 0].tolist()


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]))))
