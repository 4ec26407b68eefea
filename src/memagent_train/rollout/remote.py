"""Samplers that have their own weights. Nothing here imports torch."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from memagent.messages import Sampling
from memagent_engines.transformers.sampler import Sampled
from memagent_train.rollout.meter import Meter


class RemoteSampler(ABC):
    """An engine with its own weights, which it gets through a folder.

    Args:
        window: maximum tokens of prompt plus output.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.meter = Meter()

    @contextmanager
    def generating(self) -> Iterator[None]:
        """Does nothing: weights change only in `load`."""
        yield

    @abstractmethod
    async def sample(
        self, prompt_ids: Sequence[int], *, max_tokens: int, sampling: Sampling, seed: int | None
    ) -> Sampled:
        """See `Sampler`."""

    @abstractmethod
    async def load(self, folder: Path) -> None:
        """Makes the engine load the weights in a folder. No request may be in flight.

        Raises:
            ConfigError: the folder has no weights.
            ModelError: the engine can't load them.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Releases what it opened."""
