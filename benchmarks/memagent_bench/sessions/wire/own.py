"""memagent's loops: `ToolAgent`; `SummaryBuffer` in a loop around the openai package; that loop without it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

from openai import AsyncOpenAI

from memagent import SummaryBuffer, ToolAgent, Usage, open_model
from memagent.models.base import ChatModel
from memagent_bench.length_tokens import length_counter
from memagent_bench.sessions.counter import ChatCounter
from memagent_bench.sessions.record import Reason
from memagent_bench.sessions.seat import SessionEnd
from memagent_bench.sessions.wire.post import ENDLESS, SYSTEM, Post

TIGHT = 0.9
"""Share of the window used as working context."""


def open_served(post: Post) -> ChatModel:
    """Opens the server's model, with its tokenizer locally."""
    return open_model(
        f"openai:{post.model}",
        base_url=post.url,
        api_key="none",
        window=post.window,
        tokenizer=ChatCounter(length_counter(None)),
    )


async def play_tool_agent(post: Post) -> SessionEnd:
    """Plays with `ToolAgent` and the window as its working context."""
    return await _run_agent(post, post.window)


async def play_tight(post: Post) -> SessionEnd:
    """Plays the same with a smaller working context: shorter prompts, more summaries."""
    return await _run_agent(post, int(TIGHT * post.window))


async def play_buffer(post: Post) -> SessionEnd:
    """Plays with a `SummaryBuffer` before each call of a loop around the openai package."""
    model = open_served(post)
    reads = {tool.name for tool in post.tools if tool.read_only}
    buffer = SummaryBuffer(
        model, working_context=post.window, max_summaries=ENDLESS, idempotent=reads
    )
    try:
        async with buffer:
            return await _loop(post, buffer)
    finally:
        await model.aclose()


async def play_whole(post: Post) -> SessionEnd:
    """Plays the same loop without it: the whole history."""
    return await _loop(post, None)


async def _run_agent(post: Post, working_context: int) -> SessionEnd:
    agent = ToolAgent(
        open_served(post),
        post.tools,
        working_context=working_context,
        max_steps=ENDLESS,
        max_summaries=ENDLESS,
        store=None,  # a temporary file: everything is still committed
    )
    async with agent:
        result = await agent.arun(post.task)
    return SessionEnd(
        answer=result.answer, reason=Reason(result.stop_reason.value), detail=result.detail
    )


async def _loop(post: Post, buffer: SummaryBuffer | None) -> SessionEnd:
    tools: Any = [tool.spec.to_openai() for tool in post.tools]
    history: list[Any] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": post.task},
    ]
    usage: Usage | None = None
    async with AsyncExitStack() as stack:
        client = AsyncOpenAI(base_url=post.url, api_key="none", max_retries=0)
        await stack.enter_async_context(client)
        while True:
            sent: Any = history
            if buffer is not None:
                sent = await buffer.feed(history, tools=tools, usage=usage)
            reply = await client.chat.completions.create(
                model=post.model, messages=sent, tools=tools
            )
            message = reply.choices[0].message
            usage = Usage(prompt_tokens=reply.usage.prompt_tokens) if reply.usage else None
            history.append(message.model_dump(exclude_none=True, mode="json"))
            if not message.tool_calls:
                return SessionEnd(answer=message.content or "")
            for call in message.tool_calls:
                function: Any = getattr(call, "function", None)
                text = await post.run(function.name, function.arguments)
                history.append({"role": "tool", "tool_call_id": call.id, "content": text})
