"""All settings of a training by reinforcement learning, as in one TOML file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, get_args

from pydantic import model_validator

from memagent.errors import ConfigError
from memagent.messages import CallKind, Leaf
from memagent.models.spec import IN_PROCESS as MODELS
from memagent.texts import expand
from memagent_train.agents import MEMORY, TOOLS, AgentSettings
from memagent_train.algorithm import AlgorithmSettings, BatchSettings, OptimizerSettings
from memagent_train.config.read import load
from memagent_train.config.sections import (
    CheckpointSettings,
    EvaluationSettings,
    LoggingSettings,
    LoraSettings,
    ModelSettings,
    ResourceSettings,
    check_dtype,
)
from memagent_train.data.settings import DataSettings, HubSettings
from memagent_train.rewards.settings import RewardSettings
from memagent_train.rollout.settings import IN_PROCESS, SERVERS, RolloutSettings

FREE = (
    "optimizer.steps",
    "batch.micro_batches",
    "batch.micro_batch_tokens",
    "rollout.base_url",
    "rollout.concurrency",
    "rollout.engine_settings",
    "rollout.max_batch",
    "rollout.max_batch_tokens",
    "rollout.weights",
    "reward.workers",
    "evaluation",
    "checkpoints",
    "logging",
    "resources.ddp_timeout",
    "resources.device_gib",
    "resources.gradient_checkpointing",
)
"""Settings that may change when a run is resumed: how long, how fast and what is logged, but not what is learned."""
CALLS: dict[str, tuple[CallKind, ...]] = {MEMORY: ("update", "answer"), TOOLS: ("act", "summary")}
"""Kinds of calls that memagent's agents make."""
FOUND_BY = ("", "config.json", "tokenizer.json", "adapter_config.json")
"""A name refers to a file if it is one, or to a folder with one of these."""


class TrainConfig(Leaf):
    """The settings of `memagent-train grpo`, section by section."""

    model: ModelSettings
    data: DataSettings
    agent: AgentSettings = AgentSettings()
    rollout: RolloutSettings = RolloutSettings()
    reward: RewardSettings = RewardSettings()
    algorithm: AlgorithmSettings = AlgorithmSettings()
    batch: BatchSettings = BatchSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    lora: LoraSettings | None = None
    evaluation: EvaluationSettings = EvaluationSettings()
    checkpoints: CheckpointSettings = CheckpointSettings()
    logging: LoggingSettings = LoggingSettings()
    resources: ResourceSettings = ResourceSettings()

    @model_validator(mode="after")
    def _ratio_of_older_weights(self) -> Self:
        if self.rollout.ahead and "ratio" not in self.algorithm.model_fields_set:
            truncated = self.algorithm.model_copy(update={"ratio": "truncated"})
            object.__setattr__(self, "algorithm", truncated)
        return self

    @model_validator(mode="after")
    def _corrects(self) -> Self:
        check_dtype(self.model, self.lora)
        if self.rollout.ahead and self.algorithm.ratio == "recomputed":
            raise ConfigError(
                "algorithm.ratio='recomputed' doesn't correct rollouts for older weights, which rollout.ahead=true "
                "brings: use 'truncated' or 'rollout'"
            )
        if self.rollout.weights == "adapter" and self.lora is None:
            raise ConfigError(
                "rollout.weights='adapter' needs an adapter to train: add [lora], or use 'model' or 'bfloat16'"
            )
        if self.lora is not None and self.lora.dropout:
            raise ConfigError(
                f"lora.dropout={self.lora.dropout!r} would train another policy than the one that samples: leave it "
                f"out (`memagent-train sft` takes it)"
            )
        if self.algorithm.step_weight and not self.reward.gate_reward:
            raise ConfigError(
                f"algorithm.step_weight={self.algorithm.step_weight!r} weighs rewards of single conversations, which "
                f"only reward.gate_reward=true gives: set it, or leave it out"
            )
        agent = self.agent
        if self.reward.answer_form != "given" and agent.use == MEMORY:
            raise ConfigError(
                f"reward.answer_form={self.reward.answer_form!r} looks for its form in answers that the memory agent "
                f"has extracted, so they would all get 0: leave it out (the prompt set, such as 'boxed', has a form)"
            )
        if (
            self.reward.gate_reward
            and agent.use in (MEMORY, TOOLS)
            and agent.gate not in ("update", "both")
        ):
            raise ConfigError(
                f"reward.gate_reward=true rewards what an update gate decides, which agent.use={agent.use!r} with "
                f"agent.gate={agent.gate!r} doesn't have: set agent.gate to 'update' or 'both', or leave it out"
            )
        if self.rollout.engine in IN_PROCESS and self.resources.processes > 1:
            raise ConfigError(
                f"rollout.engine={self.rollout.engine!r} runs beside a single trainer, but resources.processes is "
                f"{self.resources.processes!r}: use a server ({', '.join(SERVERS)})"
            )
        games = any(source.kind == "game" for source in self.data.source)
        if games and agent.use == MEMORY:
            raise ConfigError(
                f"a source of kind='game' has games to play, but agent.use={agent.use!r} reads documents: set "
                f"agent.use to 'tools', or to an agent of your own"
            )
        calls: tuple[CallKind, ...] = CALLS.get(agent.use, get_args(CallKind))
        if others := [kind for kind in self.algorithm.weights if kind not in calls]:
            raise ConfigError(
                f"algorithm.weights names {', '.join(others)}, but the calls of agent.use={agent.use!r} are "
                f"{', '.join(calls)}: leave the others out"
            )
        if not any(self.algorithm.weights.get(kind, 1) for kind in calls):
            raise ConfigError(
                f"algorithm.weights gives {', '.join(calls)} the weight 0, all calls of agent.use={agent.use!r}, so "
                f"nothing would be trained: leave one out, or give it a weight above 0"
            )
        compared = self.reward.beside or (
            self.reward.use.strip() != "task" and ":" not in self.reward.use
        )
        if compared and games:
            raise ConfigError(
                f"reward.use={self.reward.use!r} and reward.beside={list(self.reward.beside)!r} compare answers with "
                f"references, which samples of kind='game' don't have: use 'task' (the game's verdict) or your own "
                f"'module:function', with nothing beside it"
            )
        return self


def load_train(file: Path, overrides: Sequence[str] = ()) -> TrainConfig:
    """Loads the settings of a training; see `load`.

    Names of models, tokenizers, prompt sets and data sets are resolved to files or folders next to the file if those
    exist.

    Raises:
        ConfigError: the file can't be read, or a setting is unknown or wrong.
    """
    config = load(TrainConfig, file, overrides)
    base, agent = file.resolve().parent, config.agent
    sources = tuple(
        source.model_copy(update={"path": str(base / source.path)})
        if isinstance(source, HubSettings) and (base / source.path).exists()
        else source
        for source in config.data.source
    )
    lengths = _resolve_name(base, config.data.length_tokenizer)
    judge = config.reward.judge
    scheme, _, name = judge.model.partition(":")
    if name and scheme in MODELS:
        judge = judge.model_copy(update={"model": f"{scheme}:{_resolve_name(base, name)}"})
    if "prompts" in agent.model_fields_set:
        # Only if given: a custom agent rejects the memory agent's settings.
        agent = agent.model_copy(update={"prompts": _resolve_name(base, agent.prompts)})
    return config.model_copy(
        update={
            "model": resolve_names(config.model, base),
            "data": config.data.model_copy(update={"source": sources, "length_tokenizer": lengths}),
            "agent": agent,
            "reward": config.reward.model_copy(update={"judge": judge}),
        }
    )


def resolve_names(model: ModelSettings, base: Path) -> ModelSettings:
    """Returns the settings with names replaced by paths, for names of folders in `base`."""
    both = {"path": model.path, "tokenizer": model.tokenizer}
    return model.model_copy(update={key: _resolve_name(base, name) for key, name in both.items()})


def dump_config(config: TrainConfig) -> dict[str, Any]:
    """Converts the settings to plain data that reads back the same; None is left out, since TOML doesn't have it."""
    dumped = config.model_dump(mode="json", exclude_none=True)
    if config.agent.use != MEMORY:
        dumped["agent"] = config.agent.model_dump(mode="json", exclude_unset=True)
    return {name: section for name, section in dumped.items() if not _is_empty(section)}


def _is_empty(section: object) -> bool:
    return isinstance(section, Mapping) and not section


def _resolve_name(base: Path, name: str | None) -> str | None:
    """Returns the path of the file or folder of that name next to the settings; else the name, maybe one on a hub."""
    path = base / expand(name or "")
    return str(path) if name and any((path / file).is_file() for file in FOUND_BY) else name
