"""Messages in OpenAI's form as others send them: what memagent reads of them, and what it passes through."""

from typing import Any, Literal

from pydantic import BaseModel, Field, JsonValue


class ServedFunction(BaseModel):
    """The function that a served call names."""

    name: str = Field(min_length=1)
    arguments: str | dict[str, JsonValue] | None = None
    """JSON text, or the object itself, as a few servers send it."""


class ServedCall(BaseModel, extra="allow"):
    """A tool call as OpenAI-compatible servers send it, well-formed or not."""

    id: str | None = None
    function: ServedFunction


class TextPart(BaseModel, extra="allow"):
    """A part of a message that is text."""

    type: Literal["text", "input_text", "output_text"] = "text"
    text: str


class OtherPart(BaseModel, extra="allow"):
    """A part of a message that isn't text."""

    type: str


class ServedMessage(BaseModel, extra="allow"):
    """A message as clients and servers send it."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[str | TextPart | OtherPart] | None = None
    tool_calls: list[ServedCall] | None = None
    tool_call_id: str | None = None


def read_extra(served: BaseModel, *read: str) -> dict[str, JsonValue]:
    """Reads the fields of a message or call that its type does not declare. Empty ones are left out.

    Args:
        served: an instance of a type that allows extra fields.
        read: names of fields to ignore, having been read already.
    """
    extra: dict[str, Any] = served.model_extra or {}
    fields = {name: v for name, v in extra.items() if name not in read}
    # Numbers carry information even if they are 0.
    return {name: v for name, v in fields.items() if v or isinstance(v, (int, float))}
