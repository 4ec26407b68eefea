"""`Rules` play a shift instead of a model: they know what the messages contain, and nothing else.

Everything is read from text, whoever wrote it and however a framework passes it on: original results, results in the
prompt of a summary, summaries. What isn't there is forgotten: a ticket that isn't shown is read again, a fact that
isn't shown is missing in the answer, and without the task the rules don't know what to do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from memagent.messages import Message
from memagent_bench.shift.shift import DEFAULT

LOST = "I do not know what the task is."
"""The reply if the messages show neither the task nor a summary that contains it."""
NAMED = "For the review: {name} is {value}."
TASK = re.compile(r"There are (\d+) tickets on this shift")
READ = re.compile(r"Ticket (\d+) is (\w+) and (open|blocked)\.")
CLOSED = re.compile(r"Ticket (\d+) is closed on channel ")
WROTE = re.compile(r"Ticket (\d+) is closed on channel \S+ Wrote (\S+) for the review\.")
FACT = re.compile(r"For the review: ([\w ]+) is (\S+)\.")
DECISION = re.compile(r"Decision at ticket (\d+): from here on (\w+) tickets go to channel (\S+)\.")
UP_TO = re.compile(r"All tickets up to (\d+) are dealt with\.")
PENDING = re.compile(r"Pending: ([\d, ]+)\.")
REVIEW = re.compile(r"The review asks for ([^;]+); and, as a list of numbers, for pending\.")
AT_ONCE = (1, 2, 3)
"""How many tickets are read in one reply, and closed in the next; cycled."""


class Wish(NamedTuple):
    """A call to make."""

    name: str
    arguments: dict[str, Any]


@dataclass
class Knowledge:
    """What texts say about a shift."""

    tickets: int | None = None
    """Number of tickets; None if the task isn't shown."""
    floor: int = 0
    """Tickets up to this one are done, according to a summary."""
    read: dict[int, tuple[str, bool]] = field(default_factory=dict[int, tuple[str, bool]])
    """Ticket -> its colour, and whether it is blocked; only tickets shown."""
    closed: set[int] = field(default_factory=set[int])
    facts: dict[str, str] = field(default_factory=dict[str, str])
    decisions: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    """Colour and first ticket that the decision applies to -> the channel."""
    pending: set[int] = field(default_factory=set[int])
    asked: tuple[str, ...] | None = None
    """What the review asks for; None if the review isn't shown."""

    def add(self, other: Knowledge) -> None:
        """Adds what another text says."""
        self.tickets = other.tickets or self.tickets
        self.floor = max(self.floor, other.floor)
        self.read |= other.read
        self.closed |= other.closed
        self.facts |= other.facts
        self.decisions |= other.decisions
        self.pending |= other.pending
        self.asked = other.asked or self.asked

    def holds(self, name: str, value: str) -> bool:
        """Returns whether something that a shift told (`Shift.told`) is known."""
        if name.startswith("pending "):
            return int(name.removeprefix("pending ")) in self.pending
        if name.startswith("the channel of "):
            colour = name.removeprefix("the channel of ")
            return self._channel(colour, self.tickets or 10**9) == value
        return self.facts.get(name) == value

    def next(self) -> list[Wish] | str:
        """Returns the calls to make, or the answer."""
        if self.tickets is None:
            return LOST
        for first, last in _groups(self.tickets, max((self.floor, *self.read, *self.closed))):
            group = range(first, last + 1)
            if missing := [n for n in group if not self._dealt(n) and n not in self.read]:
                return [Wish("read_ticket", {"ticket": n}) for n in missing]
            if waiting := [n for n in group if not self._dealt(n)]:
                return [
                    Wish(
                        "close_ticket", {"ticket": n, "channel": self._channel(self.read[n][0], n)}
                    )
                    for n in waiting
                ]
        if self.asked is None:
            return [Wish("review", {})]
        answer: dict[str, Any] = {name: self.facts.get(name, "unknown") for name in self.asked}
        return json.dumps({**answer, "pending": sorted(self.pending)})

    def summary(self) -> str:
        """Returns all that matters later, in a few lines however long the work is."""
        lines: list[str] = []
        if self.tickets:
            lines.append(
                f"Task: There are {self.tickets} tickets on this shift; read and close them in order, blocked ones "
                f"stay pending, then call review and answer it with one JSON object."
            )
            groups = _groups(self.tickets, max((self.floor, *self.read, *self.closed)))
            first = next(groups, (self.tickets + 1, 0))[0]
            lines.append(f"All tickets up to {first - 1} are dealt with.")
            for number in sorted(n for n in {*self.read, *self.closed} if n >= first):
                if number in self.closed:
                    lines.append(f"Ticket {number} is closed on channel {DEFAULT}.")
                else:
                    colour, blocked = self.read[number]
                    state = "blocked" if blocked else "open"
                    lines.append(f"Ticket {number} is {colour} and {state}.")
        if self.pending:
            lines.append(f"Pending: {', '.join(map(str, sorted(self.pending)))}.")
        for (colour, ticket), channel in sorted(self.decisions.items()):
            decision = f"Decision at ticket {ticket}: from here on {colour} tickets go to channel"
            lines.append(f"{decision} {channel}.")
        lines += (NAMED.format(name=name, value=value) for name, value in self.facts.items())
        return "\n".join(lines) or "Nothing is known yet."

    def _dealt(self, ticket: int) -> bool:
        blocked = self.read.get(ticket, ("", False))[1]
        return ticket <= self.floor or ticket in self.closed or ticket in self.pending or blocked

    def _channel(self, colour: str, ticket: int) -> str:
        places = [place for place in self.decisions if place[0] == colour and place[1] <= ticket]
        return self.decisions[max(places)] if places else DEFAULT


def read_messages(messages: Sequence[Message]) -> Knowledge:
    """Combines what all messages say. A call with a result was made, even if the result's text was removed."""
    knowledge = Knowledge()
    calls = {call.id: call for message in messages for call in message.tool_calls}
    for message in messages:
        knowledge.add(_read(message.content))
        call = calls.get(message.tool_call_id or "")
        if call is not None and call.name == "close_ticket" and "failed" not in message.content:
            ticket = call.values().get("ticket")
            knowledge.closed |= {ticket} if isinstance(ticket, int) else set()
    return knowledge


def _groups(tickets: int, reached: int) -> Iterator[tuple[int, int]]:
    """Yields first and last ticket of each group that is handled together, from the one reached on."""
    first, turn = 1, 0
    while first <= tickets:
        last = min(tickets, first + AT_ONCE[turn % len(AT_ONCE)] - 1)
        if last >= reached:
            yield first, last
        first, turn = last + 1, turn + 1


# The history is read again for each reply.
@lru_cache(maxsize=8192)
def _read(text: str) -> Knowledge:
    knowledge = Knowledge()
    if match := TASK.search(text):
        knowledge.tickets = int(match[1])
    knowledge.floor = max((int(n) for n in UP_TO.findall(text)), default=0)
    for number, colour, state in READ.findall(text):
        knowledge.read[int(number)] = (colour, state == "blocked")
        knowledge.pending |= {int(number)} if state == "blocked" else set()
    knowledge.closed = {int(number) for number in CLOSED.findall(text)}
    knowledge.facts = dict(FACT.findall(text))
    knowledge.facts |= {
        f"the file of ticket {number}": path for number, path in WROTE.findall(text)
    }
    for number, colour, channel in DECISION.findall(text):
        knowledge.decisions[colour, int(number)] = channel
    for listed in PENDING.findall(text):
        knowledge.pending |= {int(number) for number in listed.split(",")}
    if match := REVIEW.search(text):
        knowledge.asked = tuple(match[1].split(", "))
    return knowledge
