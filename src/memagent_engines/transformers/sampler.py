"""Helpers that in-process engines share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memagent.errors import ConfigError, ModelError
from memagent.messages import FinishReason

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Sampled:
    """The reply drawn for one prompt."""

    ids: tuple[int, ...]
    """T ids, including the end token if it was sampled."""
    logprobs: tuple[float, ...]
    """T log-probabilities of the ids, after temperature, over the whole vocabulary: top-p doesn't change them."""
    finish: FinishReason


def end_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Returns the ids that end a reply: those of the generation config, and the tokenizer's own.

    Raises:
        ConfigError: neither defines one.
    """
    config_ids: Any = getattr(model.generation_config, "eos_token_id", None)
    config_list = config_ids if isinstance(config_ids, (list, tuple)) else [config_ids]
    ids = {i for i in (*config_list, tokenizer.eos_token_id) if isinstance(i, int)}
    if not ids:
        raise ConfigError(
            "neither the model's generation config nor its tokenizer defines an end token, so replies would not end: "
            "set tokenizer.eos_token"
        )
    return tuple(sorted(ids))


def pad_id(tokenizer: PreTrainedTokenizerBase, ends: Sequence[int]) -> int:
    """Returns the padding id: the tokenizer's, else an end token, since padding is masked anyway."""
    pad = tokenizer.pad_token_id
    return pad if isinstance(pad, int) else ends[0]


def window_of(model: PreTrainedModel) -> int:
    """Returns the model's maximum number of positions.

    Raises:
        ConfigError: its config doesn't define it.
    """
    window = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if not isinstance(window, int) or window < 1:
        raise ConfigError(
            f"the config of {type(model).__name__} does not give the model's maximum length "
            f"(max_position_embeddings={window!r}): give the window"
        )
    return window


def read_drawn(
    ids: Sequence[int], logprobs: Sequence[float], max_tokens: int, ends: Sequence[int]
) -> Sampled | ModelError:
    """Returns what an engine drew, or an error: no ids, or log-probs that are too few, too many or not finite."""
    if not ids or len(ids) != len(logprobs):
        return ModelError(f"the engine returned {len(logprobs)} log-probs for {len(ids)} ids")
    if not all(map(math.isfinite, logprobs)):
        return ModelError(
            "the model's logits are not numbers (NaN): its weights are broken, as after a step with too high a "
            "learning rate; go back to an earlier checkpoint"
        )
    ended = ids[-1] in ends or len(ids) < max_tokens
    finish = FinishReason.STOP if ended else FinishReason.LENGTH
    return Sampled(tuple(ids), tuple(logprobs), finish)


def settle(waiting: Future[Sampled], reply: Sampled | Exception) -> None:
    """Delivers a reply if anyone still waits for it."""
    with suppress(InvalidStateError):  # cancelled or answered in the meantime
        if isinstance(reply, Exception):
            waiting.set_exception(reply)
        else:
            waiting.set_result(reply)


def make_closed_error() -> ModelError:
    """Returns the error for requests made while the sampler isn't generating."""
    return ModelError(
        "the sampler isn't generating: call it inside `with sampler.generating():`; a process that was forked "
        "after the model's first call has to open its own",
        attempts=0,
    )
