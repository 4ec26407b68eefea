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
        self._text: dict[str, list[str]] = {"content": [], "reasoning": [], "reasoning_content": []}
        self._lists: dict[str, list[Any]] = {}
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
            "message": {key: "".join(parts) for key, parts in self._text.items()},
            "finish_reason": self._finish,
            "logprobs": {"content": logprobs} if logprobs else None,
            **lists,
        }
        return json.dumps({"choices": [choice], **self._whole}).encode()
