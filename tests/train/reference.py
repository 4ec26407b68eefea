"""The loss of the algorithm written out a second time, for the contract test of the trainer's gradient.

Every conversation is forwarded alone and unpadded; nothing is taken from memagent_train but the shared types.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tests.train.handmade import log_probabilities

from memagent_train.rollouts import Rollout, Row, Status


@dataclass
class Reference:
    """What the loss depends on, apart from the rollouts."""

    scale: str = "none"
    token_mean: str = "group"
    low: float = 0.2
    high: float = 0.28
    beta: float = 0.0
    ratio: str = "rollout"
    cap: float = 2.0
    overlong_mask: bool = False
    step_weight: float = 0.0
    weights: tuple[tuple[str, float], ...] = ()
    """By kind of call; 1 for others."""
    rejected: str = "train"
    clipped: int = 0
    """Tokens whose ratio was clipped, counted in the last call of `loss`."""

    def loss(
        self, policy: Any, rollouts: Sequence[Rollout], *, start: Any = None, reference: Any = None
    ) -> torch.Tensor:
        """`start` is the policy before the first update."""
        self.clipped = 0
        groups: dict[str, list[Rollout]] = {}
        for rollout in rollouts:
            groups.setdefault(rollout.group_id, []).append(rollout)
        sums: list[torch.Tensor] = []
        counts: list[int] = []
        for group in groups.values():
            total, count = torch.zeros(()), 0
            for rollout, row, advantage in self._rows(group):
                if rollout.overlong and self.overlong_mask:
                    continue
                losses = self._token_losses(policy, row, advantage, start, reference)
                for place, weight in enumerate(self._weigh(row)):
                    if weight:
                        total = total + weight * losses[place]
                        count += 1
            if count:
                sums.append(total)
                counts.append(count)
        if self.token_mean == "batch":
            return torch.stack(sums).sum() / sum(counts)
        return torch.stack(
            [total / count for total, count in zip(sums, counts, strict=True)]
        ).mean()

    def _rows(self, group: Sequence[Rollout]) -> list[tuple[Rollout, Row, float]]:
        scored = [rollout for rollout in group if rollout.status is Status.SCORED]
        advantages = self._compare([rollout.reward or 0.0 for rollout in scored])
        steps = [
            (rollout.rollout_id, c, reward)
            for rollout in scored
            for c, reward in enumerate(rollout.step_rewards or ())
            if reward is not None
        ]
        compared = self._compare([reward for *_, reward in steps])
        extra = {(who, c): a for (who, c, _), a in zip(steps, compared, strict=True)}
        return [
            (rollout, row, advantage + self.step_weight * extra.get((rollout.rollout_id, c), 0.0))
            for rollout, advantage in zip(scored, advantages, strict=True)
            for c, row in enumerate(rollout.rows)
        ]

    def _weigh(self, row: Row) -> list[float]:
        """A weight for each token of the response."""
        known = dict(self.weights)
        found = [float(sampled) for sampled in row.loss_mask]
        for place in range(len(found)):
            for span in row.spans:
                if span.start <= place < span.end:
                    found[place] *= known.get(span.kind, 1.0)
                    if span.rejected and self.rejected == "leave_out":
                        found[place] = 0.0
        return found

    def _compare(self, values: Sequence[float]) -> list[float]:
        if len(values) < 2 or len(set(values)) == 1:
            return [0.0] * len(values)
        mean = math.fsum(values) / len(values)
        spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)) + 1e-6
        return [(value - mean) / (spread if self.scale == "std" else 1) for value in values]

    def _token_losses(
        self, policy: Any, row: Row, advantage: float, start: Any, reference: Any
    ) -> torch.Tensor:
        new = log_probabilities(policy, row)
        old = torch.tensor(row.logprobs)
        weight = torch.ones_like(old)
        if self.ratio != "rollout":
            with torch.no_grad():
                own = log_probabilities(start, row)
            if self.ratio == "truncated":
                weight = torch.minimum(torch.exp(own - old), torch.tensor(self.cap))
            old = own
        ratio = torch.exp(new - old)
        clipped = torch.clip(ratio, 1 - self.low, 1 + self.high)
        surrogate = torch.minimum(ratio * advantage, clipped * advantage)
        bites = (surrogate != ratio * advantage) & (torch.tensor(row.loss_mask) == 1)
        self.clipped += int(bites.sum())
        losses = -surrogate * weight
        if self.beta:
            with torch.no_grad():
                gap = log_probabilities(reference, row)
            gap = gap - new
            losses = losses + self.beta * (torch.exp(gap) - gap - 1)
        return losses
