"""Run by torchrun in `test_sharding.py`: two processes that divide a policy with an adapter (FSDP2) send it."""

import asyncio
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import torch
from accelerate import PartialState
from peft import get_peft_model
from tests.train.handmade import groups, policy, trainer
from tests.train.launch import leave
from tests.train.sharded_processes import Sharded
from torch.distributed.checkpoint import state_dict

from memagent_train.algorithm import AlgorithmSettings, BatchSettings
from memagent_train.config.sections import LoraSettings
from memagent_train.rollout.settings import Weights
from memagent_train.rollouts import Rollout
from memagent_train.runs.engine import WeightTransfer
from memagent_train.runs.policy import adapter_settings


class Engine:
    """Takes weights."""

    async def load(self, folder: Path) -> None:
        """Does nothing."""


def main(out: Path) -> None:
    rank = PartialState(cpu=True, timeout=timedelta(seconds=60)).process_index
    mine = groups(policy(), seed=5 + rank, noise=0.1)

    def generate(indices: Sequence[int], size: int) -> list[Rollout]:
        return mine

    trained = trainer(
        out,
        generate,
        algorithm=AlgorithmSettings(beta=0.0, dynamic_sampling=False),
        batch=BatchSettings(groups=3, group_size=4, micro_batches=4),
        model=get_peft_model(policy(), adapter_settings(LoraSettings(rank=4))),
        steps=1,
        learning_rate=1e-2,
        kind=Sharded,
    )
    trained.train()
    gathered: list[str] = []
    library: Any = state_dict
    gather = library._gather_state_dict

    def note(state: dict[str, Any], **options: Any) -> Any:
        gathered.extend(state)
        return gather(state, **options)

    library._gather_state_dict = note
    engine: Any = Engine()
    loop = asyncio.new_event_loop()
    for weights in get_args(Weights):
        WeightTransfer(engine, out / weights, weights).send(trained, loop)
        if weights == "adapter":
            assert gathered
            assert all("lora_" in name for name in gathered), gathered
        gathered.clear()
    if rank == 1:  # draws yet: a server that comes back gets its weights from the folder
        time.sleep(1.0)
        assert list((out / "model").iterdir())
    WeightTransfer(engine, out / "model", "model").send(trained, loop)
    loop.close()
    whole = trained.accelerator.get_state_dict(trained.model_wrapped)
    if rank == 0:
        torch.save(whole, out / "whole.pt")
    PartialState().wait_for_everyone()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    leave()
