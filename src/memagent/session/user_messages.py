"""The user's messages in a session, each of which is answered before the next.

Each message has its own tools. Those of earlier ones are stored without functions, since a replay makes no calls.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from memagent.errors import ConfigError, RunMismatch, ToolError
from memagent.messages import Leaf, ToolSpec, Usage
from memagent.runstore import RunStore, list_differences
from memagent.runstore.records import flatten
from memagent.session.plan import ToolSettings, bind_tools
from memagent.texts import clip, quote
from memagent.tools import Tool, Toolset
from memagent.trajectory import StopReason


class ToolEntry(Leaf):
    """A tool without its function."""

    spec: ToolSpec
    idempotent: bool
    read_only: bool
    final: bool

    def tool(self) -> Tool:
        """Returns a tool that can't be run."""
        return Tool(run=_gone, **{name: getattr(self, name) for name in ToolEntry.model_fields})


async def _gone(arguments: Mapping[str, Any]) -> str:
    raise ToolError("this tool is not offered any more")


class Offer(Leaf):
    """The tools of a message."""

    since: int = 0
    """Number of the message that last changed the tools."""
    tools: tuple[ToolEntry, ...] | None = None
    """The tools, stored with that message only. None in runs of earlier versions: all their messages use the run's."""

    @classmethod
    def of(cls, tools: Toolset, number: int) -> Self:
        """Returns the offer of a message that changes the tools."""
        entries = (ToolEntry.model_validate(t, from_attributes=True) for t in tools.values())
        return cls(since=number, tools=tuple(entries))


class UserMessage(Leaf):
    """A message as committed (`said-N`), with the session's position before it."""

    text: str
    output: dict[str, Any] | None = None
    """JSON schema of its answer, if it has an output type."""
    step: int = 0
    """Number of its first reply."""
    stage: int = 0
    """Summaries written before it."""
    seq: int = -1
    """Sequence number of the last event before it."""
    usage: Usage = Usage()
    """The run's cost before it."""
    offer: Offer = Offer()
    """The tools offered with it."""

    @classmethod
    def find(cls, store: RunStore, run_id: str, number: int) -> Self | None:
        """Returns the message with a number; None if it isn't committed."""
        body = store.effect(run_id, f"said-{number}")
        return None if body is None else cls.model_validate(body)

    def count_stops(self, store: RunStore, run_id: str) -> int:
        """Returns how often it was stopped because it made no progress. Blocks."""
        stops = store.events(run_id, self.seq, kind="stopped")
        return sum(e.type == "stopped" and e.reason is StopReason.NO_PROGRESS for e in stops)


def find_tools(store: RunStore, run_id: str, number: int) -> Toolset | None:
    """Returns the tools that a message offers, without functions; None if they aren't stored. Blocks."""
    message = UserMessage.find(store, run_id, number)
    if message is not None and message.offer.since != number:
        message = UserMessage.find(store, run_id, message.offer.since)
    tools = None if message is None else message.offer.tools
    return None if tools is None else Toolset(tool.tool() for tool in tools)


@dataclass(frozen=True)
class Place:
    """The message that a loop works on."""

    number: int
    """Number of the message; the task is 0."""
    said: UserMessage | None
    """The message as committed; None if it is new."""
    answer: dict[str, Any] | None
    """The effect of its answer; None if it has none yet."""
    seq: int
    """Sequence number of the last event before it."""


def find_place(
    store: RunStore,
    run_id: str,
    task: str,
    text: str | None,
    output: dict[str, Any] | None,
    tools: Toolset,
    *,
    first: bool = False,
) -> Place:
    """Finds where a message belongs: it resumes the unanswered one, or is the next; None resumes the last. Blocks.

    Raises a `RunMismatch` if another message is unanswered, or this one was sent with another output type or tools.
    """
    number, _ = store.latest(run_id, "said") or (0, {})
    number = 0 if first else number  # only the task is meant
    message = UserMessage.find(store, run_id, number)
    answer = store.effect(run_id, f"answer-{number}/q0")
    if answer is not None and text is not None and not first:
        return Place(number + 1, None, None, store.last_seq(run_id))
    current = message or UserMessage(text=task, output=output)
    if answer is None and text not in (None, current.text):
        raise RunMismatch(
            f"session {run_id!r} has not answered {quote(current.text)} yet: send that again (or resume the run), "
            f"and {quote(text)} after it"
        )
    if answer is None and output != current.output:
        raise RunMismatch(
            f"run {run_id!r}: the output type is not that of its unanswered message {quote(current.text)}: send the "
            f"message with the same output_type, or without one if it had none"
        )
    old_tools = find_tools(store, run_id, number)
    if old_tools is not None and bind_tools(old_tools) != bind_tools(tools):
        raise RunMismatch(
            f"run {run_id!r} offered other tools for its last message: {_list_changes(old_tools, tools)}. Use "
            f"the same ones to resume it; a message sent after the answer may have others"
        )
    return Place(number, message, answer, current.seq)


def _list_changes(old: Toolset, new: Toolset) -> str:
    """Names the tools that differ, and what differs in them."""
    changes = [f"tool {name!r} was removed" for name in old if name not in new]
    changes += [f"tool {name!r} was added" for name in new if name not in old]
    for name in (name for name in old if name in new):
        before, now = (
            flatten(t.spec.model_dump(mode="json") | {"idempotent": t.idempotent, "final": t.final})
            for t in (old[name], new[name])
        )
        if differences := list_differences(before, now):
            changes.append(f"tool {name!r}: {clip(differences, 500)}")
    return clip("; ".join(changes), 2000) or "their order, or an empty part of a schema"


def check_limits(store: RunStore, run_id: str, said: UserMessage, settings: ToolSettings) -> None:
    """Raises a `ConfigError` if a message has taken more steps or summaries than the settings allow. Blocks."""
    events = store.events(run_id, said.seq, kind="compacted")
    stages = (event.compaction.stage for event in events if event.type == "compacted")
    checks = (
        ("max_steps", settings.max_steps, store.count(run_id, "act") - said.step),
        ("max_summaries", settings.max_summaries, max(stages, default=said.stage) - said.stage),
    )
    for name, limit, count in checks:
        if count > limit:
            raise ConfigError(
                f"{name}={limit!r} is too low: run {run_id!r} has already used {count}; resume it with {name}={count} "
                f"or more"
            )
