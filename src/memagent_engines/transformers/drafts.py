"""Draws the replies of a batch, with drafts of what comes next: a model that rewrites its memory repeats most of it.

One pass verifies a whole draft, and the output is unchanged: speculative decoding (Leviathan et al. 2023) with
n-grams of the prompt as the draft model (Saxena 2023, "prompt lookup decoding").
"""

# ruff: noqa: N803, N806  (names of tensors end in their dimensions)

import random
from collections.abc import Sequence
from typing import Any

import torch
from transformers import Cache, DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from memagent_engines.transformers.batching import Request
from memagent_engines.transformers.cache import RoomyLayer, gather
from memagent_engines.transformers.drawing import draw, pad_ids, uniform

NGRAMS = (6, 5, 4, 3, 2)
"""Lengths of the suffixes to look up in the text, longest first."""
WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Numbers of ids per row in a pass: the last id plus its draft."""
PASS = 16
"""Fixed cost of a pass over several ids, relative to the cost per id: measured with a model of 135M weights on two CPU
cores; GPUs have more headroom."""
READ = 4096
"""Maximum ids per pass over several prompts: larger tensors get fresh pages from the system at every operation. In
bfloat16 on a CPU, 16 prompts of 300 to 900 ids took 20% to 27% less time than in one pass, of 600 to 750 5% to 16%."""
LOGITS = 2**24
"""Maximum logits per pass (64 MiB)."""
MEMORY = 0.8
"""Decay of a row's draft statistics, per draft."""
RIGHT = 4.0
"""Prior number of right draft ids, against one wrong one: with memories copied sentence by sentence, passes took 4%
less time than with 1; 8 saved little more."""
TRIED = frozenset({"gpt2", "llama", "mistral", "qwen2", "qwen3"})
"""Architectures tested with `draw_replies`. Others may use the cache differently, or not at all."""


def verifies(model: PreTrainedModel) -> bool:
    """Returns whether drafts can be verified without affecting replies.

    Not in half precision, where one pass over many ids rounds differently from a pass over each.
    """
    return model.dtype == torch.float32


def draws(model: PreTrainedModel) -> bool:
    """Returns whether `draw_replies` can be used.

    Not if a position's rotation depends on the text's length, nor with sliding windows or recurrent layers, whose
    caches can't drop an id.
    """
    config: Any = model.config
    if config.model_type not in TRIED:
        return False
    rope: Any = getattr(config, "rope_parameters", None) or {}
    layers = DynamicCache(config=config).layers
    return rope.get("rope_type", "default") not in {"dynamic", "longrope"} and all(
        type(layer) is DynamicLayer for layer in layers
    )


def guess(text: str, longest: int) -> str:
    """Returns what followed the first earlier occurrence of a text's suffix: up to `longest` characters, maybe none."""
    for length in NGRAMS:
        if len(text) > length:
            position = text.find(text[-length:], 0, -1)
            if position >= 0:
                return text[position + length : position + length + longest]
    return ""


class _Row:
    """A prompt and its reply in progress."""

    def __init__(self, request: Request) -> None:
        self.request = request
        # Ids as characters, for Python's string search: it allows a million, and vocabularies are smaller.
        self.text = "".join(map(chr, request.prompt_ids))
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.draft = ""
        self._right, self._wrong = 0.0, 0.0
        self._stream = random.Random(request.seed)
        self._uniforms: list[float] = []

    def uniforms(self, count: int) -> list[float]:
        """Returns a number from [0, 1) for each of the next positions, independent of the draft."""
        while len(self._uniforms) < len(self.ids) + count:
            self._uniforms.append(self._stream.random())
        return self._uniforms[len(self.ids) : len(self.ids) + count]

    def gains(self) -> list[float]:
        """Returns the expected number of ids added by a pass of each of `WIDTHS`."""
        chance = (self._right + RIGHT) / (self._right + self._wrong + RIGHT + 1)
        sums = [1.0]
        for place in range(1, WIDTHS[-1]):
            sums.append(sums[-1] + (chance**place if place <= len(self.draft) else 0.0))
        return [sums[width - 1] for width in WIDTHS]

    def add(self, ids: Sequence[int], logprobs: Sequence[float], ends: Sequence[int]) -> int:
        """Accepts the ids drawn for the last id and its draft, as far as the draft was right; returns how many.

        Accepts nothing after the reply's end, and then returns 0.
        """
        draft = [*map(ord, self.draft)]
        check_count = min(len(draft), len(ids) - 1)
        right = next(
            (index for index in range(check_count) if ids[index] != draft[index]), check_count
        )
        self._right = MEMORY * self._right + right
        # One more id is known: it shows whether drafts are right even where none was checked.
        if right < len(draft):
            is_right = ids[right] == draft[right]
            self._right += is_right
            self._wrong = MEMORY * self._wrong + (not is_right)
        for step in range(right + 1):
            self.ids.append(ids[step])
            self.logprobs.append(logprobs[step])
            self.text += chr(ids[step])
            if not self.request.wants_more(self.ids, ends):
                return 0
        return right + 1


def draw_replies(
    model: PreTrainedModel,
    batch: Sequence[Request],
    ends: Sequence[int],
    pad: int,
    *,
    drafting: bool,
) -> list[tuple[list[int], list[float]]]:
    """Draws B replies with one sampling from a model in eval mode that `draws`; returns their ids and log-probs.

    A prompt shared by several requests is read once, and rows leave the batch at their end. If `drafting`, each
    further pass covers the last id of a row and its draft. Wrong draft ids are cut from the cache, or masked if they
    were right for another row.
    """
    rows = [_Row(request) for request in batch]
    forward: Any = model
    vocabulary, device = model.config.get_text_config().vocab_size, model.device
    cache, mask_BS = _read_prompts(model, [row.text for row in rows], pad)
    width, active_rows, inputs = 1, rows, [[ord(row.text[-1])] for row in rows]
    while True:
        ids_BW = torch.tensor(
            [[*ids, *[pad] * (width - len(ids))] for ids in inputs], device=device
        )
        new_BW = torch.tensor(
            [[index < len(ids) for index in range(width)] for ids in inputs], device=device
        )
        mask_BS = torch.cat([mask_BS, new_BW.to(mask_BS.dtype)], -1)
        places_BW = (mask_BS.cumsum(-1) - 1)[:, -width:]
        with torch.no_grad():
            logits_BWV = forward(
                input_ids=ids_BW,
                attention_mask=mask_BS,
                position_ids=places_BW,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=width,
            ).logits.float()
        drawn_BW, logprobs_BW = _draw_ids(logits_BWV, active_rows)
        del logits_BWV
        accept_counts = [
            row.add(ids, logprobs, ends)
            for row, ids, logprobs in zip(active_rows, drawn_BW, logprobs_BW, strict=True)
        ]
        active_indices = [index for index, count in enumerate(accept_counts) if count]
        if not active_indices:
            return [(row.ids, row.logprobs) for row in rows]
        excess = width - max(accept_counts[index] for index in active_indices)
        if excess:
            cache.crop(-excess)
            mask_BS = mask_BS[:, :-excess]
        if width - excess > 1:
            counts = torch.tensor(accept_counts, device=device)[:, None]
            mask_BS[:, excess - width :] = torch.arange(width - excess, device=device) < counts
        if len(active_indices) < len(active_rows):
            row_indices = torch.tensor(active_indices, device=device)
            cache.batch_select_indices(row_indices)
            mask_BS, active_rows = (
                mask_BS[row_indices],
                [active_rows[index] for index in active_indices],
            )
        width = _draft(active_rows, LOGITS // (len(active_rows) * vocabulary)) if drafting else 1
        inputs = [[row.ids[-1], *map(ord, row.draft[: width - 1])] for row in active_rows]


def _read_prompts(
    model: PreTrainedModel, prompts: Sequence[str], pad: int
) -> tuple[Cache, torch.Tensor]:
    """Returns a cache with all ids of B prompts but the last, and its `(B, S)` mask.

    Prompts of similar length share a pass. Padding comes last, where causal attention never looks, so these passes need
    no mask: in bfloat16 on a CPU, attention without one takes less than half the time. Only the passes after them must
    hide the padding. The last ids are fed later, because prompts end at different places and only the next id's logits
    are wanted.
    """
    forward: Any = model
    waiting = sorted(dict.fromkeys(prompts), key=len)
    places = dict[str, tuple[Cache, int]]()
    while waiting:
        count = max(READ // len(waiting[-1]), 1)
        waiting, part = waiting[:-count], waiting[-count:]
        cache = Cache(layer_class_to_replicate=RoomyLayer)
        # A prompt of one id has none left: it gets a masked one, so that every cache has all layers.
        ids = [[*map(ord, prompt[:-1] or chr(pad))] for prompt in part]
        ids_PS = pad_ids(ids, pad, model.device, "right")["input_ids"]
        with torch.no_grad():
            forward(input_ids=ids_PS, past_key_values=cache, use_cache=True, logits_to_keep=1)
        places |= {prompt: (cache, row) for row, prompt in enumerate(part)}
    cache = gather([places[prompt] for prompt in prompts])
    lengths_B1 = torch.tensor([[len(prompt) - 1] for prompt in prompts], device=model.device)
    mask_BS = torch.arange(cache.get_seq_length(), device=model.device) < lengths_B1
    return cache, mask_BS.long()


def _draft(rows: Sequence[_Row], max_width: int) -> int:
    """Sets each row's draft; returns the width of the verifying pass: the one that adds most ids for its time."""
    for row in rows:
        room = row.request.max_tokens - len(row.ids) - 1
        row.draft = guess(row.text, min(room, WIDTHS[-1] - 1))
    gains = [sum(gains) for gains in zip(*(row.gains() for row in rows), strict=True)]
    worths = [gain / (PASS + len(rows) * width) for gain, width in zip(gains, WIDTHS, strict=True)]
    width = min(WIDTHS[worths.index(max(worths))], max(max_width, 1))
    return min(width, 1 + max(len(row.draft) for row in rows))


def _draw_ids(
    logits_BWV: torch.Tensor, rows: Sequence[_Row]
) -> tuple[list[list[int]], list[list[float]]]:
    """Draws `(B, W)` ids; returns them with their log-probabilities."""
    sampling, width = rows[0].request.sampling, logits_BWV.shape[1]
    if sampling.temperature:
        logits_BWV = logits_BWV / sampling.temperature
        uniforms_BW = uniform(row.uniforms(width) for row in rows)
        uniforms_N = uniforms_BW.flatten().to(logits_BWV.device)
        logprobs_NV = torch.log_softmax(logits_BWV.flatten(0, 1), -1)
        ids_BW1 = draw(logprobs_NV, sampling.top_p, uniforms_N).reshape(len(rows), width, 1)
    else:
        ids_BW1 = logits_BWV.argmax(-1, keepdim=True)
    logprobs_BW = logits_BWV.gather(-1, ids_BW1)[..., 0] - logits_BWV.logsumexp(-1)
    return ids_BW1[..., 0].tolist(), logprobs_BW.tolist()
