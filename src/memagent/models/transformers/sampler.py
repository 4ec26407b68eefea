"""What engines that draw in this process have in common."""

from __future__ import annotations

import math
import re
from collections.abc import Generator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig

from memagent.errors import ConfigError, ModelError
from memagent.messages import FinishReason

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

UNALLOCATED = re.compile(
    r"out of memory|can't allocate memory|not enough memory|CUBLAS_STATUS_ALLOC_FAILED"
)
"""How torch says it: of devices other than CUDA's, and of the machine's own memory, in a plain RuntimeError."""


@dataclass(frozen=True)
class Sampled:
    """What was drawn for one prompt."""

    ids: tuple[int, ...]
    """T ids, the end token among them if it was sampled."""
    logprobs: tuple[float, ...]
    """T log-probabilities of the ids, after temperature, over the whole vocabulary: top-p does not change them."""
    finish: FinishReason


def end_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """The ids that end a reply: those of the generation config, and the tokenizer's own.

    Raises:
        ConfigError: neither names one.
    """
    named: Any = getattr(model.generation_config, "eos_token_id", None)
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


def left_padded(
    rows: Sequence[Sequence[int]], pad: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """`(B, S)` ids of B rows, and their attention mask."""
    ids = [torch.tensor(row) for row in rows]
    whole, mask = (
        pad_sequence(part, batch_first=True, padding_value=value, padding_side="left").to(device)
        for part, value in ((ids, pad), ([torch.ones_like(row) for row in ids], 0))
    )
    return whole, mask


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


def settle(waiting: Future[Sampled], reply: Sampled | Exception) -> None:
    """Hands a reply over, if it is still waited for."""
    with suppress(InvalidStateError):  # cancelled meanwhile, or answered
        if isinstance(reply, Exception):
            waiting.set_exception(reply)
        else:
            waiting.set_result(reply)


def closed() -> ModelError:
    """What requests get that come when nothing is generated."""
    return ModelError(
        "the sampler generates nothing now: ask it inside `with sampler.generating():`", attempts=0
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that a device or the machine has no memory left."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or (
        isinstance(error, RuntimeError) and UNALLOCATED.search(str(error)) is not None
    )
