"""Dynamic sampling: groups without a signal are dropped, and others rolled out instead (DAPO, arXiv 2503.14476)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from memagent_train.advantages import Group
from memagent_train.rollouts import Status


@dataclass(frozen=True)
class StepGroups:
    """What a process rolled out for a step."""

    kept: tuple[Group, ...]
    """Groups to train on."""
    dropped: tuple[Group, ...]
    """Groups dropped for lack of a signal."""


def roll_informative(
    indices: Sequence[int],
    further: Sequence[int],
    roll: Callable[[Sequence[int]], Sequence[Group]],
    *,
    max_refills: int,
) -> StepGroups:
    """Rolls out as many groups as there are indices, and replaces those without a signal.

    Stops early if not a single rollout was scored: others would fail the same way.

    Args:
        indices: indices of the step's batch.
        further: indices to continue with, in order; if they run out, the batch is smaller.
        roll: makes a group for each index.
        max_refills: maximum number of further calls of `roll`.
    """
    kept: list[Group] = []
    dropped: list[Group] = []
    wanted, offset = list(indices), 0
    for _ in range(max_refills + 1):
        groups = roll(wanted)
        kept += [group for group in groups if group.informative]
        dropped += [
            replace(group, advantages=(None,) * len(group.rollouts))
            for group in groups
            if not group.informative
        ]
        wanted = list(further[offset : offset + len(indices) - len(kept)])
        offset += len(wanted)
        if not wanted or not any(_is_scored(group) for group in (*kept, *dropped)):
            break
    return StepGroups(tuple(kept), tuple(dropped))


def _is_scored(group: Group) -> bool:
    return any(rollout.status is Status.SCORED for rollout in group.rollouts)
