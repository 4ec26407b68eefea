"""Log-probabilities of the last tokens of rows, without the work for those before them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from peft import PeftModel
from torch import Tensor


@dataclass(frozen=True)
class LastScored:
    """Calls a model that has TRL's fused head, which then gets the last positions only.

    Off GPUs that head scores all positions it gets, prompts too, in float32. With a large vocabulary this took half of
    the time of a training step on a CPU.

    Args:
        model: as it is trained, wrapped or not.
        bare: the same without wrappers of processes; it may have an adapter.
        last: number of tokens that are scored, T.
    """

    model: Any
    bare: Any
    last: int

    def __call__(self, *, labels: Tensor, **given: Any) -> Any:
        """The model's output for N rows, padded on the left, with `log_probs` and `entropy` of (N, T)."""
        bare: Any = self.bare.get_base_model() if isinstance(self.bare, PeftModel) else self.bare
        if "position_ids" in inspect.signature(bare.forward).parameters:
            # Otherwise the model would count the left padding, which shifts a row to positions it wasn't sampled at.
            given["position_ids"] = (given["attention_mask"].cumsum(dim=-1) - 1).clamp(min=0)
        hook = bare.base_model.register_forward_hook(self._cut)
        try:
            return self.model(labels=labels[:, -self.last - 1 :], **given)
        finally:
            hook.remove()

    def _cut(self, module: Any, args: Any, output: Any) -> Any:
        # The position before a token predicts it.
        output.last_hidden_state = output.last_hidden_state[:, -self.last - 1 :]
        return output
