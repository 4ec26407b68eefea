"""Run by torchrun in `test_reference.py`: two processes that divide policy and reference among them (FSDP2)."""

import json
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from accelerate import PartialState
from accelerate.utils import DistributedType
from tests.train.handmade import Lenient, groups, policy, trainer
from torch.distributed.tensor import DTensor

from memagent_train.algorithm import AlgorithmSettings, BatchSettings
from memagent_train.config.sections import ModelSettings
from memagent_train.rollouts import Rollout
from memagent_train.runs.policy import load_model
from memagent_train.runs.processes import leave_group

BETA = 0.05
STEPS = 2


class Sharded(Lenient):
    """Shards on CPUs: accelerate does not, though torch can, so the processes pass for those of GPUs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
        super().__init__(*args, **kwargs)


def main(model: Path, out: Path) -> None:
    rank = PartialState(cpu=True, timeout=timedelta(seconds=60)).process_index
    mine = groups(policy(), seed=5 + rank, noise=0.1)

    def generate(indices: Sequence[int], size: int) -> list[Rollout]:
        return mine

    trained = trainer(
        out,
        generate,
        algorithm=AlgorithmSettings(beta=BETA, dynamic_sampling=False),
        batch=BatchSettings(groups=3, group_size=4, micro_batches=4),
        model=load_model(ModelSettings(path=str(model))),
        steps=STEPS,
        learning_rate=1e-2,
        kind=Sharded,
    )
    assert trained.ref_model is not None
    shared = [(p.numel(), _held(p)) for p in trained.ref_model.parameters()]
    trained.train()
    weights = trained.accelerator.get_state_dict(trained.model_wrapped)
    if rank == 0:
        torch.save(weights, out / "weights.pt")
        kl = [line["kl"] for line in trained.state.log_history if "kl" in line]
        (out / "found.json").write_text(
            json.dumps(
                {"kl": kl, "whole": sum(w for w, _ in shared), "held": sum(h for _, h in shared)}
            )
        )
    PartialState().wait_for_everyone()
    leave_group()


def _held(weight: Any) -> int:
    """Numbers of a weight that this process holds."""
    return (weight.to_local() if isinstance(weight, DTensor) else weight).numel()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
