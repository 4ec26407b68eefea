"""Drafts of greedy replies, checked in the pass that reads the prompt: speculative decoding (Leviathan et al. 2023)."""

# ruff: noqa: N806  (names of tensors end in their dimensions)

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import pad as padded
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LOGITS = 2**24
"""Most logits of a pass (64 MiB): drafts are cut to that."""

TRIED = frozenset({"gpt2", "llama", "mistral", "qwen2", "qwen3"})
"""Architectures that the tests guess with. Others may take a cache for something else, or none at all."""


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
    """A batch of prompts and drafts after one pass: of each draft what greedy decoding would say, and the id after it.

    Args:
        model: the policy, in eval mode.
        prompts: B prompts, each of at least one id.
        drafts: B drafts, which may be empty.
        pad: the id that fills rows up.

    Attributes:
        ids: for each row the ids that are certain: one more than was right of its draft.
        logprobs: their log-probabilities, as many.
    """

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
        width, keep = max(map(len, rows)), max(map(len, drafts)) + 1
        gaps = [width - len(row) for row in rows]
        ids_BS = torch.tensor([[pad] * gap + row for gap, row in zip(gaps, rows, strict=True)])
        mask_BS = torch.tensor([[0] * gap + [1] * (width - gap) for gap in gaps])
        self._cache = DynamicCache(config=model.config)
        self._device, self._pad = model.device, pad
        self._kept: list[tuple[list[int], int]] = []  # ids without what is wrong, and their column
        forward: Any = model
        with torch.no_grad():
            logits_BKV = forward(
                input_ids=ids_BS.to(self._device),
                attention_mask=mask_BS.to(self._device),
                position_ids=(mask_BS.cumsum(-1) - 1).clamp(min=0).to(self._device),
                past_key_values=self._cache,
                use_cache=True,
                logits_to_keep=keep,
            ).logits.float()
            best_BK1 = logits_BKV.argmax(-1, keepdim=True)
            logprobs_BK = logits_BKV.gather(-1, best_BK1)[..., 0] - logits_BKV.logsumexp(-1)
        self.ids: list[list[int]] = []
        self.logprobs: list[list[float]] = []
        places = zip(drafts, best_BK1[..., 0].tolist(), logprobs_BK.tolist(), strict=True)
        for row, gap, (draft, best, logprobs) in zip(rows, gaps, places, strict=True):
            first = keep - 1 - len(draft)  # its logits, of the prompt's last id, say the first
            pairs = enumerate(zip(draft, best[first:], strict=False))
            right = next((at for at, (one, other) in pairs if one != other), len(draft))
            self.ids.append(best[first : first + right + 1])
            self.logprobs.append(logprobs[first : first + right + 1])
            self._kept.append((row[: len(row) - len(draft) + right], gap))

    def rest(self, rows: Sequence[int]) -> dict[str, Any]:
        """What `generate` needs to go on with some of the rows, R of them: ids `(R, S)`, their mask and the cache.

        As if nothing had been guessed wrong: those ids leave the cache. Ends the use of this object.
        """
        kept = [self._kept[row] for row in rows]
        width = max(len(ids) for ids, _ in kept)
        gaps = [width - len(ids) for ids, _ in kept]
        last = [self.ids[row][-1:] for row in rows]
        for layer in self._cache.layers:
            full: Any = layer
            for name in ("keys", "values"):
                cached_BHSD = getattr(full, name)
                cut = [
                    padded(cached_BHSD[row, :, at : at + len(ids)], (0, 0, gap, 0))
                    for row, (ids, at), gap in zip(rows, kept, gaps, strict=True)
                ]
                setattr(full, name, torch.stack(cut))
        places = zip(gaps, kept, last, strict=True)
        ids_RS = torch.tensor([[self._pad] * gap + ids + one for gap, (ids, _), one in places])
        mask_RS = torch.tensor([[0] * gap + [1] * (width - gap + 1) for gap in gaps])
        return {
            "input_ids": ids_RS.to(self._device),
            "attention_mask": mask_RS.to(self._device),
            "past_key_values": self._cache,
        }
