from typing import get_args

import pytest
from pydantic import ValidationError

from memagent import events
from memagent.events import MemoryUpdated, Stopped, event_adapter
from memagent.messages import Usage
from memagent.trajectory import StopReason

KINDS = get_args(get_args(events.Event)[0])


def test_every_event_has_a_type_of_its_own_and_a_docstring() -> None:
    types = [kind.model_fields["type"].default for kind in KINDS]
    assert len(set(types)) == len(types) == 10
    assert all(kind.__doc__ for kind in KINDS)


def test_events_survive_json_as_what_they_are() -> None:
    for event in (
        MemoryUpdated(seq=3, question=1, chunk=2, memory="M", tokens=1, usage=Usage(calls=1)),
        Stopped(reason=StopReason.LIMIT, detail="3 calls", usage=Usage()),
    ):
        assert event_adapter.validate_json(event.model_dump_json()) == event


def test_an_unknown_event_is_refused() -> None:
    with pytest.raises(ValidationError):
        event_adapter.validate_json('{"type": "something_new"}')
