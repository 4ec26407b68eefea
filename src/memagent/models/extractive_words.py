"""Sentences, words and word stems: what the extractive model compares."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from memagent.tokens.byte_bound import ByteBound

WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_PARAGRAPH = re.compile(r"\n\s*\n")
# Possessive, and tried only where a run of marks begins: a page of dots takes linear time.
_SENTENCE_END = re.compile(
    r"(?<![.!?…])[.!?…]++[\"'”’»)\]_]*+\s+|(?<![。！？])[。！？]++[”’」』）]*+\s*"
)
_OPENING = "\"'“‘«([_—- "
_SHORTENED = (
    "mr mrs ms dr st prof rev gen col capt lt sgt jr sr mme mlle messrs vs etc no vol fig cf"
)
_ABBREVIATIONS = frozenset(_SHORTENED.split())
"""After these a full stop ends no sentence. Single letters (initials) are treated alike."""


def sentences(text: str) -> list[str]:
    """The sentences of hard-wrapped prose, white space collapsed; a blank line ends one, too."""
    return [
        sentence
        for paragraph in _PARAGRAPH.split(text)
        for sentence in _split(" ".join(paragraph.split()))
    ]


def _split(paragraph: str) -> Iterator[str]:
    start = 0
    for end in _SENTENCE_END.finditer(paragraph):
        if _ends_sentence(paragraph, end):
            yield paragraph[start : end.end()].rstrip()
            start = end.end()
    if start < len(paragraph):
        yield paragraph[start:]


def _ends_sentence(paragraph: str, end: re.Match[str]) -> bool:
    # 20 characters hold any run of opening marks before a sentence's first word.
    following = paragraph[end.end() : end.end() + 20].lstrip(_OPENING)
    if following[:1].islower():
        return False
    if paragraph[end.start()] != ".":
        return True
    before = paragraph[max(0, end.start() - 12) : end.start()].rpartition(" ")[2].lstrip(_OPENING)
    return not (len(before) == 1 and before.isalpha()) and before.lower() not in _ABBREVIATIONS


def clip(text: str, limit: int) -> str:
    """The longest beginning of at most `limit` UTF-8 bytes, cut between words where there are any."""
    chars = ByteBound().measure(text).chars_within(limit)
    if chars >= len(text):
        return text
    kept = text[:chars]
    if not text[chars].isspace():
        kept = kept.rpartition(" ")[0] or kept
    return kept.rstrip()


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """One form for the forms of an English word, without case and accents.

    Light on purpose (married, marries, marriage -> marri): it compares the words of a question with those
    of a document, and both sides go through it. Other languages lose only case and accents, mostly.
    """
    folded = unicodedata.normalize("NFKD", word.casefold())
    word = "".join(c for c in folded if not unicodedata.combining(c)).replace("’", "'")
    word = word.removesuffix("'s").replace("'", "")
    word = _IRREGULAR.get(word, word)
    if len(word) > 3:
        word = _strip_suffixes(word)
    if len(word) > 1 and word[-1] == "y":
        return word[:-1] + "i"
    return word[:-1] if len(word) > 2 and word[-1] == "e" else word


def _strip_suffixes(word: str) -> str:
    if word.endswith("ies"):
        word = word[:-3] + "y"
    elif word.endswith(("sses", "xes", "ches", "shes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for suffix, least in _SUFFIXES:
        rest = word.removesuffix(suffix)
        if rest != word and len(rest) >= least and _VOWEL.search(rest):
            doubled = len(rest) > 3 and rest[-1] == rest[-2] and rest[-1] not in "lsz"
            return rest[:-1] if doubled and suffix in ("ed", "ing") else rest
    return word


_VOWEL = re.compile("[aeiouy]")
_SUFFIXES = (
    ("ingly", 3),
    ("edly", 3),
    ("ment", 4),
    ("ness", 3),
    ("ing", 3),
    ("age", 4),
    ("ion", 4),
    ("ed", 2),
    ("ly", 3),
    ("al", 5),
)
"""Suffixes and how many letters must be left: fewer would run different words together."""
_FORMS = """
    become became, begin began begun, bear bore born, break broke broken, bring brought, build built, buy
    bought, catch caught, choose chose chosen, die dying dead death deaths, drive drove driven, fall fell
    fallen, fight fought, find found, give gave given, go went gone, hear heard, hold held, keep kept, know knew
    known, lead led, leave left, lose lost loss losses, make made, man men, meet met, sell sold, send sent,
    shoot shot, speak spoke spoken, steal stole stolen, take took taken, teach taught, tell told, think thought,
    wear wore worn, wife wives, win won, woman women, write wrote written, child children
"""
"""Irregular words, each with its forms behind it."""
_IRREGULAR = {form: base for base, *forms in map(str.split, _FORMS.split(",")) for form in forms}
