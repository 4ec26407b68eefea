"""Plays one multi-turn task of BFCL inside a sandbox: one line of JSON in, one out.

A sandbox gets this text and nothing of memagent, so both players have a loop of their own.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

PACKAGE = "bfcl_eval.eval_checker.multi_turn_eval"


def main() -> None:
    """Serves requests until the other side closes."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    talk: Talk | None = None
    for line in requests:
        request = json.loads(line)
        try:
            if talk is None:
                talk = Talk(request)
                reply = {"tools": talk.tools(), "added": talk.added()}
            elif "check" in request:
                reply = talk.check()
            else:
                reply = talk.call(request)
        except BaseException as error:  # noqa: BLE001 - whatever foreign code raises is its outcome
            reply = {"problem": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(reply, default=str).encode() + b"\n")
        replies.flush()


class Talk:
    """A conversation."""

    def __init__(self, start: dict[str, str]) -> None:
        sys.path.insert(0, start["folder"])
        self._data = Path(start["folder"], "bfcl_eval/data")
        self._entry = _row(self._data / start["file"], start["id"])
        self._truth = _row(self._data / "possible_answer" / start["file"], start["id"])
        backend: Any = importlib.import_module("bfcl_eval.constants.executable_backend_config")
        self._files = backend.MULTI_TURN_FUNC_DOC_FILE_MAPPING
        self._execute: Any = importlib.import_module(f"{PACKAGE}.multi_turn_utils")
        self._checker: Any = importlib.import_module(f"{PACKAGE}.multi_turn_checker")
        self._turns: list[list[list[str]]] = [[] for _ in range(len(self._entry["question"]))]

    def tools(self) -> list[Any]:
        """The tools of the classes that the task has, but for those that it excludes."""
        excluded = self._entry.get("excluded_function", ())
        return [
            doc
            for name in self._entry["involved_classes"]
            for doc in _rows(self._data / "multi_turn_func_doc" / self._files[name])
            if doc["name"] not in excluded
        ]

    def added(self) -> str:
        """What the user says where tools are added."""
        if not self._entry.get("missed_function"):
            return ""
        words: Any = importlib.import_module("bfcl_eval.constants.default_prompts")
        return words.DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC

    def call(self, request: dict[str, Any]) -> dict[str, Any]:
        """One call, as Python writes it."""
        arguments = ", ".join(f"{name}={value!r}" for name, value in request["arguments"].items())
        source = f"{request['call']}({arguments})"
        self._turns[int(request["turn"])].append([source])
        results, _ = self._run([source])
        return {"text": results[0]}

    def _run(self, calls: list[str]) -> Any:
        entry = self._entry
        return self._execute.execute_multi_turn_func_call(
            func_call_list=calls,
            initial_config=entry["initial_config"],
            involved_classes=entry["involved_classes"],
            model_name="played",
            test_entry_id=entry["id"],
            long_context="long_context" in entry["id"],
        )

    def check(self) -> dict[str, Any]:
        """What BFCL's checker says of all turns."""
        category = self._entry["id"].rsplit("_", 1)[0]
        truth = self._truth["ground_truth"]
        verdict = self._checker.multi_turn_checker(
            self._turns, truth, self._entry, category, "checked"
        )
        return {"valid": bool(verdict["valid"]), "why": str(verdict.get("error_type", ""))}


def _rows(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def _row(path: Path, name: str) -> dict[str, Any]:
    return next(row for row in _rows(path) if row["id"] == name)


main()
