"""Answers of the tracking tasks, found in the document alone: by other means than those that made it."""

from __future__ import annotations

import re
from collections.abc import Callable


def ledger(text: str, question: str) -> str | None:
    balances: dict[str, str] = {}
    for entry in re.finditer(r"Ledger entry: [^.]*\.", text):
        found = re.search(r"account (\w+)", entry[0]), re.search(r"(\d{6}) crowns", entry[0])
        assert found[0]
        assert found[1]
        balances[found[0][1]] = found[1][1]
    names = re.search(r"accounts ([\w, ]+)\?", question)
    assert names
    return ", ".join(balances.get(name, "?") for name in re.split(r", | and ", names[1]))


def counter(text: str, question: str) -> str | None:
    asked = re.search(r"counter (\w+) at", question)
    assert asked
    value = None
    for note in re.finditer(rf"Counter note: [^.]*\b{asked[1]}\b[^.]*\.", text):
        number = re.search(r"\d+", note[0])
        assert number
        if "starts" in note[0]:
            value = int(number[0])
        elif value is not None:
            value += int(number[0]) * (-1 if "taken" in note[0] or "down" in note[0] else 1)
    return None if value is None else str(value)


def chain(text: str, question: str) -> str | None:
    after: dict[str, str] = {}
    for note in re.finditer(r"Trail note: [^.]*\.", text):
        marks = re.findall(r"waymark ([A-Z]\w+)", note[0])
        if "number" in note[0]:
            after[marks[0]] = re.findall(r"\d+", note[0])[0]
        else:
            first, second = marks
            after |= {first: second} if "from" in note[0] else {second: first}
    asked = re.search(r"from waymark (\w+) to", question)
    place: str | None = asked[1] if asked else None
    while place is not None and not place.isdigit():
        place = after.get(place)
    return place


def tally(text: str, question: str) -> str | None:
    asked = re.search(r"report a (\w+)\?", question)
    assert asked
    return str(len(re.findall(rf"Field log: [^.]*\b{asked[1]}\b", text)))


def facts(text: str, question: str) -> str | None:
    at: dict[str, str] = {}
    """Person or thing -> place."""
    holder: dict[str, str] = {}
    verbs = "went to|walked over to|picked up|took|put down|left"
    for fact in re.finditer(rf"\b(Imke|Tadeo|Oluchi|Keiko) ({verbs}) the (\w+)", text):
        who, verb, what = fact.groups()
        if verb in ("went to", "walked over to"):
            at[who] = what
        elif verb in ("picked up", "took"):
            assert what not in holder
            assert at.get(what, at[who]) == at[who], "a thing is taken where it lies"
            holder[what] = who
        else:
            assert holder.pop(what) == who
            at[what] = at[who]
    asked = re.search(r"Where is (?:the )?(\w+) at the end", question)
    assert asked
    return at.get(holder.get(asked[1], asked[1]))


SOLVERS: dict[str, Callable[[str, str], str | None]] = {
    "ledger": ledger,
    "counter": counter,
    "chain": chain,
    "tally": tally,
    "facts": facts,
}
