"""What a tool session costs beside the model: processor time a step, of a replay, of an import, of a huge result.

Usage: python -m memagent_bench.perf.session [--rounds N]

The model answers at once and reports what prompts take; its own time is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memagent import (
    ChatRequest,
    Completion,
    RunStore,
    ScriptedModel,
    SummaryBuffer,
    ToolAgent,
    tool,
)
from memagent.messages import Message, ToolCall, Usage
from memagent.tokens.local import TokenizerFile
from memagent_bench.perf.chunks import book
from memagent_bench.perf.measure import SMALL_TOKENIZER, Row, publish

RESULT_CHARS = 1200
"""Characters of a tool's result: some 300 tokens, as of a search result page or a short file."""
HUGE = 10_000_000
LIMITS = {
    "own time a step, W = 8,192": ("ms", 10),
    "whole prompts counted a step, W = 8,192": ("", 1.2),
    "own time a step, W = 131,072": ("ms", 15),
    "whole prompts counted a step, W = 131,072": ("", 1.2),
    "resuming 1,000 steps": ("s", 1.5),
    "importing 150 turns, W = 8,192": ("s", 0.5),
    "importing 150 turns, W = 131,072": ("s", 0.5),
    "a result of 10 MB": ("s", 0.5),
}
"""Name of a measurement -> its unit, and the maximum of its median."""
PATIENT: dict[str, Any] = {"max_steps": 10_000, "max_summaries": 10_000}


TEMPLATE = """\
{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif -%}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls %}
<tool_call>{{ call.function | tojson }}</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}<|im_start|>assistant
"""
"""A chat template in the form of Qwen's."""


class Whole(TokenizerFile):
    """Counts as a model with a chat template, and records how often it counts whole prompts."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "tokenizer.json").write_bytes(SMALL_TOKENIZER.read_bytes())
            (Path(folder) / "chat_template.jinja").write_text(TEMPLATE)
            super().__init__(folder)
        self.wholes = 0

    def count_messages(self, messages: Sequence[Message], **how: Any) -> int:
        """Counts as the tokenizer does."""
        self.wholes += 1
        return super().count_messages(messages, **how)


class Player(ScriptedModel):
    """Calls a tool in each reply, and answers after a given number of steps."""

    def __init__(self, steps: int, window: int, huge: int = -1) -> None:
        self.whole, self.size = Whole(), window
        super().__init__([], window=window, counter=self.whole)
        self.steps, self.huge, self.asked, self.cpu = steps, huge, 0, 0.0
        self.truth = TokenizerFile(SMALL_TOKENIZER)
        self._seen: dict[str, int] = {}

    def took(self, message: Message) -> int:
        """Returns the tokens of a message; counts each text once."""
        text = message.content + "".join(call.arguments for call in message.tool_calls)
        if text not in self._seen:
            self._seen[text] = self.truth.count(text) + 12 * (1 + len(message.tool_calls))
        return self._seen[text]

    async def complete(self, request: ChatRequest) -> Completion:
        """Returns the next call."""
        start = time.process_time()
        prompt = 300 + sum(map(self.took, request.messages))
        usage = Usage(calls=1, prompt_tokens=prompt, completion_tokens=40)
        completion = Completion(text="<summary>Read so far.</summary>", usage=usage)
        if request.kind == "act":
            name = "dump" if self.asked == self.huge else "read"
            call = ToolCall(
                id=f"c{self.asked:08}", name=name, arguments=f'{{"page": {self.asked}}}'
            )
            last = self.asked == self.steps
            completion = Completion(
                text="42" if last else "", tool_calls=() if last else (call,), usage=usage
            )
            self.asked += 1
        self.cpu += time.process_time() - start
        return completion


NOVEL = book()


@tool(read_only=True)
async def read(page: int) -> str:
    """Reads a page."""
    start = page * RESULT_CHARS % (len(NOVEL) - RESULT_CHARS)
    return NOVEL[start : start + RESULT_CHARS]


@tool(read_only=True)
async def dump(page: int) -> str:
    """Returns far too much."""
    return (NOVEL * (HUGE // len(NOVEL) + 1))[:HUGE]


def play(store: RunStore, run: str, model: Player, **settings: Any) -> float:
    """Plays a session, or resumes it; returns its processor seconds without the model's."""
    start = time.process_time()
    agent = ToolAgent(
        model, [read, dump], working_context=model.size, store=store, **{**PATIENT, **settings}
    )
    agent.run("Read all of it.", run_id=run)
    return time.process_time() - start - model.cpu


async def bring(turns: int, window: int) -> float:
    """Appends the turns of another loop's history to a buffer, and compacts when due."""
    texts = [await read.run({"page": page}) for page in range(turns)]
    model = Player(0, window)
    start = time.process_time()
    async with SummaryBuffer(
        model, working_context=window, tools=[read.spec], max_summaries=1000
    ) as buffer:
        await buffer.open([Message(role="user", content="Read all of it.")])
        for page, text in enumerate(texts):
            call = ToolCall(id=f"c{page}", name="read", arguments=f'{{"page": {page}}}')
            await buffer.append(Message(role="assistant", content="", tool_calls=(call,)))
            await buffer.append(Message(role="tool", content=text, tool_call_id=call.id))
            if buffer.due:
                await buffer.compact()
    return time.process_time() - start - model.cpu


def measure(rounds: int) -> list[Row]:
    """Measures all rows, each `rounds` times."""
    measurements: dict[str, list[float]] = {what: [] for what in LIMITS}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            store = RunStore(Path(folder) / "runs.sqlite")
            for window, steps in ((8192, 60), (131_072, 240)):
                model = Player(steps, window)
                spent = play(store, f"{window}", model)
                measurements[f"own time a step, W = {window:,}"].append(spent / steps * 1000)
                wholes = model.whole.wholes / steps
                measurements[f"whole prompts counted a step, W = {window:,}"].append(wholes)
                brought = asyncio.run(bring(150, window))
                measurements[f"importing 150 turns, W = {window:,}"].append(brought)
            play(store, "long", Player(1000, 8192), max_steps=999)  # stops at the limit
            measurements["resuming 1,000 steps"].append(play(store, "long", Player(0, 8192)))
            plain, huge = (play(store, f"h{at}", Player(4, 8192, huge=at)) for at in (-1, 1))
            measurements["a result of 10 MB"].append(huge - plain)
            store.close()
    return [Row(what, measurements[what], unit, most=most) for what, (unit, most) in LIMITS.items()]


def main() -> int:
    """Prints the table; returns 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    return publish(measure(parser.parse_args().rounds))


if __name__ == "__main__":
    sys.exit(main())
