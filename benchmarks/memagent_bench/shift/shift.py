"""`Shift`: tickets to handle in order, dealt from a seed, and the questions of the review at the end."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, cast

from pydantic import Field

from memagent.errors import ToolError
from memagent.messages import Leaf
from memagent.texts import read_object
from memagent_bench.games.base import Deal, Game, act, query, within

COLOURS = ("amber", "blue", "green", "grey")
DEFAULT = "main"
"""Channel of a colour without a decision."""
RECALLED = {
    "the id of the vault": "{0:08x}-{1:04x}",
    "the path of the backup": "/var/backup/{1:04x}/{0:08x}.img",
    "the number of the vendor": "{0}",
    "the host of the mirror": "mirror-{1:04x}.internal",
}
"""Facts that tickets mention in passing, and the form of their values."""
ARTIFACTS = 3
BLOCKED = 4
"""Maximum number of blocked tickets: what must be remembered doesn't grow with the work."""
EARLY = 0.3
"""Share of the tickets, from the first, that contains everything asked for at the end."""
LINES = (8, 32)
"""Minimum and maximum lines of a ticket's log: some 150 to 600 tokens."""
HUGE_CHARS = 200_000
HOSTS = ("edge", "queue", "store", "batch")
EVENTS = (
    "moved a shard and went back to its queue",
    "closed a socket that nobody had used for a while",
    "read a block again, and the checksum was right",
    "sent its batch after the second attempt",
    "waited for a lock that another worker held",
)


class Probes(Leaf):
    """What was retained, each as a share from 0 to 1."""

    recall: float = Field(ge=0, le=1)
    """Of the ids, paths and numbers that tickets mentioned in passing, the share in the answer."""
    artifacts: float = Field(ge=0, le=1)
    """Of the files that closing a ticket wrote for the review, the share in the answer."""
    continuation: float = Field(ge=0, le=1)
    """Of all tickets, the share closed exactly once, or left alone and named as pending in the answer."""
    decisions: float = Field(ge=0, le=1)
    """Of the tickets whose colour had a decision, the share closed on the channel decided."""


class Ticket(NamedTuple):
    """One ticket, and how it should be handled."""

    colour: str
    channel: str
    """The right channel."""
    decided: bool
    """Whether that channel comes from a decision."""
    blocked: bool
    log: str
    wrote: str | None
    """File that closing it writes for the review."""
    told: Mapping[str, str]
    """Names and values in its text that matter later."""


class Shift(Game):
    """Work off n tickets, then answer the review: n / 2 tickets."""

    name = "shift"
    huge: ClassVar[bool] = False
    """Whether the log of one ticket is larger than any window."""

    def _deal(self, rng: random.Random, difficulty: int) -> Deal:
        blocked_count = max(1, min(BLOCKED, difficulty // 20))
        count = (difficulty - 1 + blocked_count) // 2
        early = range(max(4, int(count * EARLY)))
        facts = dict(zip(rng.sample(early, len(RECALLED)), RECALLED, strict=True))
        blocked = {rng.choice(early), *rng.sample(range(count), blocked_count - 1)}
        open_early = [n for n in early if n not in blocked]
        writing = set(rng.sample(open_early, ARTIFACTS))
        colours = rng.sample(COLOURS, 2)
        # Each colour gets an early decision, and one of them another halfway.
        decided = dict(zip(rng.sample(range(max(2, count // 10)), 2), colours, strict=True))
        decided[count // 2] = colours[0]
        large = int(count * 0.4) if self.huge else -1
        channels: dict[str, str] = {}
        self._tickets: list[Ticket] = []
        for number in range(count):
            values: dict[str, str] = {}
            lines = _log(rng)
            if name := facts.get(number):
                values[name] = RECALLED[name].format(rng.getrandbits(32), rng.getrandbits(16))
                lines.insert(
                    rng.randrange(len(lines)), f"For the review: {name} is {values[name]}."
                )
            if colour := decided.get(number):
                channels[colour] = f"{rng.choice(('north', 'south', 'east'))}-{rng.randint(10, 99)}"
                values[f"the channel of {colour}"] = channels[colour]
                decision = (
                    f"Decision at ticket {number + 1}: from here on {colour} tickets go to channel "
                )
                lines.insert(rng.randrange(len(lines)), f"{decision}{channels[colour]}.")
            if number == large:
                lines += _log(rng, HUGE_CHARS)
            ticket_colour = rng.choice(COLOURS)
            wrote = f"/srv/shift/{number + 1:05}-{rng.getrandbits(16):04x}.tar"
            self._tickets.append(
                Ticket(
                    ticket_colour,
                    channels.get(ticket_colour, DEFAULT),
                    ticket_colour in channels,
                    number in blocked,
                    "\n".join(lines),
                    wrote if number in writing else None,
                    values,
                )
            )
        self.told: dict[str, str] = {}
        """What must be remembered from the results so far: names and values, the newest of each."""
        self.probes: Probes | None = None
        """None until there is an answer."""
        self._closed: list[list[str]] = [[] for _ in range(count)]
        self._asked = {
            name: value
            for ticket in self._tickets
            for name, value in ticket.told.items()
            if name in RECALLED
        }
        self._asked |= {_file(n): t.wrote for n, t in enumerate(self._tickets) if t.wrote}
        task = (
            f"There are {count} tickets on this shift, numbered from 1. Work them off in order: read each, then close "
            f"it on the channel of its colour, which is {DEFAULT} unless a decision in a ticket says otherwise. Leave "
            f"blocked tickets pending. What tickets tell for the review, the files that are written for it and the "
            f"pending tickets are asked for at the end. After the last ticket call `review`, and answer with one JSON "
            f"object."
        )
        return Deal(task, "")

    @query
    def read_ticket(self, ticket: int) -> str:
        """Reads a ticket: its colour, whether it is open or blocked, and its log."""
        entry = self._tickets[within("ticket", ticket, len(self._tickets))]
        self.told |= entry.told
        state = "blocked. Leave it pending" if entry.blocked else "open"
        if entry.blocked:
            self.told[f"pending {ticket}"] = "yes"
        return f"Ticket {ticket} is {entry.colour} and {state}.\n{entry.log}"

    @act
    def close_ticket(self, ticket: int, channel: str) -> str:
        """Closes an open ticket on a channel. This cannot be undone."""
        number = within("ticket", ticket, len(self._tickets))
        entry = self._tickets[number]
        if entry.blocked:
            raise ToolError(f"ticket {ticket} is blocked: leave it pending")
        self._closed[number].append(channel)
        wrote = ""
        if entry.wrote:
            self.told[_file(number)] = entry.wrote
            wrote = f" Wrote {entry.wrote} for the review."
        return f"Ticket {ticket} is closed on channel {channel}.{wrote}"

    @query
    def review(self) -> str:
        """Tells what the review asks for. Call it after the last ticket."""
        return (
            f"The review asks for {', '.join(self._asked)}; and, as a list of numbers, for pending."
        )

    @property
    def repeated(self) -> int:
        """Number of tickets closed more than once."""
        return sum(len(times) > 1 for times in self._closed)

    def _judge(self, answer: str) -> bool:
        """Returns whether everything was retained."""
        fields = read_object(answer) or {}
        names = {
            "recall": [*RECALLED],
            "artifacts": [name for name in self._asked if name.startswith("the file")],
        }
        shares = {
            what: sum(str(fields.get(name)) == self._asked[name] for name in of) / len(of)
            for what, of in names.items()
        }
        pending: Any = fields.get("pending")
        listed = cast("list[Any]", pending) if isinstance(pending, list) else []
        well = [
            (number + 1 in listed and not times) if ticket.blocked else len(times) == 1
            for number, (ticket, times) in enumerate(zip(self._tickets, self._closed, strict=True))
        ]
        decided = [
            {ticket.channel} == set(times)
            for ticket, times in zip(self._tickets, self._closed, strict=True)
            if ticket.decided and not ticket.blocked
        ]
        self.probes = Probes(
            **shares,
            continuation=sum(well) / len(well),
            decisions=sum(decided) / len(decided) if decided else 1.0,
        )
        return all(share == 1 for _, share in self.probes)


class HugeShift(Shift):
    """The same shift, with one ticket whose log has 200,000 characters."""

    name = "shift-huge"
    huge = True


SHIFTS: dict[str, type[Shift]] = {kind.name: kind for kind in (Shift, HugeShift)}
"""Shifts by name."""


def _file(number: int) -> str:
    return f"the file of ticket {number + 1}"


def _log(rng: random.Random, chars: int = 0) -> list[str]:
    """Returns irrelevant lines of a log, at least `chars` characters."""
    lines: list[str] = []
    least, length = rng.randint(*LINES), 0
    while len(lines) < least or length < chars:
        host = f"{rng.choice(HOSTS)}-{rng.randint(1, 40)}"
        line = f"{host}: {rng.choice(EVENTS)} ({rng.randrange(900)} ms)"
        lines.append(line)
        length += len(line) + 1
    return lines
