"""What tests of the log have in common: a run in a temporary store, and an ear for its events."""

from memagent import RunStore
from memagent.events import Event, Retried
from memagent.run.log import Log, Outlet

HEARD = Retried(chunk=None, reason="heard")
"""An event like any other."""


class Heard(Outlet):
    """Keeps the events that are handed out, and takes each at once."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []

    def put_nowait(self, item: Event | None) -> None:
        if item is not None:
            self.events.append(item)

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
