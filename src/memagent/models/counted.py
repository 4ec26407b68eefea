"""Another counter for a model: the wrapper behind `tokenizer=`."""

from __future__ import annotations

from os import PathLike

from memagent.models.base import ChatModel, Wrapper
from memagent.models.once import Once
from memagent.threads import in_thread
from memagent.tokens import load_counter
from memagent.tokens.base import TokenCounter


class Counted(Wrapper):
    """Counts with the tokenizer that it is given, instead of the wrapped model's own.

    Args:
        inner: the model to call.
        tokenizer: what `load_counter` takes; loaded on first use.
    """

    def __init__(self, inner: ChatModel, tokenizer: str | PathLike[str] | TokenCounter) -> None:
        super().__init__(inner)
        self._loaded = Once(lambda: in_thread(load_counter, tokenizer))

    async def counter(self) -> TokenCounter:
        """The counter that was given.

        Raises:
            TokenizerError: it cannot be had.
        """
        return await self._loaded.get()
