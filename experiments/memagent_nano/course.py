"""The training courses of `pico` and `nano`, and the arms that are compared."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from memagent_nano.direct import DIRECT, WINDOW
from memagent_nano.sizes import NANO, PICO, size_of
from memagent_nano.stages import DOCUMENTS, GATED, ROLLOUTS, TRUNK, Stage

CONSTANT = "optimizer.schedule=constant"
FINE = "optimizer.learning_rate=1.5e-3"
"""Learning rate after the trunk: at 3e-3 the loss plateaued at four times the loss reached with half that rate."""
TOSS = (
    "reward.use=memagent_train.smoke.control:toss",
    "evaluation.lengths=[]",
    "evaluation.every=0",
)
"""Arm (f). Evaluations during training would be tosses too."""
ROUNDS = 3
"""Rounds of rejection sampling: half of the updates of `more`, and rollouts for the rest of the compute. Reinforcement
learning makes more rollouts (41,000 in 300 steps of `pico`, of which it trains on 12,000), and fewer updates."""
LONG = "shown-long"
"""Arm: do longer documents, and fewer notes in half of them, lower the hazard?"""
DENSE = "shown-dense"
"""The arm after that: do denser notes teach what not to note? It is the one shipped."""


@dataclass(frozen=True)
class Lengths:
    """Updates of each stage, and conversations per update; (0, 0): this size has no such stage."""

    echo: tuple[int, int]
    copy: tuple[int, int]
    settle: tuple[int, int]
    """Each round of more copies, at half the rate."""
    imitation: tuple[int, int]
    more: tuple[int, int]
    """As much compute as `reward` takes; also for `shown-long`."""
    reward: int
    """Steps of reinforcement learning."""
    direct: tuple[int, int] = (0, 0)
    """As much compute as imitation and `reward` take."""
    dense: tuple[int, int] = (0, 0)
    """Only for what is shipped, as is `gated`."""
    gated: tuple[int, int] = (0, 0)


LENGTHS = {
    PICO.name: Lengths(
        echo=(400, 64),
        copy=(1500, 48),
        settle=(2500, 48),
        imitation=(600, 24),
        more=(5000, 24),
        reward=300,
        direct=(2500, 12),
    ),
    NANO.name: Lengths(
        echo=(400, 48),
        copy=(2500, 32),
        settle=(2500, 32),
        imitation=(2000, 12),
        more=(3000, 16),
        reward=120,
        dense=(1500, 16),
        gated=(600, 12),
    ),
}


def arms(size: str) -> dict[str, Stage]:
    """Returns the stages of a size by name; each follows the one that it starts from.

    `new`, `echo`, `copy` and the rounds of `settle` are the common start of all others: copying and format,
    but nothing about what is worth keeping. They are trained once for all seeds.
    (a) `shown`: an expert shows which notes the question needs. (b) `unshown`: an expert keeps notes whatever the
    question. (c) `-grpo`: after that, reinforcement learning from answers alone. (d) `-more`: more imitation instead;
    `shown-long`: likewise, of longer documents. (e) `-right`: rejection sampling instead. (f) `-toss`: random
    rewards. (g) `direct`: no memory; the window holds a whole training document. `shown-dense`:
    after `shown-long`, more documents with denser notes. `gated`: after that, the same memories with the update
    gate.

    Raises:
        ConfigError: there is no such size.
    """
    lengths = LENGTHS[size_of(size).name]
    stages = [
        Stage("new", "new"),
        _imitate("echo", "new", "echoes", lengths.echo, CONSTANT),
        _imitate("copy", "echo", "copies", lengths.copy),
        *(
            _imitate(name, parent, f"copies-{number}", lengths.settle, FINE)
            for number, (parent, name) in enumerate(pairwise(TRUNK[TRUNK.index("copy") :]), start=1)
        ),
    ]
    begun = stages[-1].name
    for start, lessons in (("shown", "relevant"), ("unshown", "random")):
        stages += [
            _imitate(start, begun, lessons, lengths.imitation, FINE),
            Stage(f"{start}-grpo", "grpo", start, steps=lengths.reward),
            _imitate(f"{start}-more", start, f"{lessons}-more", lengths.more, FINE),
            *_rejection(start, lengths.more),
            Stage(f"{start}-toss", "grpo", start, steps=lengths.reward, settings=TOSS),
        ]
    stages.append(_imitate(LONG, "shown", "relevant-long", lengths.more, FINE))
    if lengths.direct[0]:
        direct = _imitate(DIRECT, begun, "direct", lengths.direct, f"traces.window={WINDOW}")
        stages.append(replace(direct, window=WINDOW))
    if lengths.dense[0]:
        stages.append(_imitate(DENSE, LONG, "relevant-dense", lengths.dense, FINE))
    if lengths.gated[0]:
        stages.append(_imitate(GATED, DENSE, GATED, lengths.gated, FINE))
    return {stage.name: stage for stage in stages}


def _rejection(start: str, length: tuple[int, int]) -> list[Stage]:
    """Returns rounds of rejection sampling, each from the policy of the one before, on its own documents."""
    steps, rows = length
    stages: list[Stage] = []
    for number in range(1, ROUNDS + 1):
        name = f"{start}-right" if number == ROUNDS else f"{start}-right-{number}"
        stage = _imitate(name, start, ROLLOUTS, (steps // (2 * ROUNDS), rows), FINE)
        after = stages[-1].name if stages else start
        stages.append(replace(stage, after=after, first=(number - 1) * DOCUMENTS))
    return stages


def _imitate(name: str, after: str, lessons: str, length: tuple[int, int], *settings: str) -> Stage:
    steps, rows = length
    return Stage(name, "sft", after, lessons, steps, (f"batch.rows={rows}", *settings))
