"""A run's engine, as named in the settings, and its weights."""

import asyncio
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from accelerate.utils import DistributedType, broadcast_object_list, is_peft_model
from peft.tuners.tuners_utils import BaseTunerLayer
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from transformers import PreTrainedModel

from memagent_engines.transformers.sampler import end_ids, window_of
from memagent_train.rollout.continuous import ContinuousSampler
from memagent_train.rollout.in_process import EngineSampler
from memagent_train.rollout.remote import RemoteSampler
from memagent_train.rollout.sampler import MeteredSampler, Sampler
from memagent_train.rollout.served import ServedSampler
from memagent_train.rollout.settings import RolloutSettings, Weights
from memagent_train.runs.policy import Tokenizer


def open_sampler(
    settings: RolloutSettings, model: PreTrainedModel, tokenizer: Tokenizer
) -> Sampler | RemoteSampler:
    """Opens the engine that the settings name.

    Args:
        settings: rollout settings.
        model: the trained weights.
        tokenizer: the model's tokenizer.

    Raises:
        ConfigError: a setting doesn't fit the model.
    """
    if settings.engine in ("vllm", "sglang"):
        assert settings.base_url is not None
        return ServedSampler(
            settings.engine,
            settings.base_url,
            window=settings.window or window_of(model),
            api_key=os.environ.get(KEY),
        )
    if settings.engine in ("vllm-engine", "sglang-engine"):
        model_dtype = str(model.dtype).removeprefix("torch.")
        dtype = "bfloat16" if settings.weights == "bfloat16" else model_dtype
        return EngineSampler(
            settings.engine,
            tokenizer,
            end_ids(model, tokenizer),
            window=settings.window or window_of(model),
            # or vLLM would round float32
            settings={"dtype": dtype, **settings.engine_settings},
        )
    window, rows = settings.window, settings.max_batch
    if settings.engine == "continuous":
        return ContinuousSampler(model, tokenizer, max_batch=rows, window=window)
    tokens = settings.max_batch_tokens
    return MeteredSampler(model, tokenizer, max_batch=rows, max_batch_tokens=tokens, window=window)


BASE = ".base_layer"
"""Part of peft's names of weights that have an adapter."""
KEY = "MEMAGENT_API_KEY"
"""Environment variable with the server's key, as in memagent; the key is in no file of the run."""


class WeightTransfer:
    """Transfers the trainer's weights to an engine, through a folder that both can read.

    Args:
        sampler: talks to the engine.
        folder: where the weights go; its content is replaced.
        weights: what to send, see `RolloutSettings.weights`.
    """

    def __init__(
        self, sampler: RemoteSampler, folder: Path, weights: Weights | None = None
    ) -> None:
        self._sampler, self._folder, self._weights = sampler, folder, weights

    def send(self, trainer: Any, loop: asyncio.AbstractEventLoop) -> None:
        """Writes the weights and makes the engine load them. Blocks.

        Args:
            trainer: a `Trainer`; all processes call this at the same time.
            loop: an event loop that isn't running.

        Raises:
            ModelError: the engine doesn't load them.
            OSError: they can't be written.
        """
        accelerator = trainer.accelerator
        accelerator.wait_for_everyone()  # another may still draw, and need the folder for a server that comes back
        if accelerator.is_main_process:
            shutil.rmtree(self._folder, ignore_errors=True)
        weights = self._weights or self._choose(trainer)
        if weights == "adapter":
            folder = self._write_adapter(trainer)
        else:
            folder = self._write_whole(trainer, torch.bfloat16 if weights == "bfloat16" else None)
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            loop.run_until_complete(self._sampler.load(folder))
        accelerator.wait_for_everyone()
        if isinstance(self._sampler, ServedSampler):
            of_all: list[Any] = broadcast_object_list([self._sampler.sent])
            self._sampler.serves(of_all[0])

    def _choose(self, trainer: Any) -> Weights:
        """Chooses weights that lose nothing that the trainer's own passes keep."""
        if not isinstance(self._sampler, ServedSampler):
            return "model"
        if is_peft_model(trainer.accelerator.unwrap_model(trainer.model)):
            return "adapter"
        return "bfloat16" if trainer.accelerator.mixed_precision == "bf16" else "model"

    def _write_whole(self, trainer: Any, dtype: torch.dtype | None) -> Path:
        accelerator = trainer.accelerator
        model = accelerator.unwrap_model(trainer.model)
        with adapter_merged(model) as adapted:
            state = accelerator.get_state_dict(trainer.model_wrapped)
            if accelerator.is_main_process:
                base = model.get_base_model() if adapted else model
                state = _strip_adapter(state) if adapted else state
                base.save_pretrained(self._folder, state_dict=_cast(state, dtype))
        return self._folder

    def _write_adapter(self, trainer: Any) -> Path:
        """Writes the adapter; gathers nothing else, unless DeepSpeed shards the weights."""
        accelerator = trainer.accelerator
        folder = self._folder / f"adapter-{uuid4().hex}"  # the engine's name for it, see `load`
        if accelerator.distributed_type is DistributedType.DEEPSPEED:
            state = accelerator.get_state_dict(trainer.model_wrapped)
        else:
            only = StateDictOptions(
                full_state_dict=True, cpu_offload=True, ignore_frozen_params=True
            )
            state = get_model_state_dict(trainer.model_wrapped, options=only)
        if accelerator.is_main_process:
            accelerator.unwrap_model(trainer.model).save_pretrained(
                folder,
                state_dict=state,
                selected_adapters=["default"],  # TRL's reference is another adapter
                save_embedding_layers=False,  # or peft looks for the base model on the hub
            )
        return folder


@contextmanager
def adapter_merged(model: torch.nn.Module) -> Generator[bool]:
    """Merges a model's adapter, if it has one, into its weights inside the block; yields whether it has one.

    Weights with an adapter are copied and restored: adding it to half-precision weights and subtracting it again would
    change them.
    """
    named = model.named_parameters()
    frozen = [(weight, weight.detach().clone()) for name, weight in named if BASE in name]
    layers = [layer for layer in model.modules() if isinstance(layer, BaseTunerLayer)]
    for layer in layers:
        layer.merge()
    try:
        yield bool(layers)
    finally:
        for layer in layers:
            layer.unmerge()
        for weight, original in frozen:
            weight.data.copy_(original)


def _cast(state: dict[str, torch.Tensor], dtype: torch.dtype | None) -> dict[str, torch.Tensor]:
    """Returns the weights in another dtype, off the device; tied weights stay tied."""
    if dtype is None:
        return state
    cast: dict[tuple[int, torch.Size], torch.Tensor] = {}
    for tensor in state.values():
        if tensor.is_floating_point() and (tensor.data_ptr(), tensor.shape) not in cast:
            cast[tensor.data_ptr(), tensor.shape] = tensor.to("cpu", dtype)
    return {
        name: cast.get((tensor.data_ptr(), tensor.shape), tensor) for name, tensor in state.items()
    }


def _strip_adapter(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns the weights of a merged model, under their names without an adapter."""
    return {
        name.removeprefix("base_model.model.").replace(BASE, ""): weight
        for name, weight in state.items()
        if "lora_" not in name
    }
