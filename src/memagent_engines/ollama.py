"""A model of an Ollama server, through `/api/chat`: its `/v1` accepts no window, and drops what doesn't fit.

Checked against Ollama's source of August 2026 (`api/types.go`, `server/routes.go`, `server/prompt.go`,
`llm/llama_server.go`), not against a running server.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import BaseModel, JsonValue, ValidationError

from memagent.errors import BadResponse, ModelNotFound, PromptTruncated, ServerFailed
from memagent.messages import ChatRequest, Completion
from memagent.models.openai import OpenAIModel
from memagent.models.openai_reply import ServedModel
from memagent.models.server import Server
from memagent.threads import in_thread

WINDOW = 8192
"""Default window in tokens: Ollama reserves memory for the whole window, and some models have one of 1M."""
_NATIVE = {"model", "messages", "tools", "think", "format", "keep_alive"}
"""Fields of `/api/chat`; all others are options."""
_RENAMED = {"max_tokens": "num_predict", "max_completion_tokens": "num_predict"}
_DROPPED = {"tool_choice", "options"}
"""Fields that `/api/chat` lacks, or that are merged."""
_FINISHED = {"stop", "length"}
"""Values of `done_reason` for a complete reply; with `load` and `unload`, nothing is generated."""


class _Message(BaseModel):
    content: str = ""
    thinking: str = ""
    tool_calls: list[JsonValue] | None = None


class _Reply(BaseModel):
    message: _Message
    done: bool
    done_reason: str = "stop"
    prompt_eval_count: int = 0
    eval_count: int = 0


class _OllamaServer(Server):
    thinks = False
    """Whether reasoning can be switched off, as far as known."""

    async def _ask_list(self) -> tuple[ServedModel, ...] | None:
        """Lists the server's models, this one with the context length that it was trained with."""
        models = await super()._ask_list()
        try:
            details = await in_thread(self.ask, "/api/show", {"model": self.model})
        except ModelNotFound:
            return models  # the list doesn't have the model either
        info = cast("dict[str, Any]", details.get("model_info") or {})
        length = next((v for k, v in info.items() if k.endswith(".context_length")), None)
        self.thinks = "thinking" in cast("Sequence[str]", details.get("capabilities") or ())
        own_model = ServedModel.model_validate({"id": self.model, "context_length": length})
        return (*(entry for entry in models or () if entry.id != self.model), own_model)

    async def _post(self, client: Any, fields: Mapping[str, object]) -> bytes:
        raw = await client.post(f"{self.root}/api/chat", cast_to=str, body=write_chat(fields))
        return self._read_chat(raw)

    def _read_chat(self, raw: str) -> bytes:
        """Converts a reply of `/api/chat` to OpenAI's form."""
        try:
            reply = _Reply.model_validate_json(raw)
        except ValidationError as error:
            raise BadResponse(
                f"{self.endpoint}: the reply is not one of /api/chat: {self.endpoint.quote(raw)!r}; is an Ollama "
                f"server running there?"
            ) from self.endpoint.cause(error)
        if not reply.done or reply.done_reason not in _FINISHED:
            raise ServerFailed(
                f"{self.endpoint}: the reply ended early (done_reason {reply.done_reason!r}); see its log"
            )
        if not reply.prompt_eval_count:
            raise BadResponse(
                f"{self.endpoint}: the reply does not say how many tokens of the prompt were read "
                f"(prompt_eval_count), so a cut prompt would go unnoticed; update Ollama"
            )
        message: dict[str, object] = {"content": reply.message.content}
        message |= {"reasoning": reply.message.thinking, "tool_calls": reply.message.tool_calls}
        usage = {"prompt_tokens": reply.prompt_eval_count, "completion_tokens": reply.eval_count}
        choice = {"message": message, "finish_reason": reply.done_reason}
        return json.dumps({"choices": [choice], "usage": usage}).encode()


class OllamaModel(OpenAIModel):
    """A model of one or several Ollama servers, each loading it with the window in use as its `num_ctx`.

    A prompt that exceeds the window is refused, by the server (`truncate` and `shift` are off) and by comparing
    counts: older servers don't know these fields.

    Args:
        model: the model's name there, such as `qwen3:4b`.
        window: maximum tokens of prompt plus output, at most the model's context length; 8,192 by default. Ollama
            reloads the model when it changes.
        options: other arguments of `OpenAIModel`. In `extra_body`, `keep_alive` and `format` are fields
            of the request, and everything else is one of its `options`.

    Raises:
        ConfigError: an argument is invalid.
    """

    _server = _OllamaServer

    def __init__(self, model: str, **options: Any) -> None:
        options["dialect"] = "ollama"
        super().__init__(model, **options)

    async def window(self) -> int:
        """Returns the window in use, the server's `num_ctx`. Raises a `ModelError` if no server can be asked."""
        return self._limit(await super().window())

    async def _known_window(self, server: Server) -> int:
        return self._limit(await super()._known_window(server))

    def _limit(self, window: int | None) -> int:
        return min(window or WINDOW, self._window or WINDOW)

    async def _fields(
        self, request: ChatRequest, prompt: int | None, server: Server
    ) -> dict[str, object]:
        fields = await super()._fields(request, prompt, server)
        if request.thinking is not None and cast("_OllamaServer", server).thinks:
            fields.setdefault("think", request.thinking)
        return fields | {"num_ctx": await self._known_window(server)}

    async def _check(
        self, request: ChatRequest, prompt: int | None, completion: Completion, server: Server
    ) -> None:
        await super()._check(request, prompt, completion, server)
        usage, window = completion.usage, await self._known_window(server)
        if usage.prompt_tokens + usage.completion_tokens > window:
            raise PromptTruncated(
                f"{server.endpoint}: a prompt of {usage.prompt_tokens} tokens and a reply of "
                f"{usage.completion_tokens} exceed the window of {window}, so the server dropped the beginning while "
                f"writing; update Ollama, or use a smaller --chunk-tokens"
            )


def write_chat(fields: Mapping[str, object]) -> dict[str, object]:
    """Converts the fields of a chat request in OpenAI's form to a body for `/api/chat`."""
    options: dict[str, object] = dict(cast("Mapping[str, object]", fields.get("options") or {}))
    for name, value in fields.items():
        if name not in _NATIVE | _DROPPED:
            options[_RENAMED.get(name, name)] = value
    body = {name: value for name, value in fields.items() if name in _NATIVE}
    messages = cast("list[dict[str, Any]]", fields["messages"])
    body["messages"] = [_write_message(message) for message in messages]
    return body | {"options": options, "stream": False, "truncate": False, "shift": False}


def _write_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Converts a message to Ollama's form: the arguments of calls are objects, not texts."""
    calls = [
        call
        | {"function": call["function"] | {"arguments": json.loads(call["function"]["arguments"])}}
        for call in message.get("tool_calls") or ()
    ]
    return {
        **message,
        "content": message.get("content") or "",
        **({"tool_calls": calls} if calls else {}),
    }
