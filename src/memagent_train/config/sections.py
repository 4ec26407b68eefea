"""The general sections of a training's settings: model, adapter, evaluation, logs, resources."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from memagent.errors import ConfigError
from memagent.messages import Leaf
from memagent_train.data.settings import Lengths


class ModelSettings(Leaf):
    """[model]: the policy's weights and tokenizer."""

    path: str = Field(min_length=1)
    """A folder in transformers' format, or a name on the hub. The reference of the KL term is the same model."""
    revision: str | None = None
    """Branch, tag or commit of a model on the hub."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Type of the weights. Passes use bf16 if the GPU supports it (optimizer.precision); bf16 weights would lose most
    of an update at a rate of 1e-6, so they are for LoRA, whose base does not change. float16 needs `[lora]`."""
    attention: str = "sdpa"
    """Attention implementation, as transformers names it: `sdpa`, `eager`, `flash_attention_2`, `flash_attention_3`."""
    tokenizer: str | None = None
    """A folder or a hub name; default: the model's tokenizer."""
    chat_template: Path | None = None
    """A Jinja file that replaces the tokenizer's template."""
    trust_remote_code: bool = False
    """Whether code that comes with the model may run."""


class LoraSettings(Leaf):
    """[lora]: trains a low-rank adapter instead of all weights; without this section all weights are trained."""

    rank: int = Field(default=32, gt=0)
    alpha: float = Field(default=64, gt=0)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """0, because with dropout the log-probabilities in the loss would differ from those of the rollout."""
    targets: Annotated[tuple[str, ...], Field(min_length=1)] | Literal["all-linear"] = "all-linear"
    """Names of the layers that get an adapter, such as `["q_proj", "v_proj"]`."""
    start: Path | None = None
    """Folder of an adapter to continue, with the same rank and alpha; its layers are kept. None: a new adapter. The
    reference of the KL term is then the model with the initial adapter."""


def check_dtype(model: ModelSettings, lora: LoraSettings | None) -> None:
    """Raises a `ConfigError` for trained float16 weights: AdamW's eps of 1e-8 is 0 in float16, so it divides by 0."""
    if model.dtype == "float16" and lora is None:
        raise ConfigError(
            "model.dtype='float16' would destroy the weights in the first step: use 'float32' (passes use bf16 if the "
            "GPU supports it), or train an adapter with [lora]"
        )


class EvaluationSettings(Leaf):
    """[evaluation]: held-out samples at given lengths, before, during and after training."""

    lengths: Lengths = ()
    """Lengths in tokens, such as `["8k", 32768]` or `"8k,...,64k"`."""
    as_they_are: bool = False
    """Also evaluate held-out samples at the training length, for documents that have no other lengths."""
    every: int = Field(default=0, ge=0)
    """Steps between evaluations; 0: only before and after training."""
    n: int = Field(default=64, gt=0)
    """Samples per length, held out from training. A mean of 64 has a margin of about +-12 points (95%)."""
    at_start: bool = True
    """Also evaluate before the first step."""
    temperature: float = Field(default=0.7, ge=0)
    """Sampling temperature, as in the published system at inference; 0 is greedy."""
    top_p: float = Field(default=0.95, gt=0, le=1)

    @property
    def columns(self) -> tuple[int, ...]:
        """Lengths in tokens; 0 means samples at their natural length."""
        return (*((0,) if self.as_they_are else ()), *self.lengths)


class ReportSettings(Leaf):
    """[logging] of a warm start: where metrics are sent."""

    trackio: bool = False
    """Send metrics to trackio (a separate package)."""
    wandb: bool = False
    """Send metrics to Weights & Biases (a separate package)."""
    project: str = "memagent"
    """Project name in trackio or Weights & Biases."""


class LoggingSettings(ReportSettings):
    """[logging]: what is logged, and where."""

    rollouts: int = Field(default=1, ge=0)
    """Steps between logs of all rollouts to `rollouts/step-*.parquet`; 0: never."""
    runs: int = Field(default=1, ge=0)
    """Steps between saves of the memory agent's runs to `runs.sqlite`, with their documents, for `memagent show`;
    0: never."""


class CheckpointSettings(Leaf):
    """[checkpoints]: what a killed training resumes from."""

    every: int = Field(default=10, gt=0)
    """Steps between checkpoints; there is always one after the last step."""
    keep: int = Field(default=2, ge=0)
    """Newest checkpoints to keep; 0: all. Each has weights and optimizer state: in fp32 12 bytes per trained weight, or
    16 with FSDP, which stores the weights twice."""
    accept_changes: bool = False
    """Resume even if the data, the prompts, the tokenizer, the chat template, the weights at `model.path`, or the
    module of a custom agent, reward, task or game have changed since the start."""


class ProcessSettings(Leaf):
    """[resources] of a warm start: the hardware it runs on."""

    device: Literal["auto", "cpu"] = "auto"
    """`auto` uses a GPU if there is one."""
    processes: int = Field(default=1, gt=0)
    """GPUs, one process each: as many as `accelerate launch` starts."""
    ddp_timeout: int = Field(default=7200, gt=0)
    """Seconds that a process waits for the others before the training fails. Must exceed the difference between
    processes in the time of a step's rollouts or an evaluation."""
    gradient_checkpointing: bool = True
    """Stores one activation per layer and recomputes the others: takes about a third more time but far less memory."""


class ResourceSettings(ProcessSettings):
    """[resources]: the hardware the training runs on."""

    sharding: Literal["none", "fsdp", "zero2", "zero3"] = "none"
    """How weights, gradients and optimizer state are sharded among processes. The config file of `accelerate launch`
    decides; it is repeated here for the memory estimate."""
    device_gib: float | None = Field(default=None, gt=0)
    """Memory of one device in GiB, to tell whether the estimate fits."""
