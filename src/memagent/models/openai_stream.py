"""Puts a streamed reply together again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from memagent.errors import ConnectionFailed
from memagent.models.openai_errors import Endpoint


class Pieces:
    """The chunks of one streamed reply.

    Args:
        endpoint: who sends it, for errors.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._text: dict[str, list[str]] = {
            "content": [],
            "reasoning": [],
            "reasoning_content": [],
            "refusal": [],
        }
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
        for key, parts in self._text.items():
            if isinstance(part := delta.get(key), str):
                parts.append(part)
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
        text = delta.get("content") or ""
        if not isinstance(text, str):
            raise TypeError(f"its content is {type(text).__name__}")
        return text

    def reply(self) -> bytes:
        """The body that the server would have sent at once.

        Raises:
            ConnectionFailed: the stream ended before the reply did.
        """
        if self._finish is None:
            raise ConnectionFailed(
                f"{self._endpoint}: the reply broke off after "
                f"{sum(map(len, self._text['content']))} characters, before the server said that it is complete"
            )
        lists = dict(self._lists)
        logprobs = lists.pop("logprobs", [])
        choice: dict[str, Any] = {
            "message": {key: "".join(parts) for key, parts in self._text.items()}
            | {"tool_calls": [{k: c[k] for k in ("id", "function")} for c in self._calls]},
            "finish_reason": self._finish,
            "logprobs": {"content": logprobs} if logprobs else None,
            **lists,
        }
        return json.dumps({"choices": [choice], **self._whole}).encode()

    def _add_call(self, piece: Mapping[str, Any]) -> None:
        """Takes a piece of a tool call: the first name counts, arguments are strung together."""
        function: Mapping[str, Any] = piece.get("function") or {}
        call = self._call_of(piece, names=bool(function.get("name")))
        call["id"] = call["id"] or piece.get("id") or None
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
        call = {"index": index, "id": None, "function": {"name": "", "arguments": ""}}
        self._calls.append(call)
        return call
