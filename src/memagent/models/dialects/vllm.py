"""vLLM (checked with 0.32)."""

from __future__ import annotations

from memagent.models.dialects.base import Dialect, Fields


def _pattern(regex: str) -> Fields:
    return {"structured_outputs": {"regex": regex}}


VLLM = Dialect(
    "vllm",
    owner="vllm",
    version=("/version", "version"),
    switches_thinking=True,
    pattern=_pattern,
    continues={"add_generation_prompt": False, "continue_final_message": True},
    want_tokens={"return_token_ids": True, "logprobs": True},
    tokenize=True,
)
