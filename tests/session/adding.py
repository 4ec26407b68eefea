"""A tool session for tests: adding up items, and noting every fifth. Its model knows only what its context shows."""

import re
from collections.abc import Callable, Sequence

from tests.session.context.strict import SHORT, check_strictly

from memagent.messages import ChatRequest, Message, ToolCall
from memagent.models.scripted import ScriptedModel
from memagent.tools import Tool, tool
from memagent.tools.protocol import write_call

TASK = "Add up the items."
PROMPTS = SHORT.model_copy(update={"native": "Use tools.", "text": "Use tools: {{ tools }}"})
"""A wording of few bytes."""
_SEEN = re.compile(
    r"total through (?P<through>\d+): (?P<sum>\d+), noted (?P<summed>\d+)"
    r"|item (?P<item>\d+) is (?P<value>\d+)|noted (?P<noted>\d+)|(?P<doubt>was under way)"
)
Reply = str | tuple[ToolCall, ...]


def value_of(item: int) -> int:
    return item * item % 97


def answer_of(items: int) -> str:
    return f"The sum is {sum(map(value_of, range(1, items + 1)))}."


def adder(items: int) -> Callable[[ChatRequest], Reply]:
    """What the model says to a request: it looks, notes, asks after a note that may be lost, and answers.

    Args:
        items: how many there are.
    """

    def reply(request: ChatRequest) -> Reply:
        through, total, noted, doubt = 0, 0, 0, False
        # The ledger repeats how a result began: that is no news.
        text = "\n".join(m.content for m in request.messages[1:])
        text = re.sub(r"(?m)^done: .*$", "", text)
        for seen in _SEEN.finditer(text):
            if seen["through"]:
                through, total, noted = int(seen["through"]), int(seen["sum"]), int(seen["summed"])
            elif seen["item"] and int(seen["item"]) == through + 1:
                through, total = through + 1, total + int(seen["value"])
            elif seen["noted"]:
                noted, doubt = int(seen["noted"]), False
            doubt = doubt or bool(seen["doubt"])
        if request.kind == "summary":
            lost = ", and a note was under way" if doubt else ""
            return f"<summary>total through {through}: {total}, noted {noted}{lost}</summary>"
        name = f"s{through}x{len(request.messages)}"
        if doubt:
            return (ToolCall(id=name, name="noted", arguments="{}"),)
        if through // 5 * 5 > noted:
            arguments = f'{{"item": {noted + 5}}}'
            return (ToolCall(id=name, name="note", arguments=arguments),)
        if through == items:
            return f"The sum is {total}."
        ahead = range(through + 1, min(items, through + 1 + (through % 3 == 0)) + 1)
        return tuple(
            ToolCall(id=f"{name}n{item}", name="look", arguments=f'{{"item": {item}}}')
            for item in ahead
        )

    return reply


def as_text(respond: Callable[[ChatRequest], Reply]) -> Callable[[ChatRequest], str]:
    """The same replies with the calls in the text."""

    def reply(request: ChatRequest) -> str:
        said = respond(request)
        return said if isinstance(said, str) else "\n".join(map(write_call, said))

    return reply


def adding_tools(
    *,
    ran: Callable[[str], object] = lambda name: None,
    note: Callable[[int], object] = lambda item: None,
    noted: Callable[[], int] = lambda: 0,
    idempotent: bool = True,
) -> list[Tool]:
    """`look`, `note` and `noted`.

    Args:
        ran: hears of each call.
        note: keeps an item.
        noted: the last item that was kept.
        idempotent: whether `note` says that it may be called twice.
    """

    async def look_(item: int) -> str:
        ran(f"look {item}")
        return f"item {item} is {value_of(item)}. " + "And here is some more about it. " * 3

    async def note_(item: int) -> str:
        ran(f"note {item}")
        note(item)
        return f"noted {item}"

    async def noted_() -> str:
        ran("noted")
        return f"noted {noted()}"

    return [
        tool(look_, name="look", idempotent=True),
        tool(note_, name="note", idempotent=idempotent),
        tool(noted_, name="noted", idempotent=True),
    ]


class StrictModel(ScriptedModel):
    """Refuses requests that strict servers refuse, or that are over the working context, and keeps no request."""

    def __init__(self, replies: Callable[[ChatRequest], object], *, window: int) -> None:
        super().__init__(replies, window=window)  # type: ignore[arg-type]
        self.sent: list[str] = []
        """The kind of each request."""

    async def complete(self, request: ChatRequest):
        check_strictly(request.messages)
        self.sent.append("early" if request.parts.get("early") else request.kind)
        completion = await super().complete(request)
        self.requests.clear()
        return completion


def spoken(messages: Sequence[Message]) -> list[Message]:
    """The messages of the model."""
    return [message for message in messages if message.role == "assistant"]
