"""Answers of the notes, found in the document alone: by the names and numbers of a sentence, whatever its words."""

from __future__ import annotations

import re

NAME = re.compile(r"\b[BDFGKLMNPRSTVZ][aeiou](?:[bdfgklmnprstvz][aeiou])+\b")
SENTENCE = re.compile(r"[^.]+\.")


def solve(text: str, question: str) -> str | None:
    """Reads all notes in order; None where something that is needed was not said."""
    coins: dict[str, int] = {}
    signs: dict[str, str] = {}
    masters: dict[str, str] = {}
    for note in SENTENCE.findall(text):
        names = NAME.findall(note)
        if len(names) == 2:
            # Of two names the first is the servant's, unless the sentence turns round.
            servant, master = names if turned(note) else names[::-1]
            masters[servant] = master
        elif names and re.search(r" (?:One more|another) coin", f" {note}"):
            if names[0] in coins:
                coins[names[0]] += 1
        elif names and re.search(r"\d+ coins", note):
            coins[names[0]] = int(re.findall(r"\d+", note)[0])
        elif names:
            signs[names[0]] = note.rstrip(".").split()[-1]
    asked = NAME.findall(question)
    if len(asked) == 2:
        return ", ".join(str(coins.get(name, "?")) for name in asked)
    if "sign" in question or "stands" in question:
        return signs.get(asked[0])
    if re.search("master|works|serves", question):
        asked = [masters.get(asked[0], "")]
    found = coins.get(asked[0])
    return None if found is None else str(found)


def turned(note: str) -> bool:
    """Whether the servant stands before the master."""
    return not re.search("whom .* serves", note)
