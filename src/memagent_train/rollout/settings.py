"""Settings of rollouts."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from memagent.errors import ConfigError
from memagent.messages import Leaf, Sampling

Engine = Literal["padded", "continuous", "vllm", "sglang"]
SERVERS = ("vllm", "sglang")


class RolloutSettings(Leaf):
    """How the policy is sampled.

    Raises:
        ConfigError: a server has no URL, or an in-process engine has one or shall roll out ahead.
    """

    engine: Engine = "padded"
    """`padded` and `continuous` (batching) generate in this process with transformers; padded batches were faster
    in all our measurements, on CPUs. `vllm` and `sglang` ask a server, which gets the weights after each update."""
    base_url: str | tuple[str, ...] | None = None
    """The server's URL, or a list for several servers: a call goes to the one that knows most of its prompt, or to the
    least busy one. Their key, if they have one, is read from MEMAGENT_API_KEY."""
    concurrency: int = Field(default=64, gt=0)
    """Calls in flight per process. Up to four times as many rollouts are at work: some wait for their tools."""
    ahead: bool = False
    """Whether a server rolls out the next step while this one trains, so that rollouts come from weights one step
    older. The ratio corrects for that; the first step after a resume isn't behind."""
    temperature: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """1 for the model's own log-probs; otherwise the trainer's must be scaled the same way."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Below 1, the sampled distribution isn't the trained one. Not supported by continuous batching."""
    window: int | None = Field(default=None, gt=0)
    """Maximum tokens of prompt plus output; default the config's."""
    max_batch: int = Field(default=64, gt=0)
    """Maximum conversations per batch."""
    max_batch_tokens: int | None = Field(default=None, gt=0)
    """Maximum tokens per batch (prompts, replies and padding); None means no limit."""

    @property
    def sampling(self) -> Sampling:
        """The sampling of every call."""
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
        if self.ahead and not served:
            raise ConfigError(
                f"ahead=true needs a server, but engine={self.engine!r} generates with the weights in training: "
                f"leave ahead out, or use a server's engine (vllm, sglang)"
            )
        if self.base_url is not None and not served:
            raise ConfigError(
                f"base_url={self.base_url!r} is not used by engine={self.engine!r}: leave it out, or name the "
                f"server's engine (vllm, sglang)"
            )
        return self
