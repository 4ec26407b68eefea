"""What tests of the log have in common: a run in a temporary store, and an ear for its events."""

from collections import deque

from memagent import RunStore
from memagent.events import Event, Retried
from memagent.run.log import Log

HEARD = Retried(chunk=None, reason="heard")
"""An event like any other."""


class Heard:
    """Keeps the events that are handed out."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    async def hand_out(self, events: deque[Event]) -> None:
        while events:
            self.events.append(events.popleft())

    @property
    def reasons(self) -> list[str]:
        """Why calls were sent again."""
        return [event.reason for event in self.events if event.type == "retried"]


def temporary() -> RunStore:
    """A temporary store with run r1."""
    store = RunStore(None)
    store.create("r1", {"agent": "tools", "questions": ["task"]}, {}, {})
    return store


def session(store: RunStore) -> tuple[Log, Heard]:
    """The log of run r1 as a new session has it."""
    heard = Heard()
    return Log(store, "r1", heard), heard
