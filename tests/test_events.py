from typing import get_args

import pytest
from pydantic import ValidationError

from memagent import events
from memagent.compaction import Change, Compaction
from memagent.events import (
    Acted,
    Compacted,
    MemoryUpdated,
    Stopped,
    ToolInterrupted,
    ToolReturned,
    event_adapter,
)
from memagent.messages import ToolCall, Usage
from memagent.trajectory import StopReason

CALL = ToolCall(id="c1", name="look", arguments='{"item": 1}')
LEFT = Change(turn=3, what="summarised", tokens_before=90, tokens_after=0, handle="t0")
COMPACTION = Compaction(
    tiers=("summary",), changes=(LEFT,), tokens_before=900, tokens_after=300, stage=1, summary="S"
)
KINDS = get_args(get_args(events.Event)[0])


def test_every_event_has_a_type_of_its_own_and_a_docstring() -> None:
    types = [kind.model_fields["type"].default for kind in KINDS]
    assert len(set(types)) == len(types) == 19
    assert all(kind.__doc__ for kind in KINDS)


def test_events_survive_json_as_what_they_are() -> None:
    for event in (
        MemoryUpdated(seq=3, question=1, chunk=2, memory="M", tokens=1, usage=Usage(calls=1)),
        Stopped(reason=StopReason.LIMIT, detail="3 calls", usage=Usage()),
        Acted(step=1, text="So", calls=(CALL,), prompt_tokens=9, usage=Usage(calls=1)),
        ToolReturned(step=1, call=CALL, output="item 1", ok=True, neutralised=2),
        ToolInterrupted(step=1, call=CALL),
        Compacted(step=2, compaction=COMPACTION),
    ):
        assert event_adapter.validate_json(event.model_dump_json()) == event


def test_an_unknown_event_is_refused() -> None:
    with pytest.raises(ValidationError):
        event_adapter.validate_json('{"type": "something_new"}')
