"""A tool session as data for the page: messages, steps with their calls, and what each compaction removed."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from memagent import events
from memagent.cli.history import TIERS, format_call, tell, tell_neutralised, turns_of
from memagent.compaction import Change, Compaction
from memagent.messages import ToolCall
from memagent.texts import repair_surrogates
from memagent_viewer.deltas import find_delta
from memagent_viewer.reading import cost

HEAD = 600
"""Characters of a tool's output that the page shows; the whole text is unpacked when someone opens it."""
INTERRUPTED = "interrupted: it may have had its effect, so it was not repeated"


class Session:
    """Collects the events of a tool session; `data` returns what the page needs of them."""

    def __init__(self, task: str) -> None:
        self._task = task
        self._events: list[events.Event] = []

    def add(self, event: events.Event) -> None:
        """Adds one event."""
        self._events.append(event)

    def data(self) -> dict[str, Any]:
        """Returns plain data: `items` in order, each with its `type`."""
        return {"items": _Items(self._task, self._events).items}

    def effects(self) -> Iterator[str]:
        """Yields the effects with outputs that the page shows only in part, the latest first."""
        for item in reversed(self.data()["items"]):
            for call in item.get("calls", ()):
                if call["more"]:
                    yield call["key"]


class _Items:
    """Builds the list of items in one pass."""

    def __init__(self, task: str, found: list[events.Event]) -> None:
        self._turns = turns_of(found)
        misread_steps = {
            step for step, next_step in pairwise(self._turns) if step == next_step >= 0
        }
        self._misread, self._summary = misread_steps, ""
        self._steps: dict[int, dict[str, Any]] = {}
        self.items: list[dict[str, Any]] = [{"type": "message", "number": 0, "text": task}]
        for event in found:
            self._add(event)

    def _add(self, event: events.Event) -> None:
        match event:
            case events.MessageSent():
                self.items.append({"type": "message", "number": event.number, "text": event.text})
                if event.tools is not None:
                    names = ", ".join(event.tools)
                    self.items.append({"type": "note", "text": f"tools from here on: {names}"})
            case events.Acted():
                self._act(event)
            case events.ToolInterrupted():
                self._call(event.step, event.call)["notes"].append(INTERRUPTED)
            case events.ToolReturned():
                self._return(event)
            case events.Compacted():
                self._compact(event.step, event.compaction)
            case events.Retried():
                self.items.append({"type": "note", "text": tell(event)})
            case events.Answered():
                self._answer(event)
            case events.Stopped():
                text = f"stopped ({event.reason.replace('_', ' ')}): {event.detail}"
                self.items.append({"type": "note", "text": text, "stopped": True})
            case _:
                pass

    def _act(self, event: events.Acted) -> None:
        calls: list[dict[str, Any]] = [
            {
                "id": call.id,
                "text": format_call(call),
                "key": f"tool-{event.step}-{place}",
                "output": None,
                "more": 0,
                "notes": [],
            }
            for place, call in enumerate(event.calls)
        ]
        notes = ["the call could not be parsed"] if event.step in self._misread else []
        item: dict[str, Any] = {
            "type": "step",
            "step": event.step,
            "text": event.text.strip(),
            "prompt": event.prompt_tokens,
            "cost": cost(event.usage),
            "calls": calls,
            "notes": notes,
            "left": [],
        }
        self._steps[event.step] = item
        self.items.append(item)

    def _call(self, step: int, call: ToolCall) -> dict[str, Any]:
        """Returns the first such call in a step that has no result yet; the last one if all have."""
        calls: list[dict[str, Any]] = self._steps[step]["calls"]
        key = (call.id, format_call(call))
        matches = [item for item in calls if (item["id"], item["text"]) == key]
        return next((item for item in matches if item["output"] is None), matches[-1])

    def _return(self, event: events.ToolReturned) -> None:
        call = self._call(event.step, event.call)
        output = repair_surrogates(event.output)
        call |= {"output": output[:HEAD], "more": max(0, len(output) - HEAD), "ok": event.ok}
        if event.neutralised:
            call["notes"].append(tell_neutralised(event.neutralised))

    def _compact(self, step: int, compaction: Compaction) -> None:
        notes = [f"sent again: {reason}" for reason in compaction.retried]
        notes += ["begun early"] * compaction.early + ["cut at a sentence end"] * compaction.cut
        notes += [tell_neutralised(compaction.neutralised)] if compaction.neutralised else []
        item: dict[str, Any] = {
            "type": "compaction",
            "step": step,
            "how": " and ".join(TIERS[tier] for tier in compaction.tiers),
            "before": compaction.tokens_before,
            "after": compaction.tokens_after,
            "stage": compaction.stage,
            "cost": cost(compaction.usage),
            "notes": notes,
            "rows": [self._row(step, change) for change in compaction.changes],
            "delta": None,
        }
        if compaction.summary is not None:
            summary = repair_surrogates(compaction.summary)
            item["delta"] = find_delta(self._summary, summary)
            self._summary = summary
        self.items.append(item)

    def _row(self, step: int, change: Change) -> dict[str, Any]:
        turn = self._turns[change.turn] if change.turn < len(self._turns) else -1
        row = {
            "step": turn,
            "what": change.what.replace("_", " "),
            "tool": change.tool,
            "before": change.tokens_before,
            "after": change.tokens_after,
            "handle": change.handle,
        }
        if turn in self._steps:
            self._steps[turn]["left"].append(row | {"at": step})
        return row

    def _answer(self, event: events.Answered) -> None:
        last, step_cost = self.items[-1], None
        if last["type"] == "step" and not last["calls"] and not last["notes"]:
            last["answers"] = True  # the reply is the answer, so it is shown once
            step_cost = last["cost"]
        notes = [events.CUT_OFF] if event.truncated else []
        answer = {"type": "answer", "text": event.answer.strip(), "notes": notes, "cost": step_cost}
        self.items.append(answer)
