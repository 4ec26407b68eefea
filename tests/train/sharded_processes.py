"""Run by torchrun in `test_sharding.py`: two processes that divide policy and reference among them (FSDP2)."""

import asyncio
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
from tests.train.launch import leave
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback

from memagent_train.algorithm import AlgorithmSettings, BatchSettings
from memagent_train.config.sections import ModelSettings
from memagent_train.rollout.served import ServedSampler
from memagent_train.rollouts import Rollout
from memagent_train.runs.engine import WeightTransfer
from memagent_train.runs.policy import load_model
from memagent_train.trainer import RolloutTrainer

BETA = 0.05
STEPS = 2


class Sharded(Lenient):
    """Shards on CPUs: accelerate does not, though torch can, so the processes pass for those of GPUs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
        super().__init__(*args, **kwargs)


class Watcher(TrainerCallback):
    """Keeps the gradient of the first update, and what this process holds of it between its passes."""

    def __init__(self) -> None:
        self.held: list[int] = []
        self.gradient: dict[str, torch.Tensor] = {}

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        weights = list(kwargs["model"].parameters())
        self.held.append(sum(_held(weight.grad) for weight in weights if weight.grad is not None))

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.gradient:
            return
        for name, weight in kwargs["model"].named_parameters():
            self.gradient[name] = weight.grad.full_tensor().clone()


def main(model: Path, out: Path, url: str) -> None:
    rank = PartialState(cpu=True, timeout=timedelta(seconds=60)).process_index
    mine = groups(policy(), seed=5 + rank, noise=0.1)

    def generate(indices: Sequence[int], size: int) -> list[Rollout]:
        return mine

    def make(steps: int, *watchers: TrainerCallback) -> RolloutTrainer:
        return trainer(
            out,
            generate,
            algorithm=AlgorithmSettings(beta=BETA, dynamic_sampling=False),
            batch=BatchSettings(groups=3, group_size=4, micro_batches=4, micro_batch_tokens=80),
            model=load_model(ModelSettings(path=str(model))),
            steps=steps,
            learning_rate=1e-2,
            save_every=1,
            callbacks=list(watchers),
            kind=Sharded,
        )

    watcher = Watcher()
    make(1, watcher).train()
    trained = make(STEPS)  # the rest, from the first one's checkpoint
    assert trained.ref_model is not None
    shared = [(p.numel(), _held(p)) for p in trained.ref_model.parameters()]
    trained.train(resume_from_checkpoint=str(out / "checkpoint-1"))
    with asyncio.Runner() as runner:
        served = WeightTransfer(ServedSampler("vllm", url, window=128), out / "served")
        served.send(trained, runner.get_loop())
    weights = trained.accelerator.get_state_dict(trained.model_wrapped)
    if rank == 0:
        torch.save(weights, out / "weights.pt")
        torch.save(watcher.gradient, out / "gradient.pt")
        kl = [line["kl"] for line in trained.state.log_history if "kl" in line]
        (out / "found.json").write_text(
            json.dumps(
                {
                    "kl": kl,
                    "whole": sum(w for w, _ in shared),
                    "held": sum(h for _, h in shared),
                    "gradients_held": watcher.held,
                }
            )
        )
    PartialState().wait_for_everyone()


def _held(weight: Any) -> int:
    """Numbers of a weight that this process holds."""
    return (weight.to_local() if isinstance(weight, DTensor) else weight).numel()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
    leave()
