"""Names of rollouts and their groups."""

import hashlib
import re
from collections.abc import Collection

RUN = re.compile(r"(step|eval)-(\d+)-[\w-]+")
SEEDS = 2**31


def group_id(step: int, group: int) -> str:
    """Returns a name such as `step-00012-group-0003`."""
    return f"step-{step:05d}-group-{group:04d}"


def rollout_id(group: str, place: int) -> str:
    """Returns a name such as `step-00012-group-0003-rollout-07`, also the id of its run in `runs.sqlite`."""
    return f"{group}-rollout-{place:02d}"


def evaluation_id(step: int, length: int, place: int) -> str:
    """Returns a name such as `eval-00010-8192-0003`: for a held-out sample, after a number of steps."""
    return f"eval-{step:05d}-{length}-{place:04d}"


def is_repeated(run_id: str, step: int, evaluated: Collection[int]) -> bool:
    """Returns whether a training or evaluation rollout is repeated when training resumes from the end of `step`.

    Args:
        run_id: the rollout's id; other runs aren't repeated.
        step: the last one that isn't repeated.
        evaluated: steps whose evaluation is complete, and so isn't repeated either.
    """
    match = RUN.fullmatch(run_id)
    if match is None:
        return False
    of = int(match[2])
    return of > step or (match[1] == "eval" and of == step and of not in evaluated)


def seed_of(seed: int, name: str) -> int:
    """Derives a seed from the run's seed and a name, the same in any process."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % SEEDS
