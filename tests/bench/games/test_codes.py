"""Hidden words and the codes of safes."""

from __future__ import annotations

import json
from itertools import product

import pytest
from tests.bench.games.forgetting import call, told

from memagent.tools import Toolset
from memagent_bench.games.codes import (
    DIGITS,
    LENGTH,
    LETTERS,
    PLACES,
    TRIES,
    Safes,
    SafesNotes,
    Words,
)
from memagent_bench.games.transcript import Call


def tries(code: str) -> int:
    """Tries that the expert needs for one safe."""
    notes, count = SafesNotes(safes=1), 0
    while not isinstance(notes.next(), str):
        wish = notes.next()
        assert isinstance(wish, Call)
        trial = json.loads(wish.arguments)["code"]
        right = sum(a == b for a, b in zip(trial, code, strict=True))
        hint = f"Safe 1: {right} of 4 digits of {trial} are right."
        after = notes.fold(f"Safe 1 opens at {trial}: 7 coins." if trial == code else hint)
        assert after is not None
        notes, count = after, count + 1
    assert notes.next() == "7"
    return count


def test_every_code_is_found_and_the_average_is_what_is_reckoned_with() -> None:
    counts = [tries("".join(code)) for code in product(DIGITS, repeat=PLACES)]
    assert max(counts) <= 14
    assert sum(counts) / len(counts) == pytest.approx(TRIES, abs=0.01)


async def test_a_safe_tells_how_many_digits_are_right() -> None:
    game = Safes(seed=0, difficulty=30)
    tools = Toolset(game.tools)
    coins, code = 0, ""
    for safe in range(1, int(game.task.split()[2]) + 1):
        codes = map("".join, product(DIGITS, repeat=PLACES))
        texts = {code: await told(game, "dial", safe=safe, code=code) for code in codes}
        ((code, text),) = ((code, text) for code, text in texts.items() if "opens" in text)
        assert text.startswith(f"Safe {safe} opens at {code}: ")
        coins += int(text.split()[-2])
    other = code[:3] + ("1" if code[3] != "1" else "2")
    text = (await tools.run(call("dial", safe=safe, code=other))).text
    assert text == f"Safe {safe}: 3 of 4 digits of {other} are right."
    for bad in ("123", "12345", "1236", "", "１２３４"):
        assert "code has to be 4 digits" in (await tools.run(call("dial", safe=1, code=bad))).text
    assert game.finish(str(coins))


async def test_words_are_told_apart_by_their_beginnings() -> None:
    game = Words(seed=0, difficulty=60)
    tools = Toolset(game.tools)
    worth = 0
    for number in range(1, int(game.task.split()[2]) + 1):
        asked = {"".join(text): number for text in product(LETTERS, repeat=LENGTH)}
        outputs = [(await tools.run(call("begins", word=n, text=t))).text for t, n in asked.items()]
        found = [text for text in outputs if " begins with " in text]
        assert len(found) == 1
        worth += sum(LETTERS.index(letter) + 1 for letter in found[0][:-1].split()[-1])
    assert game.finish(str(worth))


@pytest.mark.parametrize("text", ["", "e", "A", "aaaaaa", "a b"])
async def test_texts_of_other_letters_are_refused(text: str) -> None:
    output = await Toolset(Words(seed=0, difficulty=60).tools).run(
        call("begins", word=1, text=text)
    )
    assert "text has to be 1 to 5 letters" in output.text
