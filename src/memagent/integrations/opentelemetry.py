"""Traces of an agent as OpenTelemetry spans, by its conventions for generative AI (extra `otel`)."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider, get_tracer

from memagent.messages import ChatRequest, Completion, Message
from memagent.models.base import ChatModel, Wrapper
from memagent.run.agent import Agent
from memagent.session.agent import ToolAgent
from memagent.texts import repair_surrogates
from memagent.tools import Tool, Toolset

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
    agent.model.inner = _TracedModel(agent.model.inner, tracing)
    agent.around_run = tracing.run
    if isinstance(agent, ToolAgent):
        agent.tools = Toolset(tracing.tool(tool) for tool in agent.tools.values())
    return agent


class _Tracing:
    def __init__(self, provider: TracerProvider | None, content: bool, agent: str) -> None:
        self._tracer = get_tracer("memagent", tracer_provider=provider)
        self.content, self._agent = content, agent

    @contextmanager
    def span(
        self,
        operation: str,
        name: str,
        attributes: dict[str, Any],
        kind: SpanKind = SpanKind.INTERNAL,
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
            except (Exception, asyncio.CancelledError) as error:  # a tool's timeout cancels it
                span.set_attribute("error.type", type(error).__qualname__)
                span.set_status(Status(StatusCode.ERROR, str(error) if self.content else None))
                raise

    def run(self, run_id: str) -> AbstractContextManager[Span]:
        """Opens the span of a run."""
        attributes = {"gen_ai.agent.name": self._agent, "gen_ai.conversation.id": run_id}
        return self.span("invoke_agent", self._agent, attributes)

    def tool(self, tool: Tool) -> Tool:
        """Returns the tool with a span for each call."""
        attributes = {"gen_ai.tool.name": tool.name, "gen_ai.tool.type": "function"}

        async def run(arguments: dict[str, Any], *context: Any) -> str:
            with self.span("execute_tool", tool.name, attributes) as span:
                result = await tool.run(arguments, *context)
                if self.content:
                    span.set_attribute("gen_ai.tool.call.arguments", _json(arguments))
                    span.set_attribute("gen_ai.tool.call.result", repair_surrogates(str(result)))
                return result

        return replace(tool, run=run)


class _TracedModel(Wrapper):
    def __init__(self, inner: ChatModel, tracing: _Tracing) -> None:
        super().__init__(inner)
        self._tracing = tracing

    async def complete(self, request: ChatRequest) -> Completion:
        provider, _, name = self.name.partition(":")
        attributes = {
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": name or provider,
            "gen_ai.request.max_tokens": request.max_tokens,
            "gen_ai.request.temperature": request.sampling.temperature,
            "gen_ai.request.top_p": request.sampling.top_p,
            "gen_ai.request.seed": request.seed,
            "gen_ai.request.stop_sequences": request.stop or None,
            "memagent.call.kind": request.kind,
        }
        with self._tracing.span("chat", name or provider, attributes, SpanKind.CLIENT) as span:
            if self._tracing.content:
                span.set_attribute("gen_ai.input.messages", _json(map(_write, request.messages)))
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
            if self._tracing.content:
                calls = completion.tool_calls
                reply = Message(role="assistant", content=completion.text, tool_calls=calls)
                output = {**_write(reply), "finish_reason": finish}
                span.set_attribute("gen_ai.output.messages", _json([output]))
            return completion


def _write(message: Message) -> dict[str, Any]:
    """Converts a message to the form of the conventions."""
    text = {"type": "text", "content": message.content}
    if message.role == "tool":
        text = {
            "type": "tool_call_response",
            "id": message.tool_call_id,
            "response": message.content,
        }
    calls = [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    ]
    return {"role": message.role, "parts": [text, *calls] if message.content else calls}


def _json(value: Any) -> str:
    return repair_surrogates(json.dumps(value, ensure_ascii=False, default=list))
