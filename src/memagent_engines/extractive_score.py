"""Splits text into sentences and word stems, and scores how well a sentence may answer a question."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from memagent.texts import ITEM
from memagent.tokens.byte_bound import ByteBound

WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_PARAGRAPH = re.compile(r"\n\s*\n")
# Possessive, and tried only at the start of a run of marks: a page of dots takes linear time.
_SENTENCE_END = re.compile(
    r"(?<![.!?…])[.!?…]++[\"'”’»)\]_]*+\s+|(?<![。！？])[。！？]++[”’」』）]*+\s*"
)
_OPENING = "\"'“‘«([_—- "
_ITEM = re.compile(rf"[-*+•–(]?\s*(?:{ITEM})")
_SHORTENED = (
    "mr mrs ms dr st prof rev gen col capt lt sgt jr sr mme mlle messrs vs etc no vol fig cf"
)
_ABBREVIATIONS = frozenset(_SHORTENED.split())
"""Words whose full stop doesn't end a sentence. Single letters (initials) are treated alike."""


def sentences(text: str) -> list[str]:
    """Splits hard-wrapped prose into sentences, with white space collapsed; a blank line also ends one."""
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
    # 20 characters are enough for any run of opening marks before a sentence's first word.
    next_text = paragraph[end.end() : end.end() + 20].lstrip(_OPENING)
    if next_text[:1].islower():
        return False
    if paragraph[end.start()] != ".":
        return True
    if _ITEM.fullmatch(paragraph, 0, end.start()):
        return False
    word = paragraph[max(0, end.start() - 12) : end.start()].rpartition(" ")[2].lstrip(_OPENING)
    return not (len(word) == 1 and word.isalpha()) and word.lower() not in _ABBREVIATIONS


def clip(text: str, limit: int) -> str:
    """Returns the longest prefix of at most `limit` UTF-8 bytes, cut between words if there are any."""
    chars = ByteBound().measure(text).chars_within(limit)
    if chars >= len(text):
        return text
    prefix = text[:chars]
    if not text[chars].isspace():
        prefix = prefix.rpartition(" ")[0] or prefix
    return prefix.rstrip()


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """Stems an English word, ignoring case and accents.

    Light on purpose (married, marries, marriage -> marri): both the question's and the document's words
    go through it. In other languages it mostly just drops case and accents.
    """
    letters = unicodedata.normalize("NFKD", word.casefold())
    word = "".join(c for c in letters if not unicodedata.combining(c)).replace("’", "'")
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
        root = word.removesuffix(suffix)
        if root != word and len(root) >= least and _VOWEL.search(root):
            is_doubled = len(root) > 3 and root[-1] == root[-2] and root[-1] not in "lsz"
            return root[:-1] if is_doubled and suffix in ("ed", "ing") else root
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
"""Suffixes, and how many letters must remain: with fewer, different words would coincide."""
_FORMS = """
    become became, begin began begun, bear bore born, break broke broken, bring brought, build built, buy
    bought, catch caught, choose chose chosen, die dying dead death deaths, drive drove driven, fall fell
    fallen, fight fought, find found, give gave given, go went gone, hear heard, hold held, keep kept, know knew
    known, lead led, leave left, lose lost loss losses, make made, man men, meet met, sell sold, send sent,
    shoot shot, speak spoke spoken, steal stole stolen, take took taken, teach taught, tell told, think thought,
    wear wore worn, wife wives, win won, woman women, write wrote written, child children
"""
"""Irregular words, each followed by its forms."""
_IRREGULAR = {form: base for base, *forms in map(str.split, _FORMS.split(",")) for form in forms}


NAME_WEIGHT = 2.0
COMMON_WEIGHT = 0.6
"""Weight of words that could occur in most questions and so say little about this one."""
LONG_WORD = 10
"""Length in letters from which a word has twice the weight of a very short one: long words are rare."""
EXPECTED_BONUS = 0.4
"""Bonus for a sentence that contains the kind of thing asked for (a date, a place), as a share of all weights."""
QUESTION_FACTOR = 0.6
"""Factor for sentences that are questions, which seldom answer one."""
EASY_WORDS = 30
"""Words that a sentence may have before its length lowers its score: about an average sentence in a novel."""
LENGTH_SCALE = 120
"""Words beyond `EASY_WORDS` that halve a score."""
NEAR = 12
"""Words between two matches at which they count as half unrelated."""

_STOP_WORDS = """
    a about after all also am an and any are as at be because been before being but by can could did do does
    doing during each for from had has have having he her hers him himself his how i if in into is it its
    just many may me might more most much must my no not of on one or our out over own said shall she should
    so some such than that the their them then there these they this those to too under until up upon very
    was we were what when where which while who whom whose why will with would you your
"""
_COMMON_WORDS = """
    become begin call character come day do find first get give go happen have hold keep kind know last leave
    like long make man name new old part people person place say see speak take tell thing think time use
    want way woman work year book novel story text document describe mention according
"""
_STOP = frozenset(map(stem, _STOP_WORDS.split()))
_COMMON = frozenset(map(stem, _COMMON_WORDS.split()))
_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_DATE = re.compile(rf"\b1\d\d\d\b|\b20\d\d\b|\b(?:{_MONTHS})\b")
_TIME = re.compile(
    r"\d|\b(?:spring|summer|autumn|winter|morning|evening|night|midnight|noon|o[’']clock|yesterday"
    r"|Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday|week|month|years?|days?|Easter|Christmas)\b"
)
_NUMBER = re.compile(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|twenty|thirty|forty|fifty"
    r"|sixty|seventy|eighty|ninety|hundred|thousand|million|dozen|half)\b",
    re.IGNORECASE,
)
_PLACE = re.compile(r"\b(?:in|at|near|from|to|into|on|outside)\s+(?:the\s+)?[A-ZÀ-Þ]")
_REASON = re.compile(r"\b(?:because|since|for|therefore|so that|owing|in order)\b", re.IGNORECASE)
_EXPECTED = {"where": _PLACE, "number": _NUMBER, "why": _REASON}
_NAME = re.compile(r"(?<=[a-z,;] )[A-ZÀ-Þ][^\W\d_]{2,}")
"""Matches a capitalised word inside a sentence."""


@dataclass(frozen=True)
class Question:
    """A question, parsed once for scoring many sentences."""

    weights: dict[str, float]
    """Weight of each content word, by stem."""
    asks: str
    """Kind of answer: `when`, `where`, `who`, `number`, `why`, or empty."""

    @classmethod
    def parse(cls, text: str) -> Question:
        """Parses a question into content words, names among them, and the kind of answer it wants."""
        weights: dict[str, float] = {}
        for match in WORD.finditer(text):
            word, root = match.group(), stem(match.group())
            if root in _STOP:
                continue
            # The first word of a sentence is capitalised without being a name.
            lead = text[: match.start()].rstrip("\"'“”‘’() \n")
            opens = not lead or lead[-1] in ".!?"
            weight = 1 + min(len(root), LONG_WORD) / LONG_WORD
            if word[0].isupper() and not opens:
                weight = max(weight, NAME_WEIGHT)
            elif root in _COMMON:
                weight = COMMON_WEIGHT
            weights[root] = max(weight, weights.get(root, 0.0))
        return cls(weights=weights, asks=_kind(text))

    def score(self, sentence: str) -> float:
        """Returns how likely the sentence is to answer; 0 if it has no content word of the question.

        `sum of the weights of distinct matches * (0.5 + their share of all weights) * nearness`, plus a bonus
        for the expected kind of answer, proportional to that share; less for long sentences and questions.
        """
        words = WORD.findall(sentence)
        matches = [(i, root) for i, root in enumerate(map(stem, words)) if root in self.weights]
        if not matches:
            return 0.0
        total = sum(self.weights.values())
        match_weight = sum(
            self.weights[root] for root in dict.fromkeys(root for _, root in matches)
        )
        share = match_weight / total
        score = match_weight * (0.5 + share) * self._nearness(matches)
        score += EXPECTED_BONUS * total * share * share * self._score_kind(sentence)
        if sentence.rstrip("\"'”’ ").endswith("?"):
            score *= QUESTION_FACTOR
        return score / (1 + max(0, len(words) - EASY_WORDS) / LENGTH_SCALE)

    def _nearness(self, matches: list[tuple[int, str]]) -> float:
        """Returns 1 if the distinct matches are adjacent, approaching 0.5 the farther apart they are."""
        distinct = len({root for _, root in matches})
        if distinct == 1:
            return 1.0
        last_seen: dict[str, int] = {}
        tightest = matches[-1][0] - matches[0][0] + 1
        for place, root in matches:
            last_seen[root] = place
            if len(last_seen) == distinct:
                tightest = min(tightest, place - min(last_seen.values()) + 1)
        gap = (tightest - distinct) / (distinct - 1)
        return 0.5 + 0.5 / (1 + gap / NEAR)

    def _score_kind(self, sentence: str) -> float:
        """Returns from 0 to 1 how well the sentence contains the kind of thing asked for."""
        if self.asks == "when":
            return 1.0 if _DATE.search(sentence) else 0.4 * bool(_TIME.search(sentence))
        if self.asks == "who":
            names = (stem(name) for name in _NAME.findall(sentence))
            return float(any(name not in self.weights for name in names))
        pattern = _EXPECTED.get(self.asks)
        return float(pattern is not None and pattern.search(sentence) is not None)


_KINDS = {
    "number": r"\bhow (?:many|much|old|long|far|often)\b|\bwhat (?:number|age)\b",
    "when": r"\bwhen\b|\b(?:what|which) (?:year|month|day|date|century|season)\b",
    "where": r"\bwhere\b|\b(?:what|which) (?:city|town|place|country|village)\b",
    "who": r"\bwho(?:m|se)?\b",
    "why": r"\bwhy\b",
}


def _kind(question: str) -> str:
    kinds = (k for k, pattern in _KINDS.items() if re.search(pattern, question, re.IGNORECASE))
    return next(kinds, "")
