"""Dynamic sampling: groups that teach nothing are dropped, and others rolled out instead (DAPO, arXiv 2503.14476)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from memagent_train.advantages import Group
from memagent_train.rollouts import Status


@dataclass(frozen=True)
class Rolled:
    """What a process rolled out for a step."""

    kept: tuple[Group, ...]
    """To be trained on."""
    dropped: tuple[Group, ...]
    """Rolled out, and left out for want of a signal."""


def roll_informative(
    indices: Sequence[int],
    further: Sequence[int],
    roll: Callable[[Sequence[int]], Sequence[Group]],
    *,
    max_refills: int,
) -> Rolled:
    """Rolls out as many groups as there are indices, and others for those without a signal.

    It stops early where not one rollout was scored: whatever is wrong would be wrong with others too.

    Args:
        indices: of the step's batch.
        further: indices to go on with, in order; when they run out, the batch stays smaller.
        roll: makes a group of each index.
        max_refills: most times that `roll` is called again.
    """
    kept: list[Group] = []
    dropped: list[Group] = []
    wanted, taken = list(indices), 0
    for _ in range(max_refills + 1):
        groups = roll(wanted)
        kept += [group for group in groups if group.informative]
        dropped += [group for group in groups if not group.informative]
        wanted = list(further[taken : taken + len(indices) - len(kept)])
        taken += len(wanted)
        if not wanted or not any(_is_scored(group) for group in (*kept, *dropped)):
            break
    return Rolled(tuple(kept), tuple(dropped))


def _is_scored(group: Group) -> bool:
    return any(rollout.status is Status.SCORED for rollout in group.rollouts)
