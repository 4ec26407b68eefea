"""A stored run as data for the page, updated as often as needed."""

from collections.abc import Iterator
from typing import Any

from memagent.cli.progress import Tally
from memagent.cli.runs import is_session, questions_of, status_of
from memagent.cli.show import list_facts
from memagent.runstore import RunStore
from memagent.runstore.records import flatten
from memagent_viewer.reading import Reading
from memagent_viewer.session import Session

TOLD = {"agent", "questions", "model", "counter", "budget", "tools.names", "protocol", "branch"}
"""Parts of a binding that `list_facts` tells."""


class View:
    """One run of a store.

    Args:
        store: where the run is kept.
        run_id: the run's id.

    Raises:
        RunNotFound: there is no run with that id.
    """

    def __init__(self, store: RunStore, run_id: str) -> None:
        self._store, self.record = store, store.get(run_id)
        questions = questions_of(self.record)
        self._tally = Tally(questions)
        self._events = Session(questions[0]) if is_session(self.record) else Reading(questions)
        self._seq, self._status = -1, ""

    def update(self) -> bool:
        """Reads what has been committed since the last call; returns whether there was anything new."""
        record = self.record = self._store.get(self.record.id)
        old_state = self._seq, self._status
        for event in self._store.events(record.id, self._seq):
            self._tally.add(event)
            self._events.add(event)
            self._seq = event.seq
        self._status = status_of(self._store, record)
        return old_state != (self._seq, self._status)

    def data(self) -> dict[str, Any]:
        """Returns plain data: facts about the run, then what `Reading` or `Session` makes of its events.

        `store` is the option that names its store in a command. `payments` are seconds since the run was created, calls
        and tokens.
        """
        record = self.record
        payments = [
            (
                round(time - record.created, 2),
                usage.calls,
                usage.prompt_tokens + usage.completion_tokens,
            )
            for time, usage in self._store.payments(record.id)
        ]
        return {
            "id": record.id,
            "kind": "session" if is_session(record) else "reading",
            "status": self._status,
            "store": self._store.option,
            "facts": [
                *list_facts(self._store, record, self._tally),
                *_list_settings(record.binding),
            ],
            "payments": payments,
            **self._events.data(),
        }

    def texts(self) -> Iterator[tuple[str, str]]:
        """Yields keys and texts that the page unpacks when they are viewed, the most wanted first."""
        for key in self._events.effects():
            if (text := self.text(key)) is not None:
                yield key, text

    def text(self, key: str) -> str | None:
        """Returns the text of a chunk (`chunk-3`) or of a tool's output (`tool-3-0`); None if there is none."""
        body = self._store.effect(self.record.id, key)
        return None if body is None else body["text"]


def _list_settings(binding: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields what else the run is bound to, as names and values: two runs may differ in it."""
    for name, value in flatten(binding).items():
        if value not in (None, "") and TOLD.isdisjoint((name, name.partition(".")[0])):
            yield name, str(value)
