"""A book to add up, the model that does it, and its server, which refuses what doesn't fit or isn't paired."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.models.chat_server import (
    CHATML_TOOLS,
    TEMPLATES,
    TOKENIZER,
    Handler,
    Script,
    parsed,
    running,
    send,
)
from tokenizers import Tokenizer

from memagent import Message
from memagent_bench.sessions.wire.desk import find_unpaired

SYSTEM = "You add up the numbers of a book."
TASK = "Read the book from page 1 to its end, and tell the total of its numbers."
GO_ON = "Go on."
_TOKENIZER = Tokenizer.from_file(str(TOKENIZER / "tokenizer.json"))
_TOTAL = re.compile(r"total (\d+) up to page (\d+)")
_PAGE = re.compile(r"page (\d+) says (\d+)\.")


class Killed(BaseException):
    """Nobody handles it, as if the process had ended."""


@dataclass
class Book:
    """Pages with a number each."""

    pages: int
    huge: Sequence[int] = ()
    """Pages that are larger than any window."""
    read: list[int] = field(default_factory=list)
    """Pages in the order in which they were read."""
    stop_at: int | None = None
    """Reading this page fails, once."""

    def number(self, page: int) -> int:
        return random.Random(page).randrange(1000)

    def text(self, page: int) -> str:
        """What the tool returns."""
        if page == self.stop_at:
            self.stop_at = None
            raise Killed(f"the process ends at page {page}")
        self.read.append(page)
        filler = "Nothing else of note. " * (5000 if page in self.huge else 8)
        return f"page {page} says {self.number(page)}. {filler}"

    @property
    def answer(self) -> str:
        return f"The total is {sum(map(self.number, range(1, self.pages + 1)))}."


@dataclass
class Player:
    """The model: knows nothing but what its prompt holds, and refuses prompts as strict servers do."""

    book: Book
    window: int
    system: str = SYSTEM
    refused: list[str] = field(default_factory=list)
    acts: int = 0
    summaries: int = 0
    streamed: int = 0
    longest: int = 0

    def __call__(self, handler: Handler) -> None:
        body = handler.body
        prompt = count(body)
        if why := self.fault(body, prompt):
            self.refused.append(why)
            send(400, {"error": {"message": why, "code": 400}})(handler)
            return
        self.longest = max(self.longest, prompt)
        page, total = self.add_up(body["messages"])
        said, pages = f"total {total} up to page {page}", list[int]()
        if body.get("tool_choice") == "none":
            self.summaries += 1
            said = f"<summary>{said}</summary>"
        else:
            self.acts += 1
            pages = list(range(page + 1, min(page + (2 if page % 3 else 3), self.book.pages + 1)))
            said = said if pages else f"The total is {total}."
        calls = [
            {
                "id": f"call{page:03d}{self.acts:04d}",
                "type": "function",
                "function": {"name": "read", "arguments": json.dumps({"page": page})},
            }
            for page in pages
        ]
        usage = {"prompt_tokens": prompt, "completion_tokens": 20, "total_tokens": prompt + 20}
        answer(handler, said, calls, usage)
        self.streamed += bool(body.get("stream"))

    def add_up(self, messages: list[dict[str, Any]]) -> tuple[int, int]:
        """The last page that the messages tell of without a gap, and the total up to it."""
        text = "\n".join(text_of(message) for message in messages)
        totals = [(int(page), int(total)) for total, page in _TOTAL.findall(text)]
        page, total = max(totals, default=(0, 0))
        numbers = {int(n): int(number) for n, number in _PAGE.findall(text)}
        while page + 1 in numbers:
            page += 1
            total += numbers[page]
        return page, total

    def fault(self, body: dict[str, Any], prompt: int) -> str:
        """Why it refuses a request; empty if it doesn't."""
        room = body.get("max_completion_tokens") or body.get("max_tokens") or 1
        if prompt + room > self.window:
            return f"maximum context length is {self.window}, requested {prompt} + {room}"
        messages = body["messages"]
        if text_of(messages[0]) != self.system or messages[0]["role"] != "system":
            return f"the system prompt is gone: {messages[0]}"
        if not text_of(messages[1]).startswith(TASK):
            return f"the task is gone: {messages[1]}"
        if any(message["role"] == "system" for message in messages[1:]):
            return "a system message in mid-conversation"
        return find_unpaired([Message.from_openai(message) for message in messages])


def text_of(message: dict[str, Any]) -> str:
    """A message's text, whether it comes in parts or not."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(p.get("text", "") for p in content)


def count(body: dict[str, Any]) -> int:
    """Tokens of the prompt, as the server's `/tokenize` counts them."""
    messages = [parsed({**m, "content": text_of(m)}) for m in body["messages"]]
    text = TEMPLATES.from_string(CHATML_TOOLS).render(
        messages=messages,
        tools=body.get("tools"),
        add_generation_prompt=True,
        eos_token="<|im_end|>",
        **body.get("chat_template_kwargs", {}),
    )
    return len(_TOKENIZER.encode(text, add_special_tokens=False).ids)


def answer(handler: Handler, said: str, calls: list[dict[str, Any]], usage: dict[str, Any]) -> None:
    """Sends a reply, in pieces if it is to be streamed."""
    finish = "tool_calls" if calls else "stop"
    whole = {"role": "assistant", "content": said, "tool_calls": calls or None}
    about = {"id": "x", "model": "tiny", "created": 0}
    if not handler.body.get("stream"):
        choice = {"index": 0, "finish_reason": finish, "message": whole}
        reply = {"object": "chat.completion", "choices": [choice], "usage": usage, **about}
        send(200, reply)(handler)
        return
    deltas = [{"role": "assistant", "content": said[:4]}, {"content": said[4:]}]
    deltas += [{"tool_calls": [{"index": n, **call}]} for n, call in enumerate(calls)]
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    chunks = [{"choices": [choice]} for choice in choices] + [{"choices": [], "usage": usage}]
    lines = [json.dumps({"object": "chat.completion.chunk", **about, **c}) for c in chunks]
    raw = "".join(f"data: {line}\n\n" for line in (*lines, "[DONE]")).encode()
    send(200, raw, Content_Type="text/event-stream")(handler)


@contextmanager
def serving(player: Player) -> Iterator[Script]:
    """The player's server: of the model `tiny`, in vLLM's manner."""
    with running() as script:
        script.be_vllm(player.window, template=CHATML_TOOLS)
        script.default = player
        yield script
