"""Scores of an answer against its references, each in [0, 1]: benchmarks report them, rewards are made of them.

All are pure functions of texts. An empty answer scores 0. Texts that differ only in how Unicode composes a
character are equal; for ASCII each score is what its source says. Without references, or with a blank one, there
is nothing to score against, and each raises `ConfigError`.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal

from memagent.errors import ConfigError

Scorer = Callable[[str, Sequence[str]], float]
"""Answer and references -> [0, 1]."""

CONTROL = re.compile(r"[\x00-\x1f]")
ARTICLES = re.compile(r"\b(?:a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)
"""ASCII's only, as SQuAD's."""
NUMBER = re.compile(
    r"(?<![\w.])[-+\u2212]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?!\d)", flags=re.ASCII
)
"""A number with its sign, `1,234` and `1234.50` alike; digits inside a word or a longer number are none."""
MEMBERS = re.compile(r"\band\b|(?<!\d),|,(?!\d{3}(?!\d))|[;\n]", flags=re.IGNORECASE)
"""Where a list is divided. The comma of `1,234` is none of them."""
MARKER = re.compile(r"^\s*(?:[-*•]|\(?\d{1,2}[.)])\s+")
"""What stands before a member in a list with bullets or numbers."""


def plain(text: str) -> str:
    """Lower case, control characters as line feeds (RULER's post-processing)."""
    return CONTROL.sub("\n", unicodedata.normalize("NFC", text.lower())).strip()


def squad(text: str) -> str:
    """SQuAD's normalisation: lower case; no ASCII punctuation, no articles; single spaces.

    A text of nothing but articles or punctuation keeps them, where SQuAD's script would leave nothing: two
    such texts are not the same answer, and nothing is contained in everything.

    Source: evaluation script of Rajpurkar et al., arXiv 1606.05250.
    """
    lower = unicodedata.normalize("NFC", text.lower())
    bare = lower.translate(PUNCTUATION)
    words = ARTICLES.sub(" ", bare).split() or bare.split() or lower.split()
    return " ".join(words)


def numbers(text: str) -> list[Decimal]:
    """The numbers of a text, in order."""
    found = (match.group() for match in NUMBER.finditer(text))
    return [Decimal(number.replace(",", "").replace("\u2212", "-")) for number in found]


def string_match_all(answer: str, references: Sequence[str]) -> float:
    """Share of the references that the answer contains, in any case: RULER's score of all tasks but QA.

    Source: RULER (arXiv 2404.06654), `string_match_all`: mean over r of [lower(r) in lower(answer)].
    """
    text = plain(answer)
    wanted = _check(references)
    return sum(plain(reference) in text for reference in wanted) / len(wanted)


def string_match_part(answer: str, references: Sequence[str]) -> float:
    """1 if the answer contains any of the references, in any case: RULER's score of QA.

    Source: RULER (arXiv 2404.06654), `string_match_part`: max over r of [lower(r) in lower(answer)].
    """
    text = plain(answer)
    return float(any(plain(reference) in text for reference in _check(references)))


def sub_exact_match(answer: str, references: Sequence[str]) -> float:
    """1 if, normalised, a reference lies in the answer or the answer lies in a reference. Very lenient.

    As published it looks for characters, not words: `no` lies in `unknown`. `exact_match` and `f1` do not.

    Source: MemAgent's long-QA metric (arXiv 2507.02259). There an answer of nothing lies in every reference;
    here it scores 0.
    """
    text = squad(answer)
    wanted = [squad(reference) for reference in _check(references)]
    return float(bool(text) and any(gold in text or text in gold for gold in wanted))


def exact_match(answer: str, references: Sequence[str]) -> float:
    """1 if, normalised, the answer is one of the references.

    Source: SQuAD (arXiv 1606.05250), maximum over references; see `squad` for the one departure.
    """
    text = squad(answer)
    return float(any(squad(reference) == text for reference in _check(references)))


def f1(answer: str, references: Sequence[str]) -> float:
    """2PR / (P + R) of the words that answer and reference share, each as often as both have it.

    P is their share of the answer's words, R of the reference's. Source: SQuAD (arXiv 1606.05250), maximum over
    references.
    """
    words = squad(answer).split()
    best = 0.0
    for gold in (squad(reference).split() for reference in _check(references)):
        shared = (Counter(words) & Counter(gold)).total()
        best = max(best, 2 * shared / (len(words) + len(gold)))
    return best


def equivalent(answer: str, references: Sequence[str]) -> float:
    """1 if the answer is equivalent to any of the references: max over y of [y = answer].

    Two numbers are equivalent where their values are (`1,000` and `1000.0`, not `3.0` and `30`, which SQuAD's
    normalisation makes one), other texts where their normalised forms are. Source: Eq. 6 of MemAgent
    (arXiv 2507.02259), its reward where several answers are as good.
    """
    text = _value(answer)
    return float(any(_value(reference) == text for reference in _check(references)))


def set_recall(answer: str, references: Sequence[str]) -> float:
    """|predicted & gold| / |gold|: share of the wanted values that the answer lists.

    Both sides are divided at commas, semicolons, line breaks and the word "and"; members are compared
    normalised, in any order, each once. Source: Eq. 7 of MemAgent (arXiv 2507.02259), its reward where all
    values are required. Listing everything would satisfy it: see `set_precision`.
    """
    gold = _members(_check(references))
    return len(_members([answer]) & gold) / len(gold)


def set_precision(answer: str, references: Sequence[str]) -> float:
    """|predicted & gold| / |predicted|: share of what the answer lists that is wanted; members as in `set_recall`."""
    gold, predicted = _members(_check(references)), _members([answer])
    return len(predicted & gold) / len(predicted) if predicted else 0.0


def number_match(answer: str, references: Sequence[str]) -> float:
    """1 if the last (or only) number of the answer is that of a reference, compared by value.

    The last, because answers that show their work end with the result. Digits of a longer number do not count.

    Raises:
        ConfigError: a reference is no number.
    """
    wanted: list[list[Decimal]] = []
    for reference in _check(references):
        wanted.append(numbers(reference))
        if len(wanted[-1]) != 1:
            raise ConfigError(f"reference {reference!r} of number_match has to be one number")
    return float(numbers(answer)[-1:] in wanted)


SCORERS: dict[str, Scorer] = {
    "string_match_all": string_match_all,
    "string_match_part": string_match_part,
    "sub_exact_match": sub_exact_match,
    "exact_match": exact_match,
    "f1": f1,
    "equivalent": equivalent,
    "set_recall": set_recall,
    "set_precision": set_precision,
    "number_match": number_match,
}


def _check(references: Sequence[str]) -> list[str]:
    if isinstance(references, str):
        raise ConfigError(f"references={references!r} is one text; give a list, [{references!r}]")
    if not references or not all(plain(reference) for reference in references):
        raise ConfigError(f"references={references!r}: a score needs at least one, none blank")
    return list(references)


def _value(text: str) -> str | Decimal:
    found = NUMBER.fullmatch(text.strip().removesuffix("."))
    return numbers(found.group())[0] if found else squad(text)


def _members(texts: Sequence[str]) -> set[str]:
    members: set[str] = set()
    for text in texts:
        parts = {squad(MARKER.sub("", part)) for part in MEMBERS.split(text)} - {""}
        members |= parts or {squad(text)} - {""}
    return members
