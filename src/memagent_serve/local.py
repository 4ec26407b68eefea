"""Chat completions by a model in this process, which takes no bytes."""

from __future__ import annotations

import asyncio
from typing import Any

from memagent import ChatRequest, Sampling, Usage
from memagent.errors import ConfigError
from memagent.messages import FinishReason
from memagent_serve.completions import completion
from memagent_serve.engine import Engine
from memagent_serve.overflow import Conversation
from memagent_serve.refusals import Refusal

NOT_DONE = ("functions", "logit_bias", "logprobs", "response_format", "tools", "top_logprobs")
"""Fields that change the answer in ways that such models can't."""


async def complete(
    engine: Engine,
    conversation: Conversation,
    fields: dict[str, Any],
    name: str,
    paid: Usage,
    report: dict[str, Any],
) -> dict[str, Any]:
    """Answers a request that fits.

    Args:
        engine: of a model in this process.
        conversation: what to answer.
        fields: of the request.
        name: of the request, for the id.
        paid: before.
        report: for the response.

    Raises:
        Refusal: the request asks for what such models don't do.
        MemagentError: the model failed.
    """
    asked = [field for field in NOT_DONE if fields.get(field)]
    if asked or fields.get("n") not in (None, 1):
        raise Refusal(
            400,
            f"the model {engine.name!r} runs in the endpoint's process, where {', '.join(asked) or 'n'} has no effect: "
            "leave it out, or serve the model with vLLM or SGLang",
            param=asked[0] if asked else "n",
        )
    messages, _ = conversation.read
    window, most = await engine.window(), conversation.most
    if most is None:
        counter = await engine.model.counter()
        prompt = await asyncio.to_thread(counter.count_messages, messages)
        most = max(1, (window or prompt + 1024) - prompt)
    heat = {n: fields[n] for n in ("temperature", "top_p") if fields.get(n) is not None}
    stop = fields.get("stop") or ()
    try:
        request = ChatRequest(
            messages=tuple(messages),
            max_tokens=most,
            sampling=Sampling(**heat),
            seed=fields.get("seed"),
            stop=(stop,) if isinstance(stop, str) else tuple(stop),
        )
    except (ValueError, TypeError) as error:
        raise ConfigError(f"the request can't be read: {error}") from None
    said = await engine.model.complete(request)
    finish = "length" if said.finish_reason is FinishReason.LENGTH else "stop"
    message = {"role": "assistant", "content": said.text}
    return completion(message, finish, engine.name, said.usage + paid, report, name)
