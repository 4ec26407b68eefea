"""All settings of a warm start on traces, as in one TOML file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from memagent.messages import Leaf
from memagent_train.algorithm import OptimizerSettings
from memagent_train.config.read import load
from memagent_train.config.sections import (
    CheckpointSettings,
    LoraSettings,
    ModelSettings,
    ProcessSettings,
    ReportSettings,
    check_dtype,
)
from memagent_train.config.train import resolve_names

FREE_SFT = (
    "optimizer.steps",
    "batch.micro_batches",
    "checkpoints",
    "logging",
    "resources.ddp_timeout",
    "resources.gradient_checkpointing",
)
"""Settings that may change when a run is resumed."""
EARLIER = ("resources.device_gib", "resources.sharding")
"""Settings without effect that runs of earlier versions recorded."""


class MessagesSource(Leaf):
    """`kind = "messages"`: an expert's conversations, one per line."""

    kind: Literal["messages"]
    files: tuple[Path, ...] = Field(min_length=1)
    """JSON lines, each `{"messages": [{"role": ..., "content": ...}, ...]}`; the last message is the reply, as text.
    Lines with `tools` are refused."""


class RecordSource(Leaf):
    """`kind = "record"`: the neutral record written by `memagent-train export --trajectories`."""

    kind: Literal["record"]
    files: tuple[Path, ...] = Field(min_length=1)
    min_reward: float | None = None
    """Only conversations of rollouts with at least this reward; None: all that have a reward."""


class RolloutSource(Leaf):
    """`kind = "rollouts"`: the rollout log of a training: the run's folder, `rollouts/` in it, or one file."""

    kind: Literal["rollouts"]
    path: Path
    min_reward: float
    """Only conversations of rollouts with at least this reward (rejection sampling), without replies that the agent
    rejected and asked for again."""


class RunsSource(Leaf):
    """`kind = "runs"`: finished runs in a run store, of any model."""

    kind: Literal["runs"]
    store: Path
    """The run store's file, such as `runs.sqlite`."""
    prefix: str = ""
    """Only runs whose id starts with this."""


AnySource = Annotated[
    MessagesSource | RecordSource | RolloutSource | RunsSource, Field(discriminator="kind")
]


class TraceSettings(Leaf):
    """[traces]: what to imitate."""

    source: tuple[AnySource, ...] = Field(min_length=1)
    window: int = Field(default=8192, gt=1)
    """Maximum tokens of a conversation, prompt plus reply."""
    overlong: Literal["refuse", "drop"] = "refuse"
    """What happens to longer ones: `refuse` is an error with their number, `drop` drops and counts them. Cut off, they
    would teach the model to stop in the middle."""


class SftBatchSettings(Leaf):
    """[batch]: conversations per update."""

    rows: int = Field(default=16, gt=0)
    """Conversations per update and process."""
    micro_batches: int = Field(default=16, gt=0)
    """Forward and backward passes per update; more passes need less memory."""

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.rows % self.micro_batches:
            raise ValueError(
                f"rows must be a multiple of micro_batches ({self.micro_batches!r}), got {self.rows!r}"
            )
        return self


class SftOptimizerSettings(OptimizerSettings):
    """[optimizer]: as in reinforcement learning, but steps are updates."""

    learning_rate: float = Field(default=1e-5, gt=0, allow_inf_nan=False)
    """Peak rate, reached after the warm-up."""
    schedule: Literal["constant", "linear"] = "constant"
    """Rate after the warm-up: `linear` decreases to 0 at the last step, so adding steps later changes it."""


class SftConfig(Leaf):
    """The settings of `memagent-train sft`, section by section."""

    model: ModelSettings
    traces: TraceSettings
    batch: SftBatchSettings = SftBatchSettings()
    optimizer: SftOptimizerSettings = SftOptimizerSettings()
    lora: LoraSettings | None = None
    checkpoints: CheckpointSettings = CheckpointSettings(every=50)
    logging: ReportSettings = ReportSettings()
    resources: ProcessSettings = ProcessSettings()

    @model_validator(mode="after")
    def _trains(self) -> Self:
        check_dtype(self.model, self.lora)
        return self


def load_sft(file: Path, overrides: Sequence[str] = ()) -> SftConfig:
    """Loads the settings of a warm start; see `load_train`.

    Raises:
        ConfigError: the file can't be read, or a setting is unknown or wrong.
    """
    config = load(SftConfig, file, overrides)
    return config.model_copy(update={"model": resolve_names(config.model, file.resolve().parent)})
