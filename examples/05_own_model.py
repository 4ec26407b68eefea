"""A model of your own: five members around a function that makes text of messages.

    python examples/05_own_model.py

The function may block: it runs in a thread. This one is no language model but finds years, so it needs no server.
"""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

from memagent import ChatRequest, Completion, MemoryAgent, Usage
from memagent.tokens import TokenCounter, load_counter

BOOK = Path(__file__).with_name("epilogue.txt")


def years(messages: list[dict[str, str]]) -> str:
    """The years in a prompt. It shows the memory too, so none that was found is lost."""
    return ", ".join(sorted(set(re.findall(r"\b1[0-9]{3}\b", messages[-1]["content"]))))


class FunctionModel:
    name = "years-1"  # binds runs: the same name means the same model

    def __init__(self, generate: Callable[[list[dict[str, str]]], str]) -> None:
        self._generate = generate
        self._counter = load_counter("bytes")  # or a folder with the model's tokenizer.json

    async def complete(self, request: ChatRequest) -> Completion:
        # A real model also takes `request.max_tokens`, `.sampling` and `.seed`. `.pattern` and `.thinking` are
        # wishes: leave them out where the model cannot. What fails is raised as a `ModelError`.
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
