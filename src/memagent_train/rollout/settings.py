"""Settings of rollouts."""

from typing import Any, Literal, Self, get_args

from pydantic import Field, model_validator

from memagent.errors import ConfigError
from memagent.messages import Leaf, Sampling

InProcess = Literal["vllm-engine", "sglang-engine"]
Weights = Literal["model", "bfloat16", "adapter"]
Engine = Literal["padded", "continuous", "vllm", "sglang", InProcess]
SERVERS = ("vllm", "sglang")
IN_PROCESS: tuple[str, ...] = get_args(InProcess)
OWN_WEIGHTS = (*SERVERS, *IN_PROCESS)
"""Engines that get the weights after each update; the others sample with the weights in training."""


class RolloutSettings(Leaf):
    """How the policy is sampled.

    Raises:
        ConfigError: a server has no URL, or a setting does not fit the engine.
    """

    engine: Engine = "padded"
    """`padded` and `continuous` (batching) generate in this process with transformers; padded batches were faster in
    all our measurements, on CPUs. `vllm` and `sglang` use a server, which gets the weights after each update;
    `vllm-engine` and `sglang-engine` run that engine beside the trainer, if it is installed in the same environment."""
    engine_settings: dict[str, Any] = Field(default_factory=dict)
    """Further arguments for an engine beside the trainer, such as `{ gpu_memory_utilization = 0.3 }`."""
    base_url: str | tuple[str, ...] | None = None
    """URL of the server, or a list for several: a call goes to the server that knows most of its prompt, or to the
    least busy one. The servers' key, if any, is read from MEMAGENT_API_KEY."""
    concurrency: int = Field(default=64, gt=0)
    """Maximum calls in flight per process. Up to four times as many rollouts run: some wait for their tools."""
    ahead: bool = False
    """Whether the engine rolls out the next step while this one trains, so that rollouts come from weights one step
    older, never more; `rollouts/steps_behind` logs it. The ratio corrects for that. The first step after a resume, and
    rollouts that replace a dropped group, aren't behind."""
    weights: Weights | None = None
    """What an engine with its own weights is sent: all weights in `model.dtype` (`model`) or in `bfloat16`, with an
    adapter merged, or only the `adapter` of `[lora]`. Default: servers get the adapter if one is trained, else bfloat16
    if passes use it; an engine beside the trainer gets `model`."""
    temperature: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """1 for the model's own log-probs; with another value the trainer's are scaled the same way."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Top-p of sampling. Below 1, the sampled distribution isn't the trained one; only `padded` supports that."""
    window: int | None = Field(default=None, gt=0)
    """Maximum tokens of prompt plus output; default: the config's."""
    max_batch: int = Field(default=64, gt=0)
    """Maximum conversations per batch."""
    max_batch_tokens: int | None = Field(default=None, gt=0)
    """Maximum tokens per batch (prompts, replies and padding); None: no limit."""

    @property
    def sampling(self) -> Sampling:
        """Sampling settings of every call."""
        return Sampling(temperature=self.temperature, top_p=self.top_p)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        served = self.engine in SERVERS
        if self.engine != "padded" and self.top_p < 1:
            raise ConfigError(
                f"top_p={self.top_p!r} cannot be trained with engine={self.engine!r}, which may then return log-probs "
                f"of another distribution: use top_p=1, or engine='padded'"
            )
        if served and not self.base_url:
            raise ConfigError(
                f"engine={self.engine!r} needs a base_url: give the server's URL, such as 'http://127.0.0.1:8000'"
            )
        if self.ahead and self.engine not in OWN_WEIGHTS:
            raise ConfigError(
                f"ahead=true needs weights of its own, but engine={self.engine!r} generates with those in training: "
                f"leave ahead out, or use one of {', '.join(OWN_WEIGHTS)}"
            )
        if self.weights is not None and self.engine not in OWN_WEIGHTS:
            raise ConfigError(
                f"weights={self.weights!r} are sent to no engine={self.engine!r}, which generates with those in "
                f"training: leave weights out, or use one of {', '.join(OWN_WEIGHTS)}"
            )
        if self.weights == "adapter" and not served:
            raise ConfigError(
                f"weights='adapter' needs a server ({', '.join(SERVERS)}), but engine={self.engine!r} runs beside the "
                f"trainer: leave weights out, and it gets the adapter merged"
            )
        if self.engine_settings and self.engine not in IN_PROCESS:
            raise ConfigError(
                f"engine_settings={self.engine_settings!r} is not used by engine={self.engine!r}: leave it out, or "
                f"use one of {', '.join(IN_PROCESS)}"
            )
        if self.base_url is not None and not served:
            raise ConfigError(
                f"base_url={self.base_url!r} is not used by engine={self.engine!r}: leave it out, or name the "
                f"server's engine (vllm, sglang)"
            )
        return self
