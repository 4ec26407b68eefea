"""Cuts a text that is over its token limit: at a sentence end, or down to its head and tail."""

from memagent.chunking.cuts import grapheme_floor, last_sentence_end, next_grapheme
from memagent.tokens.base import TokenCounter


def within(
    text: str, limit: int, counter: TokenCounter, *, cut_off: bool = False
) -> tuple[str, int, int]:
    """Cuts a text at a sentence end within its token limit. Blocks.

    A sentence end in the first half is ignored in favour of a word end (else of a grapheme): a list without full stops
    would lose nearly everything (ADR 0006). A text that was `cut_off` already loses its last, incomplete sentence.

    Returns:
        The text, its tokens (at most `limit`), and how many tokens it had before.
    """
    measurement = counter.measure(text)
    total = measurement.tokens
    if total <= limit and not cut_off:
        return text, total, total
    chars = len(text) if total <= limit else measurement.chars_within(limit)
    while True:
        # With the space, a full stop at the very end counts as the end of a sentence.
        end = last_sentence_end(text + " ", chars)
        if end <= chars // 2:
            word = max(text.rfind(space, chars // 2, chars) for space in " \n\t")
            end = word if word > 0 else grapheme_floor(text, chars)
        prefix = text[:end].rstrip()
        tokens = counter.count(prefix)
        if tokens <= limit:
            return prefix, tokens, total
        chars = end - 1


def ends(text: str, limit: int, counter: TokenCounter, *, tail: bool = True) -> tuple[int, int]:
    """Finds which characters to leave out so that the rest fits `limit` tokens, which the whole text doesn't. Blocks.

    What remains is two texts, counted separately, a third of it from the end; without `tail`, only the beginning.

    Returns:
        First and one past the last character to leave out, both at grapheme boundaries.
    """
    limit = max(limit, 0)
    last = len(text)
    if tail and limit:
        measurement = counter.measure(text)
        share = limit // 3
        chars = len(text) * share // max(measurement.tokens, 1)
        # A tail can't be measured from its end: start with its average length, and shorten it until it fits.
        while chars and counter.count(text[len(text) - chars :]) > share:
            chars = chars * 3 // 4
        last = grapheme_floor(text, len(text) - chars)
        while last < len(text) and counter.count(text[last:]) > share:
            candidate = grapheme_floor(text, last + 1 + (len(text) - last) // 4)
            last = candidate if candidate > last else next_grapheme(text, last)
        limit -= counter.count(text[last:])
    chars = min(last, counter.measure(text[:last]).chars_within(limit))
    first = grapheme_floor(text, chars)
    while first and counter.count(text[:first]) > limit:
        first = grapheme_floor(text, first - 1)
    return first, last
