"""Token counters. `load_counter` makes one from a path or a name."""

from memagent.tokens.base import Measured, TokenCounter
from memagent.tokens.byte_bound import ByteBound
from memagent.tokens.loading import load_counter
from memagent.tokens.local import TokenizerFile
from memagent.tokens.tik import Tiktoken

__all__ = ["ByteBound", "Measured", "Tiktoken", "TokenCounter", "TokenizerFile", "load_counter"]
