"""A `SummaryBuffer` in the OpenAI Agents SDK (extra `openai-agents`), and the items of OpenAI's responses."""

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from memagent.session.context.buffer import SummaryBuffer

if TYPE_CHECKING:
    from agents.run import CallModelData, ModelInputData

CALLS = {"function_call", "custom_tool_call", "computer_call", "shell_call", "apply_patch_call"}
"""Items that a result with their `call_id` must follow."""


def summary_filter(
    buffer: SummaryBuffer,
) -> "Callable[[CallModelData[Any]], Awaitable[ModelInputData]]":
    """Sends the model what fits its window: `RunConfig(call_model_input_filter=summary_filter(buffer))`.

    Args:
        buffer: of one conversation, for all of its runs and agents.
    """
    from agents import FunctionTool, Handoff, RunContextWrapper, handoff
    from agents.models.chatcmpl_converter import Converter
    from agents.run import ModelInputData

    async def feed(data: "CallModelData[Any]") -> ModelInputData:
        instructions, agent = data.model_data.instructions, data.agent
        system = [{"role": "system", "content": instructions}] if instructions else []
        read = read_items(data.model_data.input)
        tools = await agent.get_all_tools(RunContextWrapper(data.context))
        handoffs = [h if isinstance(h, Handoff) else handoff(h) for h in agent.handoffs]
        sent = await buffer.feed(
            [*system, *(message for message, _ in read)],
            tools=[
                *(Converter.tool_to_openai(t) for t in tools if isinstance(t, FunctionTool)),
                *map(Converter.convert_handoff_tool, handoffs),
            ],
        )
        own = {id(message): items for message, items in read}
        results = {i["call_id"]: i for items in own.values() for i in items if "output" in i}
        kept = (own.get(id(m)) or write_items(m, results) for m in sent[len(system) :])
        return ModelInputData([item for items in kept for item in items], instructions)

    return feed


def read_items(items: list[Any]) -> list[tuple[dict[str, Any], list[Any]]]:
    """Messages in OpenAI's form, each with the items that it stands for: what the model said at once is one."""
    read: list[tuple[dict[str, Any], list[Any]]] = []
    for item in items:
        kind, role = item.get("type", "message"), item.get("role", "assistant")
        if "output" in item and "call_id" in item:
            result = {"role": "tool", "tool_call_id": item["call_id"]}
            read.append((result | {"content": _result(item["output"])}, [item]))
            continue
        if role != "assistant":
            read.append(({"role": role, "content": item["content"]}, [item]))
            continue
        if not read or read[-1][0]["role"] != "assistant":
            read.append(({"role": "assistant", "content": "", "tool_calls": []}, []))
        said, own = read[-1]
        own.append(item)
        if kind == "message":
            said["content"] += _said(item["content"])
        elif kind in CALLS:
            function = {"name": item.get("name", kind), "arguments": item.get("arguments", "{}")}
            call = {"id": item["call_id"], "type": "function", "function": function}
            said["tool_calls"].append(call)
    return read


def _said(content: str | list[dict[str, Any]]) -> str:
    parts = [{"text": content}] if isinstance(content, str) else content
    return "".join(part.get("text") or part.get("refusal") or "" for part in parts)


def _result(output: Any) -> Any:
    parts: list[Any] = output if isinstance(output, list) else [output]
    good = isinstance(output, str) or all(p.get("type", "").startswith("input_") for p in parts)
    return output if good else json.dumps(output)


def write_items(message: dict[str, Any], results: dict[str, Any]) -> list[Any]:
    """The items of a message that the buffer made or changed."""
    role, content = message["role"], message["content"]
    if role == "tool":
        blank = {"type": "function_call_output", "call_id": message["tool_call_id"]}
        return [results.get(blank["call_id"], blank) | {"output": content}]
    if isinstance(content, list):  # two messages of the user with a picture became one
        parts: list[Any] = content
        content = [p | {"type": "input_text"} if p["type"] == "text" else p for p in parts]
    said = [{"role": role, "content": content}] if content else []
    calls = (call["function"] | {"call_id": call["id"]} for call in message.get("tool_calls", ()))
    return [*said, *({"type": "function_call", **call} for call in calls)]
