"""Computes log-probabilities of rows' responses, without work for prompts, padding, or what rows share."""

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor
from torch.nn.functional import pad

from memagent_train.packing import Packed


@dataclass(frozen=True)
class LastScored:
    """Calls a model with TRL's fused head, which then gets each distinct response token once.

    Without a GPU, that head scores all positions it gets, including prompts, in float32. With a large vocabulary this
    took half the time of a training step on a CPU.

    Args:
        model: the model as trained, wrapped or not.
        bare: the same model without wrappers for several processes; it may have an adapter.
        packed: the rows.
    """

    model: Any
    bare: Any
    packed: Packed

    def __call__(
        self, *, input_ids: Tensor, attention_mask: Tensor, labels: Tensor, **given: Any
    ) -> Any:
        """Returns the model's output, with `log_probs` and `entropy` of shape (N, T).

        Args:
            input_ids: not used; `packed` has the ids.
            attention_mask: not used either.
            labels: not used either.
            given: further arguments of the model.
        """
        bare: Any = self.bare.get_base_model() if isinstance(self.bare, PeftModel) else self.bare
        if "position_ids" in inspect.signature(bare.forward).parameters:
            given["position_ids"] = self.packed.positions
        kind = self.packed.ids.device.type
        half = torch.is_autocast_enabled(kind)
        mask = self.packed.mask(torch.get_autocast_dtype(kind) if half else bare.dtype)
        given |= {"input_ids": self.packed.ids, "attention_mask": mask}
        at = self.packed.scored[1]
        hook = bare.base_model.register_forward_hook(self._pick)
        try:
            output = self.model(shift_labels=self.packed.ids.flatten()[at][None], **given)
        finally:
            hook.remove()
        for name in output.keys() & {"log_probs", "entropy"}:  # a reference has no entropy
            output[name] = pad(output[name][0], (0, 1))[self.packed.numbers]
        return output

    def _pick(self, module: Any, args: Any, output: Any) -> Any:
        positions = self.packed.scored[0]
        output.last_hidden_state = output.last_hidden_state.flatten(0, 1)[positions][None]
        return output
