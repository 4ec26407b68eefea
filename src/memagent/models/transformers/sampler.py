"""What draws tokens: the protocol that engines in this process follow, and what they have in common."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from memagent.errors import ConfigError, ModelError
from memagent.messages import FinishReason, Sampling

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Sampled:
    """What was drawn for one prompt."""

    ids: tuple[int, ...]
    """T ids, the end token among them if it was sampled."""
    logprobs: tuple[float, ...]
    """T log-probabilities of the ids, after temperature, over the whole vocabulary: top-p does not change them."""
    finish: FinishReason


class Sampler(Protocol):
    """An engine that draws from the policy. One that knows when it computes says so to a `meter` of its own."""

    window: int
    """Most tokens of prompt plus output."""

    def generating(self) -> AbstractContextManager[None]:
        """Serves requests inside the block, in which the weights must not change.

        The module is in eval mode inside, and as it was before after it. The block ends when the engine has
        stopped; requests that are left fail. Blocks for as long as a step of the engine takes.

        Raises:
            ConfigError: the block is open already.
        """
        ...

    async def sample(
        self,
        prompt_ids: Sequence[int],
        *,
        max_tokens: int,
        sampling: Sampling,
        seed: int | None,
    ) -> Sampled:
        """Draws a continuation.

        Args:
            prompt_ids: P ids, P > 0; with `max_tokens` within the window.
            max_tokens: most ids to draw, > 0.
            sampling: at temperature 0 the likeliest id is taken, and log-probs are those of temperature 1.
            seed: makes the draw repeatable where the engine can do that; None draws afresh.

        Raises:
            ModelError: the engine failed, or serves no requests now.
            DeviceFull: the prompt alone is too long for the device.
        """
        ...


def end_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """The ids that end a reply: those of the generation config, and the tokenizer's own.

    Raises:
        ConfigError: neither names one.
    """
    config: Any = model.generation_config
    named = None if config is None else config.eos_token_id
    several = named if isinstance(named, (list, tuple)) else [named]
    found = {i for i in (*several, tokenizer.eos_token_id) if isinstance(i, int)}
    if not found:
        raise ConfigError(
            "neither the model's generation config nor its tokenizer names an end token, so replies would not end: "
            "set tokenizer.eos_token"
        )
    return tuple(sorted(found))


def pad_id(tokenizer: PreTrainedTokenizerBase, ends: Sequence[int]) -> int:
    """The id that fills rows up: the tokenizer's, else an end token, since what is padding is masked."""
    pad = tokenizer.pad_token_id
    return pad if isinstance(pad, int) else ends[0]


def read_drawn(ids: Sequence[int], logprobs: Sequence[float], ends: Sequence[int]) -> Sampled:
    """What an engine drew (ids, as many log-probabilities), checked; `ends` are the ids that end a reply.

    Raises:
        ModelError: there are none, or the log-probabilities are not as many, or no numbers.
    """
    if not ids or len(ids) != len(logprobs):
        raise ModelError(f"the engine gave {len(logprobs)} log-probabilities for {len(ids)} ids")
    if not all(map(math.isfinite, logprobs)):
        raise ModelError(
            "the model's logits are not numbers (NaN): its weights are broken, as after a step with too high a "
            "learning rate; go back to an earlier checkpoint"
        )
    finish = FinishReason.STOP if ids[-1] in ends else FinishReason.LENGTH
    return Sampled(tuple(ids), tuple(logprobs), finish)


def window_of(model: PreTrainedModel) -> int:
    """Positions that the model knows.

    Raises:
        ConfigError: its config does not say.
    """
    window = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if not isinstance(window, int) or window < 1:
        raise ConfigError(
            f"the config of {type(model).__name__} does not say how long a text the model takes "
            f"(max_position_embeddings={window!r}): give the window"
        )
    return window


@contextmanager
def generation_settings(
    model: PreTrainedModel, *, ends: Sequence[int], pad: int
) -> Generator[None]:
    """Readies a module for drawing, with ids that end a reply and one that fills rows up; leaves it as it was.

    Eval mode, since dropout would make log-probs of another model; and a generation config without anything of the
    model's own, since a repetition penalty, say, would draw from another distribution than the one that is trained.
    """
    from transformers import GenerationConfig

    training = [module for module in model.modules() if module.training]
    config = model.generation_config
    model.eval()
    model.generation_config = GenerationConfig(
        do_sample=False, eos_token_id=list(ends), pad_token_id=pad, use_cache=True
    )
    try:
        yield
    finally:
        model.generation_config = config
        for module in training:
            module.training = True
