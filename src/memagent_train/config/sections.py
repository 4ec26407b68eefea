"""The sections of a training's settings that belong to no other part: model, adapter, evaluation, logs, resources."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from memagent.messages import Leaf
from memagent_train.data.settings import Lengths

Dtype = Literal["float32", "bfloat16", "float16"]


class ModelSettings(Leaf):
    """[model]: the policy's weights and tokenizer."""

    path: str = Field(min_length=1)
    """A folder as transformers writes it, or a name on the hub. The reference of the KL term is the same model."""
    revision: str | None = None
    """Of a model on the hub: a branch, tag or commit."""
    dtype: Dtype = "float32"
    """Of the weights. Passes are made in bf16 where the GPU has it (optimizer.precision); bf16 weights would lose most
    of an update at a rate of 1e-6, so they are for LoRA, whose base does not change."""
    attention: str = "sdpa"
    """As transformers names it: `sdpa`, `eager`, `flash_attention_2`, `flash_attention_3`."""
    tokenizer: str | None = None
    """A folder or a hub name; default: the model's."""
    chat_template: Path | None = None
    """A Jinja file that takes the place of the tokenizer's template."""
    trust_remote_code: bool = False
    """Whether code that comes with the model may run."""


class LoraSettings(Leaf):
    """[lora]: trains a low-rank adapter instead of all weights; without this section all weights are trained."""

    rank: int = Field(default=32, gt=0)
    alpha: float = Field(default=64, gt=0)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """0: with dropout the log-probabilities in the loss would differ from those of the rollout."""
    targets: tuple[str, ...] | Literal["all-linear"] = "all-linear"
    """Names of the layers that get an adapter."""
    start: Path | None = None
    """Folder of an adapter to continue with, of the same rank and alpha; its layers stay. None: a new adapter. The
    reference of the KL term is then the model with the adapter as it was."""


class EvaluationSettings(Leaf):
    """[evaluation]: held-out samples at given lengths, before, during and after training."""

    lengths: Lengths = ()
    """In tokens, such as `["8k", 32768]` or `"8k,...,64k"`."""
    as_they_are: bool = False
    """Also held-out samples as long as training's are: for documents that cannot be had at other lengths."""
    every: int = Field(default=0, ge=0)
    """Steps between two evaluations; 0: only before and after training."""
    n: int = Field(default=64, gt=0)
    """Samples a length, held out from training. A mean of 64 is known to about +-12 points (95%)."""
    at_start: bool = True
    """Also before the first step."""
    temperature: float = Field(default=0.7, ge=0)
    """The published system's at inference; 0 is greedy."""
    top_p: float = Field(default=0.95, gt=0, le=1)

    @property
    def columns(self) -> tuple[int, ...]:
        """Lengths in tokens; 0 stands for samples as they are."""
        return (*((0,) if self.as_they_are else ()), *self.lengths)


class LoggingSettings(Leaf):
    """[logging]: what is written down, and for whom."""

    rollouts: int = Field(default=1, ge=0)
    """Every so many steps all rollouts go to `rollouts/step-*.parquet`; 0: never."""
    runs: int = Field(default=1, ge=0)
    """Every so many steps the memory agent's runs are kept in `runs.sqlite`, with their documents, for `memagent show`;
    0: never."""
    trackio: bool = False
    """Send metrics to trackio (a package of its own)."""
    wandb: bool = False
    """Send metrics to Weights & Biases (a package of its own)."""
    project: str = "memagent"
    """Name of the project there."""


class CheckpointSettings(Leaf):
    """[checkpoints]: what a killed training goes on from."""

    every: int = Field(default=10, gt=0)
    """Steps between two checkpoints; there is always one at the end."""
    keep: int = Field(default=2, ge=0)
    """Newest checkpoints that stay; 0: all. Each has weights and optimizer: about 14 bytes a trained weight in fp32."""


class ResourceSettings(Leaf):
    """[resources]: what the training runs on."""

    device: Literal["auto", "cpu"] = "auto"
    """`auto` is a GPU where there is one."""
    processes: int = Field(default=1, gt=0)
    """GPUs, one process each: as many as `accelerate launch` starts."""
    ddp_timeout: int = Field(default=7200, gt=0)
    """Seconds that a process waits for the others before the training fails. More than the rollouts of a step, or an
    evaluation, may take one process longer than another."""
    sharding: Literal["none", "fsdp", "zero2", "zero3"] = "none"
    """How weights, gradients and optimizer are divided among processes. The file that `accelerate launch` is given
    does it; here it is named for the memory estimate."""
    gradient_checkpointing: bool = True
    """Keeps one activation a layer and computes the others again: about a third more time for far less memory."""
    device_gib: float | None = Field(default=None, gt=0)
    """Memory of one device; with it the plan says whether the estimate fits."""
