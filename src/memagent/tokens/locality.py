"""Where tokenisation can be resumed: points that split a text into independent halves.

Counting the tokens of every prefix from its start would make cutting quadratic. Byte-level tokenisers
first split text into words by a regular expression, so the tokens before a word boundary do not depend
on what follows, provided that the boundary remains one whatever surrounds it. Such a *stable point* is
a position p where text[p-1] is a letter and text[p] a separator, under these conditions:

- every alternative of the expression is listed below. None of them can match a letter together with
  a separator after it, none looks beyond that separator once it has matched the letter, and none looks
  back. So a match that contains text[p-1] ends at p, and matching restarts there.
- the normaliser is none or NFC. Under NFC the letters listed below never join with what stands before
  them, and the separators with nothing at all, so both halves are normalised as they would be alone.
- no added token contains a stable point, or strips the white space after one, and none requires word
  boundaries around it.

Then, for n >= p:  count(text[:n]) = count(text[:p]) + count(text[p:n]).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

_LETTERS = (
    "A-Za-zÀ-ÖØ-öø-ſ"
    "\u0391-\u03a1\u03a3-\u03c9\u0410-\u044f"  # Greek, Cyrillic
    "\u05d0-\u05ea\u0621-\u063a\u0641-\u064a\u0904-\u0939"  # Hebrew, Arabic, Devanagari
    "\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5\uac00-\ud7a3"  # kana, CJK ideographs, Hangul
)
_SEPARATORS = (
    ' \\t\\r\\n,.;!?"()…\u3001\u3002\uff0c\uff01\uff1f\uff1b\uff1a\u300c\u300d\uff08\uff09'
)
STABLE = re.compile(f"(?<=[{_LETTERS}])(?=[{_SEPARATORS}])")

_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = frozenset(
    {
        r" ?\p{L}+",  # GPT-2
        r"[^\r\n\p{L}\p{N}]?\p{L}+",  # cl100k, Llama 3, Qwen 2 and 3
        r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+",
        r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",  # DeepSeek V3
    }
)
"""Alternatives that match any letter by themselves: with one of them, no letter is left between matches."""
_CASED_WORDS = tuple(
    frozenset(
        rf"[^\r\n\p{{L}}\p{{N}}]?{word}{ending}"
        for word in (f"{_UPPER}*{_LOWER}+", f"{_UPPER}+{_LOWER}*")
    )
    for ending in (f"{_ENDING}?", "")
)
"""Pairs that together match any letter: o200k's, and Mistral's without endings."""
_OTHERS = frozenset(
    {
        *("'s", "'t", "'re", "'ve", "'m", "'ll", "'d", _ENDING),
        *(r"'(?:[sdmt]|ll|ve|re)", r"'(?i:[sdmt]|ll|ve|re)"),
        *(r" ?\p{N}+", r"\p{N}+", r"\p{N}", r"\p{N}{1,3}"),
        *(r" ?[^\s\p{L}\p{N}]+", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r" ?[^\s\p{L}\p{N}]+[\r\n/]*"),
        *(r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*", r" ?[\p{P}\p{S}]+[\r\n]*"),
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+""",
        "[一-龥\u3040-ゟ゠-ヿ]+",
        *(r"\s*[\r\n]+", r"\s*[\r\n]", r"\s+(?!\S)", r"\s+$", r"\s+", r"\s"),
    }
)
_ALL = _OTHERS.union(_WORDS, *_CASED_WORDS)
_PIECES = re.compile(r"\\.|.", re.DOTALL)
_QUANTIFIED = re.compile(r"(?<!\\)([+*?]|\{[\d,]+\})\Z")


def splits_at_stable_points(pattern: str) -> bool:
    """Returns whether a word-splitting expression always splits at stable points (see the module docstring)."""
    parts = frozenset(_alternatives(pattern))
    return parts <= _ALL and (bool(parts & _WORDS) or any(pair <= parts for pair in _CASED_WORDS))


def is_local(tokenizer: Mapping[str, Any]) -> bool:
    """Returns whether a tokeniser has stable points, judging from its tokenizer.json."""
    model = cast("Mapping[str, Any]", tokenizer.get("model") or {})
    if model.get("type", "BPE") != "BPE" or model.get("dropout"):
        return False
    normalizer = tokenizer.get("normalizer")
    if normalizer is not None and normalizer.get("type") != "NFC":
        return False
    for token in cast("Sequence[Mapping[str, Any]]", tokenizer.get("added_tokens") or ()):
        content = str(token["content"])
        renormalised = normalizer is not None and token.get("normalized") and not content.isascii()
        reaches = STABLE.search(content + (" " if token.get("rstrip") else ""))
        if token.get("single_word") or renormalised or reaches:
            return False
    # One step must split at stable points; the others must at least never match across one.
    splits = False
    config = cast("Mapping[str, Any]", tokenizer.get("pre_tokenizer") or {"type": "none"})
    for step in cast("Sequence[Mapping[str, Any]]", config.get("pretokenizers", (config,))):
        kind = step["type"]
        if kind == "Split":
            pattern = step["pattern"].get("Regex")
            removed = step["behavior"] == "Removed" and step.get("invert")
            if pattern is None or not (step["behavior"] == "Isolated" or removed):
                return False
            if splits_at_stable_points(pattern):
                splits = True
            elif removed or not _ALL.issuperset(_alternatives(pattern)):
                return False
        elif kind == "ByteLevel":
            if step.get("add_prefix_space"):
                return False
            splits = splits or step.get("use_regex", True)  # GPT-2's expression
        elif kind != "Digits":
            return False
    return splits


def _alternatives(pattern: str) -> Iterator[str]:
    """Splits an expression at its outermost `|`; possessive quantifiers are written as greedy ones."""
    depth, in_class, part = 0, False, ""
    for piece in _PIECES.findall(pattern):
        if in_class:
            in_class = piece != "]"
        elif piece == "[":
            in_class = True
        elif piece in ("(", ")"):
            depth += 1 if piece == "(" else -1
        elif piece == "|" and depth == 0:
            yield part
            part = ""
            continue
        elif piece == "+" and _QUANTIFIED.search(part):
            continue
        part += piece
    yield part
