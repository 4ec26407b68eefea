"""The reference of the KL term: the policy at the start of training."""

import copy
from typing import Any, cast

from accelerate import Accelerator, PartialState
from accelerate.utils import DistributedType, fsdp2_prepare_model, is_peft_model
from peft import PeftConfig, PeftModel
from transformers import PreTrainedModel
from trl.models.utils import prepare_fsdp
from trl.trainer.grpo_config import GRPOConfig


def copy_frozen(
    model: PreTrainedModel | PeftModel, args: GRPOConfig, peft_config: PeftConfig | None
) -> PreTrainedModel | None:
    """Returns a frozen copy of the policy, if one is needed and TRL would otherwise reload it by the model's name.

    With DeepSpeed, whose weights may be sharded on loading, TRL handles it. The copy is made before TRL
    sees the model: TRL replaces a bound method, which a later copy would still call on the original.

    Args:
        model: the policy as loaded.
        args: TRL's arguments; if a copy is made, `beta` is set to 0, so that TRL makes none.
        peft_config: config of an adapter; the reference is then the model without it.
    """
    adapted = peft_config is not None or is_peft_model(model)
    state = cast("PartialState", args.distributed_state)
    if not args.beta or adapted or state.distributed_type is DistributedType.DEEPSPEED:
        return None
    args.beta = 0.0
    return copy.deepcopy(cast("PreTrainedModel", model)).requires_grad_(False).eval()


def prepare_reference(reference: PreTrainedModel, accelerator: Accelerator) -> Any:
    """Moves the reference to this process's device; under FSDP it is sharded like the policy."""
    if accelerator.is_fsdp2:
        # Layer by layer. TRL's `prepare_fsdp` shards it as one piece, so each pass gathers all of it.
        return fsdp2_prepare_model(accelerator, reference)
    if accelerator.distributed_type is DistributedType.FSDP:
        return prepare_fsdp(reference, accelerator)
    return accelerator.prepare_model(reference, evaluation_mode=True)
