"""Traces of an agent as OpenTelemetry spans, by its conventions for generative AI (extra `otel`)."""

import asyncio
import json
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider, get_tracer

from memagent.messages import ChatRequest, Completion, Message, ToolCall
from memagent.models.base import ChatModel, Wrapper
from memagent.models.limit import Metered
from memagent.run.agent import Agent
from memagent.session.agent import ToolAgent
from memagent.texts import clip, repair_surrogates
from memagent.tools import Tool, ToolContext, Toolset

A = TypeVar("A", bound=Agent[Any])


def trace_agent(agent: A, *, provider: TracerProvider | None = None, content: bool = False) -> A:
    """Traces the agent's runs from now on: a span for each, with those of its calls and tools below it.

    Retries of a call are within its span. Your span that is current when a run starts becomes the parent.

    Args:
        agent: the agent, which is changed and returned. Trace it once.
        provider: makes the spans; None for the global one.
        content: whether to record messages, arguments and results of tools, and the text of errors.
    """
    tracing = _Tracing(provider, content, type(agent).__name__)
    agent.model.inner = _TracedModel(Metered(agent.model.inner), tracing)
    agent.around_run = tracing.run
    if isinstance(agent, ToolAgent):
        agent.tools = _TracedTools(agent.tools.values(), tracing)
    return agent


class _Tracing:
    def __init__(self, provider: TracerProvider | None, content: bool, agent: str) -> None:
        self._tracer = get_tracer("memagent", tracer_provider=provider)
        self.content, self._agent = content, agent

    @contextmanager
    def span(
        self, kind: SpanKind, operation: str, name: str, attributes: dict[str, Any]
    ) -> Iterator[Span]:
        """Opens a current span. Errors set its status; their text may quote a document, so it counts as content."""
        own_attributes = {key: value for key, value in attributes.items() if value is not None}
        with self._tracer.start_as_current_span(
            f"{operation} {name}",
            kind=kind,
            attributes={"gen_ai.operation.name": operation, **own_attributes},
            record_exception=self.content,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except (Exception, asyncio.CancelledError) as error:
                span.set_attribute("error.type", type(error).__qualname__)
                span.set_status(Status(StatusCode.ERROR, str(error) if self.content else None))
                raise

    def run(self, run_id: str) -> AbstractContextManager[Span]:
        """Opens the span of a run."""
        attributes = {"gen_ai.agent.name": self._agent, "gen_ai.conversation.id": run_id}
        return self.span(SpanKind.INTERNAL, "invoke_agent", self._agent, attributes)


class _TracedTools(Toolset):
    """Tools, and what a session adds to them, with a span for each call."""

    def __init__(self, tools: Iterable[Tool], tracing: _Tracing) -> None:
        super().__init__(tools)
        self._tracing = tracing

    async def _run(self, call: ToolCall, context: ToolContext | None) -> str:
        content = self._tracing.content
        # Other names are the model's own words, so they count as content.
        name = clip(call.name, 64) if content or call.name in self else "unknown"
        attributes = {"gen_ai.tool.name": name, "gen_ai.tool.type": "function"}
        attributes |= {"gen_ai.tool.call.arguments": call.arguments} if content else {}
        with self._tracing.span(SpanKind.INTERNAL, "execute_tool", name, attributes) as span:
            result = await super()._run(call, context)
            if content:
                span.set_attribute("gen_ai.tool.call.result", repair_surrogates(result))
            return result


class _TracedModel(Wrapper):
    def __init__(self, inner: ChatModel, tracing: _Tracing) -> None:
        super().__init__(inner)
        self._tracing = tracing

    async def complete(self, request: ChatRequest) -> Completion:
        content, (provider, _, name) = self._tracing.content, self.name.partition(":")
        attributes = {
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": name or provider,
            "gen_ai.request.max_tokens": request.max_tokens,
            "gen_ai.request.temperature": request.sampling.temperature,
            "gen_ai.request.top_p": request.sampling.top_p,
            "gen_ai.request.seed": request.seed,
            "gen_ai.request.stop_sequences": request.stop or None,
            "memagent.call.kind": request.kind,
            "gen_ai.input.messages": _json(map(_write, request.messages)) if content else None,
        }
        with self._tracing.span(SpanKind.CLIENT, "chat", name or provider, attributes) as span:
            completion = await self.inner.complete(request)
            usage, finish = completion.usage, completion.finish_reason.value
            span.set_attributes(
                {
                    "gen_ai.response.finish_reasons": [finish],
                    "gen_ai.usage.input_tokens": usage.prompt_tokens,
                    "gen_ai.usage.output_tokens": usage.completion_tokens,
                    "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
                    "memagent.retries": usage.retries,
                }
            )
            if content:
                text, calls = completion.text, completion.tool_calls
                reply = _write(Message(role="assistant", content=text, tool_calls=calls))
                reply["finish_reason"] = finish
                span.set_attribute("gen_ai.output.messages", _json([reply]))
            return completion


def _write(message: Message) -> dict[str, Any]:
    """Converts a message to the form of the conventions."""
    role, content = message.role, message.content
    text = {"type": "text", "content": content}
    if role == "tool":
        text = {"type": "tool_call_response", "id": message.tool_call_id, "response": content}
    calls = [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    ]
    return {"role": role, "parts": [text, *calls] if content or role == "tool" else calls}


def _json(value: Any) -> str:
    return repair_surrogates(json.dumps(value, ensure_ascii=False, default=list))
