"""Token counters of other kinds than GPT-2's."""

from collections.abc import Sequence
from functools import cache

from tiktoken import Encoding

from memagent.messages import Message
from memagent.tokens import Measured, Tiktoken, TokenCounter
from memagent_bench.length_tokens import gpt2


class Quarters:
    """A token for each four characters, begun or full: tokens of parts do not add up to those of the whole."""

    name = "quarters"
    control_tokens = frozenset[str]()

    def count(self, text: str) -> int:
        return -(-len(text) // 4)

    def count_messages(
        self, messages: Sequence[Message], *, thinking: bool | None = None, tools: object = ()
    ) -> int:
        return sum(self.count(message.content) for message in messages)

    def measure(self, text: str) -> Measured:
        raise NotImplementedError


@cache
def line_ends() -> TokenCounter:
    """Splits as the tokenizers of GPT-4, Llama 3 and Qwen do: a sign takes the line ends after it."""
    known = gpt2()
    ranks = {known.decode_single_token_bytes(rank): rank for rank in range(known.eot_token)}
    pattern = (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*"
        r"|\s*[\r\n]|\s+(?!\S)|\s+"
    )
    # A token that GPT-2 lacks: the tokenizer has to want to keep sign and line end together.
    for text in (b".\n", b"!\n", b"?\n", b".\n\n"):
        ranks[text] = len(ranks)
    return Tiktoken(
        Encoding("line-ends", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    )
