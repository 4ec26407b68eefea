"""A `SummaryBuffer` in the OpenAI Agents SDK (extra `openai-agents`), and the items of OpenAI's responses."""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from memagent.session.context.buffer import SummaryBuffer

if TYPE_CHECKING:
    from agents.run import CallModelData, ModelInputData

UNSEEN = ("type", "id", "status", "result", "encrypted_content")
"""Fields of the items of OpenAI's own tools that aren't text for the model; `result` is an image."""


def summary_filter(
    buffer: SummaryBuffer,
) -> "Callable[[CallModelData[Any]], Awaitable[ModelInputData]]":
    """Sends the model what fits its window: `RunConfig(call_model_input_filter=summary_filter(buffer))`.

    Args:
        buffer: the buffer of one conversation, for all its runs and agents. An agent used as a tool has another
            conversation, but inherits this filter: give its `as_tool` a `run_config`.
    """
    from agents import FunctionTool, Handoff, RunContextWrapper, handoff
    from agents.models.chatcmpl_converter import Converter
    from agents.run import ModelInputData

    async def feed(data: "CallModelData[Any]") -> ModelInputData:
        instructions, agent = data.model_data.instructions, data.agent
        system = [{"role": "system", "content": instructions}] if instructions else []
        pairs = read_items(data.model_data.input)
        tools = await agent.get_all_tools(RunContextWrapper(data.context))
        handoffs = [h if isinstance(h, Handoff) else handoff(h) for h in agent.handoffs]
        messages = await buffer.feed(
            [*system, *(message for message, _ in pairs)],
            tools=[
                *(Converter.tool_to_openai(t) for t in tools if isinstance(t, FunctionTool)),
                *map(Converter.convert_handoff_tool, handoffs),
            ],
        )
        items_by_id = {id(message): items for message, items in pairs}
        return ModelInputData(write_items(messages[len(system) :], items_by_id), instructions)

    return feed


def read_items(items: list[Any]) -> list[tuple[dict[str, Any], list[Any]]]:
    """Returns messages in OpenAI's form, each with its items: what the model said in one go is one message."""
    pairs: list[tuple[dict[str, Any], list[Any]]] = []
    for item in items:
        kind, role = item.get("type", "message"), item.get("role", "assistant")
        if (call := _find_call(item)) is not None:
            result = {"role": "tool", "tool_call_id": call}
            pairs.append((result | {"content": _result(item.get("output", ""))}, [item]))
            continue
        if role != "assistant":
            pairs.append(({"role": role, "content": item["content"]}, [item]))
            continue
        last = pairs[-1] if pairs else ({"role": ""}, [])
        if last[0]["role"] != "assistant" or last[1][-1].get("type") == "mcp_approval_response":
            pairs.append(({"role": "assistant", "content": "", "tool_calls": []}, []))
        message, message_items = pairs[-1]
        message_items.append(item)
        fields = {n: v for n, v in item.items() if v and n not in UNSEEN}
        if kind == "message":
            message["content"] += _join_parts(item["content"])
        elif call := fields.pop("call_id", None):
            function = {"name": fields.pop("name", kind)}
            function["arguments"] = item.get("arguments") or json.dumps(fields, ensure_ascii=False)
            message["tool_calls"].append({"id": call, "type": "function", "function": function})
        elif kind != "reasoning":  # OpenAI ran a tool, and the item holds its result
            message["content"] += f"\n{kind} {json.dumps(fields, ensure_ascii=False)}\n"
    return pairs


def _find_call(item: dict[str, Any]) -> str | None:
    """Returns the id of the call whose result an item is, or None; in a local shell's, OpenAI names it `id`."""
    is_result = item.get("type", "").endswith(("call_output", "search_output"))
    return item.get("call_id", item.get("id")) if is_result else None


def _join_parts(content: str | list[dict[str, Any]]) -> str:
    parts = [{"text": content}] if isinstance(content, str) else content
    return "".join(part.get("text") or part.get("refusal") or "" for part in parts)


def _result(output: Any) -> Any:
    parts: list[Any] = output if isinstance(output, list) else [output]
    if isinstance(output, str) or all(p.get("type", "").startswith("input_") for p in parts):
        return output
    return parts if parts[0].get("type") == "computer_screenshot" else json.dumps(output)


def write_items(messages: Iterable[dict[str, Any]], own: Mapping[int, list[Any]]) -> list[Any]:
    """Returns the items of messages: those that were read, by `id`, or new ones for what the buffer made or changed."""
    calls = {_find_call(i) or ("call", i.get("call_id")): i for part in own.values() for i in part}
    groups = (own.get(id(message)) or _write(message, calls) for message in messages)
    return [item for items in groups for item in items]


def _write(message: dict[str, Any], items_by_call: dict[Any, Any]) -> list[Any]:
    role, content = message["role"], message["content"]
    if role == "tool":
        blank = {"type": "function_call_output", "call_id": message["tool_call_id"]}
        return [items_by_call.get(blank["call_id"], blank) | {"output": content}]
    if isinstance(content, list):  # user messages were merged, one with a picture
        parts: list[Any] = content
        content = [p | {"type": "input_text"} if p["type"] == "text" else p for p in parts]
    items = [{"role": role, "content": content}] if content else []
    for call in message.get("tool_calls", ()):
        item = items_by_call.get(("call", call["id"]), function := call["function"])
        fields = function if "arguments" in item else item | json.loads(function["arguments"])
        items.append({"type": "function_call", **fields, "call_id": call["id"]})
    return items
