"""Puts a streamed reply together again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from memagent.errors import ConnectionFailed
from memagent.models.openai_errors import Endpoint


class Pieces:
    """The chunks of one streamed reply.

    Args:
        endpoint: who sends it, for errors.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._content: list[str | list[Any]] = []
        self._said: list[dict[str, Any]] = []
        self._lists: dict[str, list[Any]] = {}
        self._calls: list[dict[str, Any]] = []
        self._whole: dict[str, Any] = {}
        self._finish: str | None = None

    def add(self, chunk: Mapping[str, Any]) -> str:
        """Takes the next chunk; returns the text that it brings, which may be empty."""
        for key in ("usage", "prompt_token_ids"):
            if chunk.get(key) is not None:
                self._whole[key] = chunk[key]
        choices = chunk.get("choices")
        if not choices or choices[0].get("index", 0) != 0:
            return ""
        choice: Mapping[str, Any] = choices[0]
        delta: Mapping[str, Any] = choice.get("delta") or {}
        content: Any = delta.get("content") or ""
        if not isinstance(content, (str, list)):
            raise TypeError(f"its content is {type(content).__name__}")
        content = cast("str | list[Any]", content)
        self._content.append(content)
        self._said.append(_others(delta, "role", "content", "tool_calls"))
        for piece in delta.get("tool_calls") or ():
            self._add_call(piece)
        for key in ("token_ids", "response_token_ids"):
            if choice.get(key):
                self._lists.setdefault(key, []).extend(choice[key])
        if choice.get("prompt_token_ids"):
            self._whole["prompt_token_ids"] = choice["prompt_token_ids"]
        logprobs: Mapping[str, Any] = choice.get("logprobs") or {}
        self._lists.setdefault("logprobs", []).extend(logprobs.get("content") or ())
        self._finish = choice.get("finish_reason") or self._finish
        return _text(content)

    def reply(self) -> bytes:
        """The body that the server would have sent at once.

        Raises:
            ConnectionFailed: the stream ended before the reply did.
        """
        if self._finish is None:
            raise ConnectionFailed(
                f"{self._endpoint}: the reply broke off after "
                f"{sum(map(len, map(_text, self._content)))} characters, before the server said that it is complete"
            )
        lists = dict(self._lists)
        logprobs = lists.pop("logprobs", [])
        choice: dict[str, Any] = {
            "message": _join(self._said)
            | {
                "content": self._whole_content(),
                "tool_calls": [self._whole_call(call) for call in self._calls],
            },
            "finish_reason": self._finish,
            "logprobs": {"content": logprobs} if logprobs else None,
            **lists,
        }
        return json.dumps({"choices": [choice], **self._whole}).encode()

    def _whole_content(self) -> str | list[Any]:
        """A text, or a list of parts where any came as parts."""
        if not any(isinstance(piece, list) for piece in self._content):
            return "".join(map(_text, self._content))
        parts: list[Any] = []
        for piece in filter(None, self._content):
            parts += [{"type": "text", "text": piece}] if isinstance(piece, str) else piece
        return parts

    @staticmethod
    def _whole_call(call: Mapping[str, Any]) -> dict[str, Any]:
        return _join(call["others"]) | {"id": call["id"], "function": call["function"]}

    def _add_call(self, piece: Mapping[str, Any]) -> None:
        """Takes a piece of a tool call: the first name counts, arguments are strung together."""
        function: Mapping[str, Any] = piece.get("function") or {}
        call = self._call_of(piece, names=bool(function.get("name")))
        call["id"] = call["id"] or piece.get("id") or None
        call["others"].append(_others(piece, "index", "id", "type", "function"))
        said = call["function"]
        said["name"] = said["name"] or function.get("name") or ""
        arguments = function.get("arguments") or ""
        if not isinstance(arguments, (str, dict)):
            raise TypeError(f"its arguments are {type(arguments).__name__}")
        text = (
            arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        )
        said["arguments"] += text

    def _call_of(self, piece: Mapping[str, Any], *, names: bool) -> dict[str, Any]:
        """The call that a piece belongs to, a new one where it begins one.

        That is the call of its index. But some servers leave the index out, or send 0 for all: there another id
        begins another call, as does a name without an id, and anything else goes on with the latest one.
        """
        index, name = piece.get("index"), piece.get("id")
        known = [call for call in self._calls if index is None or call["index"] == index]
        begins = names if index is None and not name else False
        if known and not begins and (not name or known[-1]["id"] in (None, name)):
            return known[-1]
        call: dict[str, Any] = {
            "index": index,
            "id": None,
            "function": {"name": "", "arguments": ""},
            "others": [],
        }
        self._calls.append(call)
        return call


def _text(content: str | list[Any]) -> str:
    """The text of a piece of the content, which may be a list of parts."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content if part.get("type") == "text")


def _others(piece: Mapping[str, Any], *read: str) -> dict[str, Any]:
    return {name: value for name, value in piece.items() if name not in read and value is not None}


def _join(pieces: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Joins the fields of pieces by name: texts and lists go on, what is nested likewise, else the last one counts."""
    joined: dict[str, Any] = {}
    for name in {name: None for piece in pieces for name in piece}:
        values = [piece[name] for piece in pieces if name in piece]
        if all(isinstance(value, str) for value in values):
            joined[name] = "".join(values)
        elif all(isinstance(value, list) for value in values):
            joined[name] = [item for value in values for item in value]
        elif all(isinstance(value, dict) for value in values):
            joined[name] = _join(values)
        else:
            joined[name] = values[-1]
    return joined
