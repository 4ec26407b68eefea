"""Logs whose entries change what earlier ones said, and jobs that wait for earlier ones."""

from __future__ import annotations

import random
import re
from typing import Self

from memagent_bench.games.base import Deal, Game, query, within
from memagent_bench.games.experts import Notes, numbers, word
from memagent_bench.games.transcript import Call, call
from memagent_bench.games.words import ROOMS, make_names

PEOPLE = 6
ENTRY = re.compile(r"Entry (\d+): (?:(\w+) goes to the (\w+)|(\w+) and (\w+) swap places)\.")
JOB = re.compile(r"Job (\d+) takes (\d+) hours and waits for (no job|jobs? [\d and]+)\.")
REACH = 5
"""Maximum number of jobs back that a job may wait for."""


class Rooms(Game):
    """Read n entries on who goes where; the last one on each counts."""

    name = "rooms"

    def _deal(self, rng: random.Random, difficulty: int) -> Deal:
        people = sorted(make_names(rng, PEOPLE))
        where = {name: rng.choice(ROOMS) for name in people}
        first = "; ".join(f"{name} in the {room}" for name, room in where.items())
        self._entries: list[str] = []
        for _ in range(difficulty):
            person, other = rng.sample(people, 2)
            if rng.random() < 0.4:
                where[person], where[other] = where[other], where[person]
                self._entries.append(f"{person} and {other} swap places")
            else:
                where[person] = rng.choice(ROOMS)
                self._entries.append(f"{person} goes to the {where[person]}")
        target_room = where[rng.choice(people)]
        answer = ", ".join(name for name in people if where[name] == target_room)
        task = (
            f"A log of {difficulty} entries, numbered from 1, tells who goes where. At first there are {first}. Who is "
            f"in the {target_room} at the end? The answer is the names, by the alphabet: bako, dimu."
        )
        return Deal(task, answer)

    @query
    def entry(self, number: int) -> str:
        """Reads an entry of the log."""
        return f"Entry {number}: {self._entries[within('entry', number, len(self._entries))]}."


class RoomsNotes(Notes):
    """Where everyone is, after the entries read so far."""

    asked: str
    entries: int
    at: int = 1
    where: dict[str, str]

    @classmethod
    def start(cls, task: str) -> Self:
        """See `Notes.start`."""
        first = word(r"At first there are ([a-z; ]+)\.", task)
        where = dict(part.split(" in the ") for part in first.split("; "))
        entries = numbers(r"A log of (\d+) entries", task)[0]
        return cls(asked=word(r"is in the (\w+) at the end", task), entries=entries, where=where)

    def next(self) -> Call | str:
        """Reads the next entry."""
        if self.at > self.entries:
            return ", ".join(sorted(n for n, room in self.where.items() if room == self.asked))
        return call("entry", number=self.at)

    def fold(self, result: str) -> Self | None:
        """Applies the entry's move."""
        match = ENTRY.fullmatch(result)
        if match is None or int(match[1]) != self.at:
            return None
        _, name, room, person, other = match.groups()
        moved = {name: room} if name else {person: self.where[other], other: self.where[person]}
        return self.but(at=self.at + 1, where=self.where | moved)


class Schedule(Game):
    """Read n jobs that wait for some of the five before them, and say when all are done."""

    name = "schedule"

    def _deal(self, rng: random.Random, difficulty: int) -> Deal:
        ends: list[int] = []
        self._jobs: list[str] = []
        for job in range(difficulty):
            near = range(max(0, job - REACH), job)
            needs = sorted(rng.sample(near, min(len(near), rng.choice((0, 1, 1, 2)))))
            hours = rng.randint(1, 9)
            ends.append(hours + max((ends[need] for need in needs), default=0))
            listed = " and ".join(str(need + 1) for need in needs)
            waits = f"{'jobs' if len(needs) > 1 else 'job'} {listed}" if needs else "no job"
            self._jobs.append(f"Job {job + 1} takes {hours} hours and waits for {waits}.")
        task = (
            f"There are {difficulty} jobs, numbered 1 to {difficulty}. Each begins as soon as the jobs that it waits "
            f"for, some of the {REACH} before it, are done; any number run at the same time. After how many hours are "
            "all jobs done?"
        )
        return Deal(task, str(max(ends)))

    @query
    def job(self, number: int) -> str:
        """Tells how long a job takes, and what it waits for."""
        return self._jobs[within("job", number, len(self._jobs))]


class ScheduleNotes(Notes):
    """When the last five jobs end, and when all jobs read so far are done."""

    jobs: int
    at: int = 1
    ends: tuple[int, ...] = ()
    done: int = 0

    @classmethod
    def start(cls, task: str) -> Self:
        """See `Notes.start`."""
        return cls(jobs=numbers(r"There are (\d+) jobs", task)[0])

    def next(self) -> Call | str:
        """Asks for the next job."""
        return str(self.done) if self.at > self.jobs else call("job", number=self.at)

    def fold(self, result: str) -> Self | None:
        """Ends the job after those it waits for."""
        match = JOB.fullmatch(result)
        if match is None or int(match[1]) != self.at:
            return None
        needs = [self.ends[int(need) - self.at] for need in re.findall(r"\d+", match[3])]
        end = int(match[2]) + max(needs, default=0)
        ends = (*self.ends, end)[-REACH:]
        return self.but(at=self.at + 1, ends=ends, done=max(self.done, end))
