"""Log-probabilities of rows' responses, without the work for prompts, padding, or what rows share."""

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
    """Calls a model that has TRL's fused head, which then gets each different token of responses once.

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
