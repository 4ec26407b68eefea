"""Hidden texts; each guess reveals only a little."""

from __future__ import annotations

import random
import re
from typing import Self

from memagent.errors import ToolError
from memagent.texts import quote
from memagent_bench.games.base import Deal, Game, query, within
from memagent_bench.games.experts import Notes, numbers
from memagent_bench.games.transcript import Call, call

LETTERS, LENGTH = "abcd", 5
DIGITS, PLACES = "12345", 4
TRIES = 9.06
"""Tries that the expert needs for a safe, on average over all codes."""
TRIED = re.compile(r"Safe (\d+): (\d) of \d digits of (\d+) are right\.")
OPENED = re.compile(r"Safe (\d+) opens at (\d+): (\d+) coins\.")


class Words(Game):
    """Find out hidden words letter by letter: 11 questions a word."""

    name = "words"

    def _deal(self, rng: random.Random, difficulty: int) -> Deal:
        self._words: list[str] = []
        budget = difficulty
        while budget > 0:
            text = "".join(rng.choices(LETTERS, k=LENGTH))
            guesses = sum(min(LETTERS.index(letter) + 1, len(LETTERS) - 1) for letter in text)
            if self._words and guesses // 2 > budget:
                break
            self._words.append(text)
            budget -= guesses
        total = sum(LETTERS.index(letter) + 1 for text in self._words for letter in text)
        task = (
            f"There are {len(self._words)} hidden words, each of {LENGTH} letters from a to {LETTERS[-1]}. An a is "
            "worth 1, a b 2, a c 3, a d 4. What are all letters of all words worth together?"
        )
        return Deal(task, str(total))

    @query
    def begins(self, word: int, text: str) -> str:
        """Tells whether a word begins with a text. Words are numbered from 1."""
        hidden = self._words[within("word", word, len(self._words))]
        if not 1 <= len(text) <= LENGTH or set(text) - set(LETTERS):
            raise ToolError(
                f"text has to be 1 to {LENGTH} letters from a to {LETTERS[-1]}, not {quote(text)}"
            )
        verb = "begins" if hidden.startswith(text) else "does not begin"
        return f"Word {word} {verb} with {text}."


class WordsNotes(Notes):
    """The current word as far as known, the letter to try next, and the score of the words before it."""

    words: int
    word: int = 1
    known: str = ""
    letter: int = 0
    worth: int = 0

    @classmethod
    def start(cls, task: str) -> Self:
        """See `Notes.start`."""
        return cls(words=numbers(r"There are (\d+) hidden words", task)[0])

    def next(self) -> Call | str:
        """Tries the next letter behind what is known."""
        if self.word > self.words:
            return str(self.worth)
        return call("begins", word=self.word, text=self.known + LETTERS[self.letter])

    def fold(self, result: str) -> Self | None:
        """Adds the letter if it was right, or if it is the only one left."""
        text = self.known + LETTERS[self.letter]
        if result == f"Word {self.word} begins with {text}.":
            return self._grow(self.letter)
        if result != f"Word {self.word} does not begin with {text}.":
            return None
        last = len(LETTERS) - 1
        return self._grow(last) if self.letter + 1 == last else self.but(letter=self.letter + 1)

    def _grow(self, letter: int) -> Self:
        letters, worth = self.known + LETTERS[letter], self.worth + letter + 1
        if len(letters) < LENGTH:
            return self.but(known=letters, letter=0, worth=worth)
        return self.but(word=self.word + 1, known="", letter=0, worth=worth)


class Safes(Game):
    """Break the codes of safes that tell how many digits are right: 9 tries a safe."""

    name = "safes"

    def _deal(self, rng: random.Random, difficulty: int) -> Deal:
        count = max(1, round(difficulty / TRIES))
        self._safes = [
            ("".join(rng.choices(DIGITS, k=PLACES)), rng.randint(1, 99)) for _ in range(count)
        ]
        task = (
            f"There are {count} safes, each with a code of {PLACES} digits from 1 to {DIGITS[-1]}. A safe that is "
            "opened shows its coins. How many coins are in all safes together?"
        )
        return Deal(task, str(sum(coins for _, coins in self._safes)))

    @query
    def dial(self, safe: int, code: str) -> str:
        """Tries a code at a safe, and tells how many of its digits are right. Safes are numbered from 1."""
        right, coins = self._safes[within("safe", safe, len(self._safes))]
        if len(code) != PLACES or set(code) - set(DIGITS):
            raise ToolError(
                f"code has to be {PLACES} digits from 1 to {DIGITS[-1]}, not {quote(code)}"
            )
        if code == right:
            return f"Safe {safe} opens at {code}: {coins} coins."
        places = sum(a == b for a, b in zip(code, right, strict=True))
        return f"Safe {safe}: {places} of {PLACES} digits of {code} are right."


class SafesNotes(Notes):
    """The current safe: known digits, the digit tried in the next place, right digits with a 1 there; and the sum."""

    safes: int
    safe: int = 1
    known: str = ""
    digit: int = 0
    right: int = -1
    """-1: not asked yet."""
    coins: int = 0

    @classmethod
    def start(cls, task: str) -> Self:
        """See `Notes.start`."""
        return cls(safes=numbers(r"There are (\d+) safes", task)[0])

    def next(self) -> Call | str:
        """Tries a digit in the first unknown place, followed by ones."""
        if self.safe > self.safes:
            return str(self.coins)
        return call("dial", safe=self.safe, code=self._code())

    def fold(self, result: str) -> Self | None:
        """Compares the count of right digits with the count for a 1 in that place."""
        if match := OPENED.fullmatch(result):
            if (int(match[1]), match[2]) != (self.safe, self._code()):
                return None
            fresh = self.but(safe=self.safe + 1, coins=self.coins + int(match[3]))
            return fresh.but(known="", digit=0, right=-1)
        match = TRIED.fullmatch(result)
        if match is None or (int(match[1]), match[3]) != (self.safe, self._code()):
            return None
        right = int(match[2])
        if self.right < 0:
            return self.but(digit=1, right=right)
        if right < self.right:
            return self.but(known=self.known + DIGITS[0], digit=1)
        if right > self.right:
            return self.but(known=self.known + DIGITS[self.digit], digit=1, right=right)
        if self.digit + 2 < len(DIGITS):
            return self.but(digit=self.digit + 1)
        # It is none of the others; with it in place, one more digit is right.
        return self.but(known=self.known + DIGITS[-1], digit=1, right=right + 1)

    def _code(self) -> str:
        trial = self.known + DIGITS[self.digit]
        return trial[:PLACES].ljust(PLACES, DIGITS[0])
