"""The claims of a smoke training, and whether they hold."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reward:
    """Mean reward of a policy on held-out samples, with the ends of its 95% interval."""

    mean: float
    low: float
    high: float

    def above(self, other: Reward) -> bool:
        """Returns whether it is higher, with disjoint intervals."""
        return self.low > other.high

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True)
class Findings:
    """Rewards of the policies of a smoke training, all on the same held-out samples."""

    before: Reward
    """Reward after the warm start."""
    after: Reward
    """Reward after GRPO."""
    control: Reward
    """Reward after the same amount of GRPO from the same start, with random rewards."""
    longer_before: Reward
    """Reward like `before`, on documents twice as long."""
    longer_after: Reward

    @property
    def claims(self) -> dict[str, bool]:
        """The claims, and whether they hold. `>` means disjoint 95% intervals."""
        return {
            "GRPO helps: after > before": self.after.above(self.before),
            "random rewards do not help: not control > before": not self.control.above(self.before),
            "so it is the rewards: after > control": self.after.above(self.control),
        }

    @property
    def summary(self) -> str:
        """The figures behind the claims, in one line."""
        return (
            f"held-out reward (95% interval): before GRPO {self.before}, after GRPO {self.after}, "
            f"with random rewards {self.control}"
        )
