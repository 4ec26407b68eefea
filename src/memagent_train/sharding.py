"""Gradients of several passes that are added up before they are exchanged among processes."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from typing import Any

from accelerate import Accelerator
from accelerate.utils import DistributedType


@contextmanager
def hold_gradients(accelerator: Accelerator, model: Any) -> Generator[None]:
    """A pass whose gradients are exchanged later: with those of the micro-batch's last pass, if it isn't FSDP2."""
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
    """As transformers' trainer calls it: losses are already divided by the tokens of the whole batch."""
    deepspeed = accelerator.distributed_type is DistributedType.DEEPSPEED
    return {"scale_wrt_gas": False} if deepspeed else {}
