"""Measures how far the trainer's log-probabilities are from the sampling engine's, before a step's first update."""

# ruff: noqa: N803  (names of tensors end in their dimensions)

from typing import cast

import torch
from accelerate import Accelerator
from torch import Tensor

from memagent_train.errors import EngineMismatch


class EngineGap:
    """The gap over all passes of an update.

    Args:
        largest: mean in nats per token; above it the engine must have other weights.
    """

    def __init__(self, largest: float) -> None:
        self._largest = largest
        self._gaps: list[Tensor] = []

    def add(self, trained_NT: Tensor, sampled_NT: Tensor, mask_NT: Tensor) -> None:
        """Adds the tokens of a pass.

        Args:
            trained_NT: log-probabilities under the trainer's arithmetic.
            sampled_NT: log-probabilities of the engine.
            mask_NT: above 0 for sampled tokens.
        """
        self._gaps.append((trained_NT - sampled_NT).abs()[mask_NT > 0].float())

    def measure(self, step: int, accelerator: Accelerator) -> dict[str, float]:
        """Returns the gap's mean and maximum over all processes, to be logged; the next update starts anew.

        Raises:
            EngineMismatch: the mean gap is too large.
        """
        gaps = torch.cat([*self._gaps, self._gaps[0].new_zeros(1)])
        self._gaps = []
        sums = torch.stack([gaps.sum(), gaps.new_tensor(len(gaps) - 1), gaps.max()])
        all_sums = cast("Tensor", accelerator.gather(sums)).view(-1, 3)
        mean = (all_sums[:, 0].sum() / all_sums[:, 1].sum().clamp(min=1)).item()
        if mean > self._largest:
            raise EngineMismatch(
                f"the trainer's log-probabilities of step {step} differ from the sampling engine's by "
                f"{mean:.3f} per token, but the limit is {self._largest}: the engine has other weights (like a "
                f"restarted server, an adapter on another base, or with rollout.ahead and too high a learning rate), "
                f"or uses another temperature than it reports (vLLM needs "
                f"--logprobs-mode processed_logprobs). Run the same command again: it reloads the weights of the last "
                f"checkpoint"
            )
        return {"logprob_gap/mean": mean, "logprob_gap/max": all_sums[:, 2].max().item()}
