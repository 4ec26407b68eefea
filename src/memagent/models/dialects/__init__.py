"""What each kind of server takes and gives beyond the common ground."""

from __future__ import annotations

from memagent.models.dialects.base import Dialect, DialectName
from memagent.models.dialects.plain import OPENAI, PLAIN
from memagent.models.dialects.sglang import SGLANG
from memagent.models.dialects.vllm import VLLM

DIALECTS: dict[DialectName, Dialect] = {d.name: d for d in (PLAIN, OPENAI, VLLM, SGLANG)}
"""All that are known, by name. A server that gives none of them away is spoken to plainly."""


def owned_by(owner: str | None) -> Dialect | None:
    """The dialect of a server whose models are `owned_by` somebody, None where that says nothing."""
    return next((d for d in DIALECTS.values() if d.owner is not None and d.owner == owner), None)


__all__ = ["DIALECTS", "Dialect", "DialectName", "owned_by"]
