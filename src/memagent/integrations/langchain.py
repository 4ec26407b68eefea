"""A `SummaryBuffer` in LangChain's agents, and a `MemoryAgent` in its chains (extra `langchain`)."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest
from langchain.agents.structured_output import AutoStrategy, OutputToolBinding, ToolStrategy
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    SystemMessage,
    convert_to_messages,
    convert_to_openai_messages,
)
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_core.utils.function_calling import convert_to_openai_tool

from memagent.errors import ConfigError
from memagent.memory.agent import MemoryAgent
from memagent.messages import Usage
from memagent.session.context.buffer import SummaryBuffer
from memagent.texts import quote


class SummaryMiddleware(AgentMiddleware[Any, Any, Any]):
    """Sends the model what fits its window; the agent's state keeps every message.

    Args:
        buffer: the buffer of one conversation: make an agent for each conversation or thread.
    """

    def __init__(self, buffer: SummaryBuffer) -> None:
        super().__init__()
        self._buffer = buffer

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]
    ) -> Any:
        """Feeds the buffer, and calls the model with what it returns."""
        fed = _RequestHistory(request)
        return handler(fed.request(self._buffer.feed_sync(**fed.history)))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        """Async version of `wrap_model_call`."""
        fed = _RequestHistory(request)
        return await handler(fed.request(await self._buffer.feed(**fed.history)))


class _RequestHistory:
    """A request, and its messages in OpenAI's form."""

    def __init__(self, request: ModelRequest[Any]) -> None:
        system = [] if request.system_message is None else [request.system_message]
        self._request, messages = request, [*system, *request.messages]
        dicts = list(map(_read, messages))
        self._own = {id(fields): message for fields, message in zip(dicts, messages, strict=True)}
        results = [fields for fields in dicts if fields["role"] == "tool"]
        statuses = {fields["tool_call_id"]: fields.get("status") for fields in results}
        tools = [*map(convert_to_openai_tool, request.tools), *_output_tools(request)]
        usage = next((m.usage_metadata for m in messages[::-1] if isinstance(m, AIMessage)), None)
        self.history: dict[str, Any] = {
            "messages": dicts,
            "tools": [tool for tool in tools if tool.get("type") == "function"],
            "usage": usage and Usage(prompt_tokens=usage["input_tokens"]),
            "failed": {call for call, status in statuses.items() if status},
        }

    def request(self, sent: list[Any]) -> ModelRequest[Any]:
        """Returns the request with what the buffer returned."""
        messages = [self._own.get(id(m)) or convert_to_messages([m])[0] for m in sent]
        if self._request.system_message is None:
            return self._request.override(messages=messages)
        system, *others = messages
        assert isinstance(system, SystemMessage)
        return self._request.override(system_message=system, messages=others)


def _output_tools(request: ModelRequest[Any]) -> list[dict[str, Any]]:
    """Returns the tools that LangChain adds for structured output; `AutoStrategy`, still undecided, may add them."""
    strategy = request.response_format
    if isinstance(strategy, AutoStrategy):
        strategy = ToolStrategy(strategy.schema)
    specs = strategy.schema_specs if isinstance(strategy, ToolStrategy) else ()
    return [convert_to_openai_tool(OutputToolBinding.from_schema_spec(s).tool) for s in specs]


def _read(message: BaseMessage) -> dict[str, Any]:
    """Converts a message to OpenAI's form; blocks that have none there (a video, a file's id) are unchanged."""
    if isinstance(message.content, list):
        message = message.model_copy(update={"content": [*map(_read_block, message.content)]})
    # It stays when the text is shortened, and LangChain reads it again.
    status = {"status": "error"} if getattr(message, "status", "") == "error" else {}
    try:
        return convert_to_openai_messages(message) | status
    except (KeyError, TypeError, ValueError):  # a form that LangChain's converter doesn't know
        copy = convert_to_openai_messages(message.model_copy(update={"content": message.text}))
        return copy | {"content": message.content} | status


def _read_block(block: Any) -> Any:
    """Converts a block of text, in any form, to OpenAI's form; others keep theirs, with a `type`."""
    if isinstance(block, str):
        return block
    source = block.get("source")
    payload = source if isinstance(source, dict) else block
    content = block.get("text") or payload.get("content")
    if payload.get("type") == "text":
        content = content or payload.get("data")
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    if all(isinstance(text, str) and text for text in texts):
        heads = filter(None, map(block.get, ("title", "context")))
        return {"type": "text", "text": "\n".join([*heads, *texts])}
    return {"type": next(iter(block), "block")} | block


def as_runnable(agent: MemoryAgent) -> Runnable[dict[str, Any], dict[str, Any]]:
    """Returns the agent as a step of a chain.

    The input has `document` (what `ask` takes, or LangChain's documents in order, also from `lazy_load()`), `question`
    and, if the run is to be resumable, `run_id`. The output is `Result.to_dict()`: `answer`, `detail` and others.

    Raises:
        ConfigError: when invoked with a key missing or unknown.
    """

    def ask(inputs: dict[str, Any]) -> dict[str, Any]:
        return agent.ask(**_read_input(inputs)).to_dict()

    async def aask(inputs: dict[str, Any]) -> dict[str, Any]:
        return (await agent.aask(**_read_input(inputs))).to_dict()

    return RunnableLambda(ask, aask, name="MemoryAgent")


def _read_input(inputs: Any) -> dict[str, Any]:
    keys = list(inputs) if isinstance(inputs, Mapping) else quote(inputs)
    if {*keys} - {"run_id"} != {"document", "question"}:
        raise ConfigError(
            f"the input must be a dict; its keys must be document, question and perhaps run_id, got {keys}"
        )
    given = inputs["document"]
    document = [given] if isinstance(given, Document) else given
    if isinstance(document, Sequence) and all(isinstance(part, Document) for part in document):
        document = "\n\n".join(part.page_content for part in document)
    elif isinstance(document, Iterator) and not hasattr(document, "read"):
        document = (
            "\n\n" * bool(place) + part.page_content if isinstance(part, Document) else part
            for place, part in enumerate(document)
        )
    return {**inputs, "document": document}
