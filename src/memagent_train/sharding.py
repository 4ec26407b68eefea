"""Gradients of several passes: when processes exchange them, and in what precision."""

from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType


def shard_gradients(accelerator: Accelerator) -> None:
    """Makes FSDP2 exchange gradients after every pass, in fp32.

    Otherwise each process would hold the whole gradient, in the passes' precision, until the last pass of an update.
    """
    if not accelerator.is_fsdp2:
        return
    accelerator.gradient_state.plugin_kwargs["sync_each_batch"] = True
    plugin: Any = accelerator.state.fsdp_plugin
    if plugin.mixed_precision_policy is not None:
        plugin.mixed_precision_policy = replace(
            plugin.mixed_precision_policy, reduce_dtype=torch.float32
        )


@contextmanager
def hold_gradients(accelerator: Accelerator, model: Any) -> Generator[None]:
    """Delays the exchange of a pass's gradients: it happens with the micro-batch's last pass, except with FSDP2."""
    state = accelerator.gradient_state
    syncs = state.sync_gradients
    each = state.plugin_kwargs.get("sync_each_batch", False)
    state._set_sync_gradients(False)
    try:
        with nullcontext() if each else accelerator.no_sync(model):
            yield
    finally:
        state._set_sync_gradients(syncs)


def backward_options(accelerator: Accelerator) -> dict[str, Any]:
    """Returns options as in transformers' trainer: losses are already divided by the tokens of the whole batch."""
    deepspeed = accelerator.distributed_type is DistributedType.DEEPSPEED
    return {"scale_wrt_gas": False} if deepspeed else {}
