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
        buffer: of one conversation, for all of its runs and agents. An agent that is a tool has another conversation,
            and inherits this: give its `as_tool` a `run_config`.
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
        return ModelInputData(write_items(sent[len(system) :], own), instructions)

    return feed


def read_items(items: list[Any]) -> list[tuple[dict[str, Any], list[Any]]]:
    """Messages in OpenAI's form, each with the items that it stands for: what the model said at once is one."""
    read: list[tuple[dict[str, Any], list[Any]]] = []
    for item in items:
        kind, role = item.get("type", "message"), item.get("role", "assistant")
        if (call := _find_call(item)) is not None:
            result = {"role": "tool", "tool_call_id": call}
            read.append((result | {"content": _result(item.get("output", ""))}, [item]))
            continue
        if role != "assistant":
            read.append(({"role": role, "content": item["content"]}, [item]))
            continue
        last = read[-1] if read else ({"role": ""}, [])
        if last[0]["role"] != "assistant" or last[1][-1].get("type") == "mcp_approval_response":
            read.append(({"role": "assistant", "content": "", "tool_calls": []}, []))
        said, own = read[-1]
        own.append(item)
        shown = {n: v for n, v in item.items() if v and n not in UNSEEN}
        if kind == "message":
            said["content"] += _said(item["content"])
        elif call := shown.pop("call_id", None):
            function = {"name": shown.pop("name", kind)}
            function["arguments"] = item.get("arguments") or json.dumps(shown, ensure_ascii=False)
            said["tool_calls"].append({"id": call, "type": "function", "function": function})
        elif kind != "reasoning":  # OpenAI ran a tool, and what it returned stands in the item
            said["content"] += f"\n{kind} {json.dumps(shown, ensure_ascii=False)}\n"
    return read


def _find_call(item: dict[str, Any]) -> str | None:
    """The id of the call that an item is the result of; OpenAI names it `id` in a local shell's."""
    is_result = item.get("type", "").endswith(("call_output", "search_output"))
    return item.get("call_id", item.get("id")) if is_result else None


def _said(content: str | list[dict[str, Any]]) -> str:
    parts = [{"text": content}] if isinstance(content, str) else content
    return "".join(part.get("text") or part.get("refusal") or "" for part in parts)


def _result(output: Any) -> Any:
    parts: list[Any] = output if isinstance(output, list) else [output]
    if isinstance(output, str) or all(p.get("type", "").startswith("input_") for p in parts):
        return output
    return parts if parts[0].get("type") == "computer_screenshot" else json.dumps(output)


def write_items(messages: Iterable[dict[str, Any]], own: Mapping[int, list[Any]]) -> list[Any]:
    """The items of messages: by `id` those that were read, others for what the buffer made or changed."""
    known = {_find_call(i) or ("call", i.get("call_id")): i for part in own.values() for i in part}
    written = (own.get(id(message)) or _write(message, known) for message in messages)
    return [item for items in written for item in items]


def _write(message: dict[str, Any], known: dict[Any, Any]) -> list[Any]:
    role, content = message["role"], message["content"]
    if role == "tool":
        blank = {"type": "function_call_output", "call_id": message["tool_call_id"]}
        return [known.get(blank["call_id"], blank) | {"output": content}]
    if isinstance(content, list):  # two messages of the user with a picture became one
        parts: list[Any] = content
        content = [p | {"type": "input_text"} if p["type"] == "text" else p for p in parts]
    said = [{"role": role, "content": content}] if content else []
    for call in message.get("tool_calls", ()):
        item = known.get(("call", call["id"]), written := call["function"])
        fields = written if "arguments" in item else item | json.loads(written["arguments"])
        said.append({"type": "function_call", **fields, "call_id": call["id"]})
    return said
