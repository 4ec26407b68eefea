"""A `SummaryBuffer` in Pydantic AI's agents (extra `pydantic-ai`)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    RetryFeedbackPart,
    SystemPromptPart,
    TextContent,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext

from memagent.messages import ToolSpec, Usage
from memagent.session.context.buffer import SummaryBuffer

CONTENT: TypeAdapter[UserContent] = TypeAdapter(UserContent)
Piece = ModelResponse | ModelRequest
"""A reply, or a request that makes one message in OpenAI's form."""


def process_history(buffer: SummaryBuffer) -> AbstractCapability[Any]:
    """Sends the model what fits its window: `Agent(capabilities=[process_history(buffer)])`.

    The run's messages become those that are sent: pass them to the next run, with the same buffer.

    Args:
        buffer: the buffer of one conversation: pass the capability to each of its runs, or make an agent for it.
    """
    return _History(buffer)


@dataclass
class _History(AbstractCapability[Any]):
    buffer: SummaryBuffer

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Feeds the buffer what the model would get, including what it adds for structured output."""
        request, messages = request_context, request_context.messages
        parameters = request.model_request_parameters
        _, offer = request.model.prepare_request(request.model_settings, parameters)
        system, pairs = _read(messages)
        instructions = messages[-1].instructions if isinstance(messages[-1], ModelRequest) else None
        texts = [*(p.content for p in system), instructions, offer.prompted_output_instructions]
        text = "\n\n".join(filter(None, texts))
        frame = [{"role": "system", "content": text}] if text else []
        replies = [message.usage for message in messages if isinstance(message, ModelResponse)]
        results = {
            part.tool_call_id: (piece, part)
            for _, piece in pairs
            for part in piece.parts
            if isinstance(part, ToolReturnPart)
        }
        sent = await self.buffer.feed(
            [*frame, *(message for message, _ in pairs)],
            tools=[
                ToolSpec(
                    name=t.name,
                    description=t.description or "",
                    parameters=t.parameters_json_schema,
                )
                for t in (*offer.function_tools, *offer.output_tools)
            ],
            usage=Usage(prompt_tokens=replies[-1].input_tokens) if replies else None,
            failed={call for call, (_, part) in results.items() if part.outcome != "success"},
        )
        by_id = {id(message): piece for message, piece in pairs}
        for call in (call for m in sent for call in m.get("tool_calls") or ()):
            blank = ToolReturnPart(call["function"]["name"], "", call["id"])
            results.setdefault(call["id"], (messages[-1], blank))
        pieces = [by_id.get(id(m)) or _write(m, results, messages[-1]) for m in sent[len(frame) :]]
        if not pieces or not isinstance(pieces[0], ModelRequest):  # no request comes first
            pieces.insert(0, replace(messages[-1], parts=[]))
        if system:
            pieces[0] = replace(pieces[0], parts=[*system, *pieces[0].parts])
        request.messages, ctx.messages[:] = [*pieces], pieces
        return request


def _read(
    messages: Sequence[ModelMessage],
) -> tuple[list[SystemPromptPart], list[tuple[dict[str, Any], Piece]]]:
    """Returns the system prompt, and messages in OpenAI's form, each with the piece that it stands for."""
    system: list[SystemPromptPart] = []
    pairs: list[tuple[dict[str, Any], Piece]] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            calls = [
                {
                    "id": call.tool_call_id,
                    "type": "function",
                    "function": {"name": call.tool_name, "arguments": call.args_as_json_str()},
                }
                for call in message.tool_calls
            ]
            reply = {"role": "assistant", "content": _write_reply(message), "tool_calls": calls}
            pairs.append((reply | {"reasoning_content": message.thinking}, message))
            continue
        for part in message.parts:
            if isinstance(part, SystemPromptPart) and not pairs:
                system.append(part)
            elif (fields := _read_part(part)) is not None:
                pairs.append((fields, replace(message, parts=[part])))
            elif pairs and isinstance(pairs[-1][1], ModelRequest):
                # It stays with the part before it.
                fields, piece = pairs[-1]
                pairs[-1] = fields, replace(message, parts=[*piece.parts, part])
    return system, pairs


def _write_reply(message: ModelResponse) -> str:
    """Returns the text of a reply, and what the provider's own tools did for it."""
    texts = [message.text or ""]
    for part in message.parts:
        if isinstance(part, NativeToolCallPart):
            texts.append(f"{part.tool_name}({part.args_as_json_str()})")
        elif isinstance(part, NativeToolReturnPart):
            texts.append(f"{part.tool_name} -> {part.model_response_str()}")
    return "\n".join(filter(None, texts))


def _read_part(part: ModelRequestPart) -> dict[str, Any] | None:
    if isinstance(part, ToolReturnPart):
        # Who sends it marks a failure once more, and some providers otherwise.
        parts = [{"type": "text", "text": part.model_response_str(wrap_if_error=False)}]
        files = [{"type": "file"} for _ in part.files]
        fields = {"role": "tool", "tool_call_id": part.tool_call_id, "content": [*parts, *files]}
        return fields if part.outcome == "success" else fields | {"outcome": part.outcome}
    if isinstance(part, UserPromptPart):
        content = [part.content] if isinstance(part.content, str) else part.content
        return {"role": "user", "content": [_read_content(item) for item in content]}
    if isinstance(part, RetryFeedbackPart):
        return {"role": "user", "content": part.model_response()}
    is_system = isinstance(part, SystemPromptPart)
    return {"role": "system", "content": part.content} if is_system else None


def _read_content(item: UserContent) -> dict[str, Any]:
    if isinstance(item, (str, TextContent)):
        return {"type": "text", "text": item if isinstance(item, str) else item.content}
    return {"type": "file", "item": CONTENT.dump_python(item, mode="json")}


def _write(
    message: dict[str, Any], results: dict[str, tuple[Piece, ToolReturnPart]], last: ModelMessage
) -> Piece:
    """Makes the piece for a message that the buffer made or changed."""
    content = message["content"] or ""
    if message["role"] == "assistant":
        calls = [
            ToolCallPart(call["function"]["name"], call["function"]["arguments"], call["id"])
            for call in message.get("tool_calls") or ()
        ]
        return ModelResponse(parts=[*([TextPart(content)] if content else []), *calls])
    if message["role"] == "tool":
        piece, part = results[message["tool_call_id"]]
        outcome = message.get("outcome", "success")
        return replace(piece, parts=[replace(part, content=content, outcome=outcome)])
    if isinstance(content, list):
        content = [
            p["text"] if p["type"] == "text" else CONTENT.validate_python(p["item"])
            for p in content
        ]
    return replace(last, parts=[UserPromptPart(content)])
