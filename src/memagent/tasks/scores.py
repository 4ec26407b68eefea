"""Scores of an answer against its references, each in [0, 1], for benchmarks and rewards.

All are pure functions of texts. An empty answer scores 0. Texts that differ only in how Unicode composes a character
are equal; for ASCII each score matches its source. Without references, or with a blank one, each raises `ConfigError`.
"""

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
"""ASCII only, as in SQuAD."""
NUMBER = re.compile(
    r"(?<![a-zA-Z\d.])(?<![a-zA-Z\d]_)[-+\u2212]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?!\d)",
    flags=re.ASCII,
)
"""A number with its sign, such as `1,234` or `1234.50`; digits inside a word or a longer number don't match."""
MORE = re.compile(r"[^\W_]|[-+\u2212]")
"""What makes a text with one number more than that number; marks such as those of money or bold type don't."""
MEMBERS = re.compile(r"\band\b|(?<!\d),|,(?!\d{3}(?!\d))|[;\n]", flags=re.IGNORECASE)
"""Separators of a list; the comma in `1,234` isn't one."""
MARKER = re.compile(r"^\s*(?:[-*•]|\(?\d{1,2}[.)])\s+")
"""The bullet or number before a list item."""


def plain(text: str) -> str:
    """Lower-cases, and turns control characters into line feeds (RULER's post-processing)."""
    return CONTROL.sub("\n", unicodedata.normalize("NFC", text.lower())).strip()


def squad(text: str) -> str:
    """Normalises like SQuAD: lower case; no ASCII punctuation, no articles; single spaces.

    A text of nothing but articles or punctuation keeps them, unlike in SQuAD's script, which would leave nothing: two
    such texts are different answers, and the empty text is contained in every text.

    Source: evaluation script of Rajpurkar et al., arXiv 1606.05250.
    """
    lower = unicodedata.normalize("NFC", text.lower())
    bare = lower.translate(PUNCTUATION)
    words = ARTICLES.sub(" ", bare).split() or bare.split() or lower.split()
    return " ".join(words)


def numbers(text: str) -> list[Decimal]:
    """Finds the numbers of a text, in order."""
    texts = (match.group() for match in NUMBER.finditer(text))
    return [Decimal(number.replace(",", "").replace("\u2212", "-")) for number in texts]


def string_match_all(answer: str, references: Sequence[str]) -> float:
    """Returns the share of the references that the answer contains, in any case: RULER's score of all tasks but QA.

    Source: RULER (arXiv 2404.06654), `string_match_all`: mean over r of [lower(r) in lower(answer)].
    """
    text = plain(answer)
    targets = _check(references)
    return sum(plain(reference) in text for reference in targets) / len(targets)


def string_match_part(answer: str, references: Sequence[str]) -> float:
    """Returns 1 if the answer contains any of the references, in any case: RULER's score of QA.

    Source: RULER (arXiv 2404.06654), `string_match_part`: max over r of [lower(r) in lower(answer)].
    """
    text = plain(answer)
    return float(any(plain(reference) in text for reference in _check(references)))


def sub_exact_match(answer: str, references: Sequence[str]) -> float:
    """Returns 1 if, normalised, a reference is contained in the answer or vice versa. Very lenient.

    As published, it compares characters, not words: `unknown` contains `no`. `exact_match` and `f1` compare words.

    Source: MemAgent's long-QA metric (arXiv 2507.02259). There every reference contains the empty answer;
    here it scores 0.
    """
    text = squad(answer)
    targets = [squad(reference) for reference in _check(references)]
    return float(bool(text) and any(gold in text or text in gold for gold in targets))


def exact_match(answer: str, references: Sequence[str]) -> float:
    """Returns 1 if, normalised, the answer is one of the references.

    Source: SQuAD (arXiv 1606.05250), maximum over references; see `squad` for the one difference.
    """
    text = squad(answer)
    return float(any(squad(reference) == text for reference in _check(references)))


def f1(answer: str, references: Sequence[str]) -> float:
    """Returns 2PR / (P + R) of the words that answer and reference share, as a multiset.

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
    """Returns 1 if the answer is equivalent to any of the references: max over y of [y = answer].

    Two numbers are equivalent if their values are equal, with marks or articles around them or not (`the **1,000**` and
    `1000.0`, but not `3.0` and `30`, which SQuAD's normalisation conflates), other texts if their normalised forms are.
    Source: Eq. 6 of MemAgent (arXiv 2507.02259), its reward for questions with several acceptable answers.
    """
    text = _value(answer)
    return float(any(_value(reference) == text for reference in _check(references)))


def set_recall(answer: str, references: Sequence[str]) -> float:
    """Returns |predicted & gold| / |gold|: the share of the required values that the answer lists.

    Both sides are split at commas, semicolons, line breaks and the word "and"; members are compared without list
    markers as in `equivalent`, in any order, each once. Source: Eq. 7 of MemAgent (arXiv 2507.02259), its reward if
    all values are required. Listing everything would satisfy it: see `set_precision`.
    """
    gold = _members(_check(references))
    return len(_members([answer]) & gold) / len(gold)


def set_precision(answer: str, references: Sequence[str]) -> float:
    """Returns |predicted & gold| / |predicted|: the share of listed values that are required; see `set_recall`."""
    gold, predicted = _members(_check(references)), _members([answer])
    return len(predicted & gold) / len(predicted) if predicted else 0.0


def number_match(answer: str, references: Sequence[str]) -> float:
    """Returns 1 if the last (or only) number in the answer equals a reference, compared by value.

    The last, because answers that show their work end with the result. Digits within a longer number don't count.

    Raises:
        ConfigError: a reference is not a number.
    """
    reference_values = {reference: numbers(reference) for reference in _check(references)}
    for reference, values in reference_values.items():
        if len(values) != 1:
            raise ConfigError(f"number_match needs one number as reference, got {reference!r}")
    return float(numbers(answer)[-1:] in reference_values.values())


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
        raise ConfigError(f"references={references!r} is one text; give [{references!r}]")
    if not references or not all(plain(reference) for reference in references):
        raise ConfigError(f"references={references!r}: give at least one, none blank")
    return list(references)


def _value(text: str) -> str | Decimal:
    values, rest = numbers(text), ARTICLES.sub("", NUMBER.sub("_", text.lower()))
    return values[0] if len(values) == 1 and not MORE.search(rest) else squad(text)


def _members(texts: Sequence[str]) -> set[str | Decimal]:
    members: set[str | Decimal] = set()
    for text in texts:
        parts = {_value(MARKER.sub("", part)) for part in MEMBERS.split(text)} - {""}
        members |= parts or {_value(text)} - {""}
    return members
