"""Counts replies to lessons that a policy gives word for word, greedily; read off one pass over prompt and reply."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from memagent.messages import Message
from memagent_engines.smol import smol_folder
from memagent_engines.transformers.loading import load, text_counter
from memagent_smol.expert import KEEP

Messages = list[dict[str, str]]
ANSWERS = "Answer in a few words."
"""End of an answer's prompt, in `prompts.toml`."""


@dataclass(frozen=True)
class Exact:
    """Counts for lessons of one kind."""

    kind: str
    """`keep`, `write` or `answer`."""
    right: int
    kept: int
    """Replies whose first token is that of the keep word."""
    n: int


def measure_exact(lessons: Path, adapter: Path | None, *, limit: int | None = None) -> list[Exact]:
    """Counts exact replies by kind. Blocks: a minute for 150 lessons.

    Args:
        lessons: what `memagent_smol.lessons.write` wrote.
        adapter: the policy's adapter; None for the untrained model.
        limit: maximum lessons, from the first.

    Raises:
        ConfigError: the model or the adapter cannot be loaded.
    """
    model, tokenizer = load(str(smol_folder()), dtype="bfloat16", adapter=adapter)
    counter = text_counter(tokenizer)
    ids_of: Callable[[str], list[int]] = partial(tokenizer.encode, add_special_tokens=False)
    keep = ids_of(KEEP)[0]
    right, keeps, every = Counter[str](), Counter[str](), Counter[str]()
    for messages in _read(lessons, limit):
        prompt = counter.prompt_ids([Message(role="user", content=messages[0]["content"])])
        reply = [*ids_of(messages[-1]["content"]), tokenizer.eos_token_id]
        drawn = _draw_greedily(model, [*prompt, *reply], len(prompt))
        kind = _kind(messages)
        every[kind] += 1
        right[kind] += drawn == reply
        keeps[kind] += drawn[0] == keep
    return [Exact(kind, right[kind], keeps[kind], every[kind]) for kind in sorted(every)]


def _read(file: Path, limit: int | None) -> Iterator[Messages]:
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if number == limit:
                return
            yield json.loads(line)["messages"]


def _draw_greedily(model: Any, ids: list[int], start: int) -> list[int]:
    """Returns the likeliest id at each place from `start` on, each given all ids before it."""
    with torch.inference_mode():
        logits = model(
            torch.tensor([ids]), use_cache=False, logits_to_keep=len(ids) - start + 1
        ).logits
    return logits[0, :-1].argmax(-1).tolist()


def _kind(messages: Messages) -> str:
    if messages[0]["content"].rstrip().endswith(ANSWERS):
        return "answer"
    return "keep" if messages[-1]["content"] == KEEP else "write"
