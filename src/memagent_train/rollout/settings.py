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
        ConfigError: a server has no address, or an engine in this process has one.
    """

    engine: Engine = "padded"
    """`padded` and `continuous` (batching) generate in this process with transformers; padded batches were faster
    wherever it was measured, on CPUs. `vllm` and `sglang` ask a server, which gets the weights after each update."""
    base_url: str | None = None
    """Of the server."""
    concurrency: int = Field(default=64, gt=0)
    """Rollouts under way at once, in each process."""
    temperature: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """1 for log-probs of the model itself; with another one the trainer's have to be divided likewise."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Below 1, what is sampled is not the distribution that is trained. Continuous batching cannot do it."""
    window: int | None = Field(default=None, gt=0)
    """Most tokens of prompt plus output; default what the model's config says."""
    max_batch: int = Field(default=64, gt=0)
    """Conversations that are generated together."""
    max_batch_tokens: int | None = Field(default=None, gt=0)
    """Tokens that they take together, prompts, replies and padding; None sets no limit."""

    @property
    def sampling(self) -> Sampling:
        """What every call is drawn with."""
        return Sampling(temperature=self.temperature, top_p=self.top_p)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        served = self.engine in SERVERS
        if self.engine != "padded" and self.top_p < 1:
            raise ConfigError(
                f"top_p={self.top_p!r} cannot be trained with engine={self.engine!r}, which may then give log-probs of "
                f"another distribution: use top_p=1, or engine='padded'"
            )
        if served and self.base_url is None:
            raise ConfigError(
                f"engine={self.engine!r} has no base_url: give the server's address, such as 'http://127.0.0.1:8000'"
            )
        if self.base_url is not None and not served:
            raise ConfigError(
                f"base_url={self.base_url!r} is not used by engine={self.engine!r}: leave it out, or name the "
                f"engine that runs there (vllm, sglang)"
            )
        return self
