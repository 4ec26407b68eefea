"""Guesses of replies, since a model that keeps its memory as it was says what stands in its prompt, word for word.

They are checked in the pass that reads the prompt: speculative decoding (Leviathan et al. 2023).
"""

# ruff: noqa: N806  (names of tensors end in their dimensions)

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from memagent.models.transformers.drawing import left_padded

if TYPE_CHECKING:
    from transformers import PreTrainedModel

KEPT = 256
"""Replies that are remembered: those of four full batches."""
HEAD = 4
"""Ids at its beginning by which a reply is looked for in a prompt."""
LOGITS = 2**24
"""Most logits of a pass (64 MiB): drafts are cut to that."""
TRIED = frozenset({"gpt2", "llama", "mistral", "qwen2", "qwen3"})
"""Architectures that the tests guess with. Others may take a cache for something else, or none at all."""


class Drafts:
    """Remembers replies, and guesses the next ones: what was said before and stands in the prompt.

    A guess costs little where it is wrong, and changes no reply (see `Verified`).
    """

    def __init__(self) -> None:
        self._replies: dict[str, None] = {}

    def note(self, ids: Sequence[int]) -> None:
        """Remembers a reply, without its end token; an empty one is not remembered."""
        if ids:
            reply = _text(ids)
            self._replies.pop(reply, None)
            self._replies[reply] = None
            if len(self._replies) > KEPT:
                del self._replies[next(iter(self._replies))]

    def guess(self, prompt_ids: Sequence[int], most: int) -> list[int]:
        """The reply with the longest beginning that stands in the prompt, of several the latest; at most `most` ids.

        Empty where there is none. The whole reply is guessed, not only what stands there: one that was cut at its
        limit may read a little differently when it is encoded again.
        """
        prompt = _text(prompt_ids)
        best, found = "", 0
        for reply in reversed(self._replies):
            at = prompt.find(reply[:HEAD])
            while at >= 0 and found < len(reply) and prompt.startswith(reply[: found + 1], at):
                best, found = reply, found + 1
        return [*map(ord, best[:most])]


def _text(ids: Sequence[int]) -> str:
    """Ids as a string, which Python searches fast: a character each (a million would fit, vocabularies have less)."""
    return "".join(map(chr, ids))


def verifies(model: PreTrainedModel) -> bool:
    """Whether drafts can be checked, so that no reply depends on them.

    Not in half precision, where a pass over many ids rounds otherwise than one over each; not where a position's
    rotation depends on how long the text is; and not with sliding windows and recurrent layers, whose caches cannot
    forget an id.
    """
    config: Any = model.config
    if config.model_type not in TRIED or model.dtype != torch.float32:
        return False
    rope: Any = getattr(config, "rope_parameters", None) or {}
    layers = DynamicCache(config=config).layers
    return rope.get("rope_type", "default") not in {"dynamic", "longrope"} and all(
        type(layer) is DynamicLayer for layer in layers
    )


class Verified:
    """B prompts, each with its draft (which may be empty), after one pass of a model in eval mode."""

    def __init__(
        self,
        model: PreTrainedModel,
        prompts: Sequence[Sequence[int]],
        drafts: Sequence[Sequence[int]],
        pad: int,
    ) -> None:
        most = max(LOGITS // (len(prompts) * model.config.get_text_config().vocab_size) - 1, 0)
        drafts = [draft[:most] for draft in drafts]
        rows = [[*prompt, *draft] for prompt, draft in zip(prompts, drafts, strict=True)]
        self._inputs_BS = left_padded(rows, pad, model.device)
        mask_BS = self._inputs_BS["attention_mask"]
        self._cache, self._device = DynamicCache(config=model.config), model.device
        keep = max(map(len, drafts)) + 1
        forward: Any = model
        with torch.no_grad():
            logits_BKV = forward(
                **self._inputs_BS,
                position_ids=(mask_BS.cumsum(-1) - 1).clamp(min=0),
                past_key_values=self._cache,
                use_cache=True,
                logits_to_keep=keep,
            ).logits.float()
            best_BK1 = logits_BKV.argmax(-1, keepdim=True)
            logprobs_BK = logits_BKV.gather(-1, best_BK1)[..., 0] - logits_BKV.logsumexp(-1)
        self.drawn: list[tuple[list[int], list[float]]] = []
        """Of each row the ids that are certain, one more than was right of its draft, and their log-probabilities."""
        said = zip(drafts, best_BK1[..., 0].tolist(), logprobs_BK.tolist(), strict=True)
        for row, (draft, best, logprobs) in enumerate(said):
            first = keep - 1 - len(draft)  # its logits, of the prompt's last id, say the first
            pairs = enumerate(zip(draft, best[first:], strict=False))
            right = next((at for at, (guess, wanted) in pairs if guess != wanted), len(draft))
            end = first + right + 1
            self.drawn.append((best[first:end], logprobs[first:end]))
            # What was guessed wrong stays in the cache, and is masked as padding is.
            mask_BS[row, mask_BS.shape[1] - len(draft) + right :] = 0

    def rest(self, rows: Sequence[int]) -> dict[str, Any]:
        """What `generate` needs to go on with R of the rows: ids `(R, S)`, their mask and the cache. Ask once."""
        last_R1 = torch.tensor([self.drawn[row][0][-1:] for row in rows], device=self._device)
        more = {"input_ids": last_R1, "attention_mask": torch.ones_like(last_R1)}
        self._cache.batch_select_indices(torch.tensor(rows, device=self._device))
        inputs = {
            name: torch.cat([part[rows], more[name]], -1) for name, part in self._inputs_BS.items()
        }
        return inputs | {"past_key_values": self._cache}
