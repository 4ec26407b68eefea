"""Answers for a model that doesn't take bytes: one in this process, or Ollama's."""

import asyncio
from typing import Any

from memagent import ChatRequest, Sampling, Usage
from memagent.errors import RequestRefused
from memagent.messages import FinishReason
from memagent_serve.engine import Engine
from memagent_serve.forms import Form, OwnAnswer, check_limit, effective
from memagent_serve.overflow import Conversation
from memagent_serve.refusals import Refusal, validate

UNSAID = 1024
"""Maximum tokens of an answer if neither the request nor the model sets a limit."""


def check_fields(engine: Engine, fields: dict[str, Any], form: Form) -> None:
    """Raises a `Refusal` if a request asks for something that such models don't do."""
    taken = {"stop", *form.limits}
    if names := [name for name in effective(fields, form) if name not in taken]:
        raise Refusal(
            400,
            f"the endpoint calls the model {engine.name!r} itself, where {', '.join(names)} has no effect: "
            "leave it out, or serve the model with vLLM or SGLang",
            param=names[0],
        )
    for field in form.limits:
        check_limit(field, fields.get(field), field)


async def complete(
    engine: Engine,
    conversation: Conversation,
    fields: dict[str, Any],
    form: Form,
    name: str,
    paid: Usage,
) -> OwnAnswer:
    """Answers a request that fits.

    Args:
        engine: engine of a model that doesn't take bytes.
        conversation: conversation to answer.
        fields: fields of the request.
        form: form of the request.
        name: name of the request, for the id.
        paid: usage paid before.

    Raises:
        Refusal: the request has no message.
        MemagentError: the model failed.
    """
    messages, _ = await conversation.read()
    if not messages:
        problem = f"{form.field} holds no message that can be read: send at least one"
        raise Refusal(400, problem, param=form.field)
    window, max_tokens = await engine.window(), conversation.most
    if max_tokens is None:
        counter = await engine.model.counter()
        prompt = await asyncio.to_thread(counter.count_messages, messages)
        max_tokens = max(1, (window or prompt + UNSAID) - prompt)
    heat = {n: fields[n] for n in ("temperature", "top_p") if fields.get(n) is not None}
    stop = fields.get("stop") or ()
    request = validate(
        ChatRequest,
        messages=messages,
        max_tokens=max_tokens,
        sampling=Sampling(**heat),
        seed=fields.get("seed"),
        stop=(stop,) if isinstance(stop, str) else stop,
    )
    try:
        completion = await engine.model.complete(request)
    except RequestRefused as error:  # due to the caller's request; the message is passed verbatim
        raise Refusal(400, str(error)) from error
    cuts = [
        position for stop in request.stop if stop and (position := completion.text.find(stop)) >= 0
    ]
    text = completion.text[: min(cuts)] if cuts else completion.text
    finish = "length" if completion.finish_reason is FinishReason.LENGTH and not cuts else "stop"
    return OwnAnswer(text, finish, engine.name, name, completion.usage + paid)
