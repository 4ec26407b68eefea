"""SGLang (checked with 0.5.23)."""

from __future__ import annotations

from memagent.models.dialects.base import Dialect, Fields


def _pattern(regex: str) -> Fields:
    return {"regex": regex}


SGLANG = Dialect(
    "sglang",
    owner="sglang",
    version=("/server_info", "version"),
    switches_thinking=True,
    pattern=_pattern,
    continues={"continue_final_message": True},
    want_tokens={"return_token_ids": True, "logprobs": True},
    streams_tokens=False,
    any_name=True,
    tokenize=True,
)
