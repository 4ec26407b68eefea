"""Drafts of greedy replies, checked in the pass that reads the prompt: speculative decoding (Leviathan et al. 2023)."""

# ruff: noqa: N806  (names of tensors end in their dimensions)

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LOGITS = 2**26
"""Most logits of a pass (256 MiB in float32): drafts are cut to that."""


def verifies(model: PreTrainedModel) -> bool:
    """Whether drafts can be checked: with a cache of full attention, where wrong ids are masked and not undone."""
    if not {"logits_to_keep", "position_ids"} <= set(inspect.signature(model.forward).parameters):
        return False
    layers = DynamicCache(config=model.config).layers
    return bool(layers) and all(type(layer) is DynamicLayer for layer in layers)


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
        mask_BS = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        self._ids_BS = torch.tensor([[pad] * (width - len(row)) + row for row in rows])
        self._mask_BS = mask_BS.clone()
        self._cache = DynamicCache(config=model.config)
        self._device = model.device
        forward: Any = model
        with torch.no_grad():
            logits_BKV = forward(
                input_ids=self._ids_BS.to(self._device),
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
        for row, (draft, best, logprobs) in enumerate(places):
            first = (
                keep - 1 - len(draft)
            )  # the prompt's last id, whose logits say the reply's first
            pairs = enumerate(zip(draft, best[first:], strict=False))
            right = next((at for at, (one, other) in pairs if one != other), len(draft))
            self.ids.append(best[first : first + right + 1])
            self.logprobs.append(logprobs[first : first + right + 1])
            wrong = width - len(draft) + right
            self._mask_BS[row, wrong:] = 0  # these stay in the cache, and nothing sees them

    def rest(self, rows: Sequence[int]) -> dict[str, Any]:
        """What `generate` needs to go on with some of the rows, R of them: ids `(R, S + 1)`, their mask and the cache.

        Ends the use of this object: the cache is cut down to these rows.
        """
        last_R1 = torch.tensor([self.ids[row][-1:] for row in rows])
        ids_RS = torch.cat([self._ids_BS[rows], last_R1], dim=-1)
        mask_RS = torch.cat([self._mask_BS[rows], torch.ones_like(last_R1)], dim=-1)
        self._cache.batch_select_indices(torch.tensor(rows))
        return {
            "input_ids": ids_RS.to(self._device),
            "attention_mask": mask_RS.to(self._device),
            "past_key_values": self._cache,
        }
