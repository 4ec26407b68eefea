"""Run by torchrun in `test_gradient.py`, in two processes, of which the second has fewer rows and more refills."""

import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed
from tests.train.handmade import Gradients, groups, policy, rollout, row, sessions, trainer
from tests.train.launch import leave

from memagent_train.algorithm import AlgorithmSettings, BatchSettings
from memagent_train.rollouts import Rollout


def main(out: Path) -> None:
    gradient_of_unequal_rows(out)
    unequal_refills(out)
    torch.distributed.barrier()


def gradient_of_unequal_rows(out: Path) -> None:
    made = {rank: sessions(groups(policy(), seed=7 + rank, noise=0.1)) for rank in range(2)}

    def generate(indices: Sequence[int], size: int) -> list[Rollout]:
        mine = made[torch.distributed.get_rank()]
        if torch.distributed.get_rank() == 0:
            return mine
        # Two groups of this process are without any reward: nothing of them is trained on.
        return mine[:4] + [
            rollout(one.group_id, n, one.rows, None) for n, one in enumerate(mine[4:])
        ]

    seen = Gradients()
    trainer(
        out,
        generate,
        algorithm=AlgorithmSettings(beta=0.05, dynamic_sampling=False),
        batch=BatchSettings(groups=3, group_size=4, micro_batches=2, micro_batch_tokens=40),
        callbacks=[seen],
    ).train()
    gradient = {name.removeprefix("module."): grad for name, grad in seen.gradients[0].items()}
    torch.save(gradient, out / f"gradient-{torch.distributed.get_rank()}.pt")


def unequal_refills(out: Path) -> None:
    asked: list[list[int]] = []
    rank, model = torch.distributed.get_rank(), policy()

    def generate(indices: Sequence[int], size: int) -> list[Rollout]:
        asked.append(list(indices))
        teaches = rank == 0 or len(asked) % 3 == 0  # the second process asks three times a step
        return [
            rollout(
                f"{rank}-{len(asked)}-{index}",
                n,
                [row(model, random.Random(index))],
                float(n) if teaches else 0.0,
            )
            for index in indices
            for n in range(size)
        ]

    trained = trainer(
        out,
        generate,
        algorithm=AlgorithmSettings(beta=0.0, max_refills=5),
        batch=BatchSettings(groups=2, group_size=4, micro_batches=2, updates=2),
        steps=2,
    )
    trained.train()
    total = sum(float(w.detach().double().sum()) for w in cast("Any", trained.model).parameters())
    (out / f"refills-{rank}.json").write_text(json.dumps({"asked": asked, "weights": total}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    leave()
