"""Your own model: five members around a function that turns messages into text.

    python examples/05_own_model.py

The function may block: it runs in a thread. This one only finds years, so it needs no server.
"""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

from memagent import ChatRequest, Completion, MemoryAgent, Usage
from memagent.tokens import TokenCounter, load_counter

BOOK = Path(__file__).with_name("epilogue.txt")


def years(messages: list[dict[str, str]]) -> str:
    """Returns the years in a prompt. The prompt includes the memory, so no year found earlier is lost."""
    return ", ".join(sorted(set(re.findall(r"\b1[0-9]{3}\b", messages[-1]["content"]))))


class FunctionModel:
    name = "years-1"  # identifies the model in runs: the same name means the same model

    def __init__(self, generate: Callable[[list[dict[str, str]]], str]) -> None:
        self._generate = generate
        self._counter = load_counter("bytes")  # or a folder with the model's tokenizer.json

    async def complete(self, request: ChatRequest) -> Completion:
        # A real model also uses `request.max_tokens`, `.sampling` and `.seed`. `.pattern` and `.thinking` are
        # optional: ignore them if the model can't. Raise failures as a `ModelError`.
        messages = [message.model_dump() for message in request.messages]
        text = await asyncio.to_thread(self._generate, messages)
        prompt, reply = self._counter.count_messages(request.messages), self._counter.count(text)
        return Completion(
            text=text or "none",
            usage=Usage(calls=1, prompt_tokens=prompt, completion_tokens=reply),
        )

    async def counter(self) -> TokenCounter:
        return self._counter

    async def window(self) -> int | None:
        return 8192

    async def aclose(self) -> None:
        """Does nothing: there are no resources."""


with MemoryAgent(FunctionModel(years), store=None) as agent:
    print(agent.ask(BOOK, "Which years does the text name?").answer)
