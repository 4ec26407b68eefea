"""Log-probabilities of the last tokens of rows, without the work for those before them or for what rows share."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from peft import PeftModel
from torch import Tensor

from memagent_train.packing import Packed


@dataclass(frozen=True)
class LastScored:
    """Calls a model that has TRL's fused head, which then gets the last positions only.

    Off GPUs that head scores all positions it gets, prompts too, in float32. With a large vocabulary this took half of
    the time of a training step on a CPU.

    Args:
        model: as it is trained, wrapped or not.
        bare: the same without wrappers of processes; it may have an adapter.
        packed: the rows.
    """

    model: Any
    bare: Any
    packed: Packed

    def __call__(
        self, *, input_ids: Tensor, attention_mask: Tensor, labels: Tensor, **given: Any
    ) -> Any:
        """The model's output, with `log_probs` and `entropy` of (N, T).

        Args:
            input_ids: not used; they are `packed`'s.
            attention_mask: not used either.
            labels: as for N rows of which each ends with T tokens to score.
            given: further arguments of the model.
        """
        bare: Any = self.bare.get_base_model() if isinstance(self.bare, PeftModel) else self.bare
        if "position_ids" in inspect.signature(bare.forward).parameters:
            given["position_ids"] = self.packed.positions
        given |= {"input_ids": self.packed.ids, "attention_mask": self.packed.mask()}
        hook = bare.base_model.register_forward_hook(self._unpack)
        try:
            return self.model(labels=labels[:, -self.packed.places.size(1) :], **given)
        finally:
            hook.remove()

    def _unpack(self, module: Any, args: Any, output: Any) -> Any:
        # The position before a token predicts it.
        output.last_hidden_state = output.last_hidden_state.flatten(0, 1)[self.packed.places]
        return output
