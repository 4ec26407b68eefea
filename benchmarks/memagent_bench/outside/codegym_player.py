"""Plays one environment of CodeGym inside a sandbox: one line of JSON in, one out. Standard library only.

A sandbox gets this text and nothing of memagent, so both players have a loop of their own.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
import types
from typing import Any

ARGUMENT = re.compile(r"^\s*(\w+)\s*\(([^)]*)\)\s*:", re.MULTILINE)
HIDDEN = re.compile(r"\n\s*Example Output:.*", re.DOTALL)
"""Shows the form of a result, and is not shown to models."""


def main() -> None:
    """Serves requests until the other side closes."""
    # The pipes are only for requests: what the environment prints goes nowhere, and it has nothing to read.
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    game: Game | None = None
    for line in requests:
        request = json.loads(line)
        try:
            if game is None:
                game = Game(request)
                reply = {"tools": game.describe()}
            else:
                reply = game.solve() if "solve" in request else game.call(request["call"])
        except BaseException as error:  # noqa: BLE001 - whatever foreign code raises is its outcome
            reply = {"problem": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(reply, default=str).encode() + b"\n")
        replies.flush()


class Game:
    """An environment."""

    def __init__(self, start: dict[str, str]) -> None:
        # Environments derive from gymnasium's class and use nothing of it, so it needn't be installed.
        gymnasium: Any = types.ModuleType("gymnasium")
        gymnasium.Env = type("Env", (), {})
        sys.modules["gymnasium"] = sys.modules["gym"] = gymnasium
        module: Any = types.ModuleType("environment")
        exec(compile(start["code"], start["name"] + ".py", "exec"), module.__dict__)
        self._make, self._parameters = getattr(module, start["name"]), start["parameters"]
        self._env = self._fresh()

    def _fresh(self) -> Any:
        env = self._make.from_env_str(self._parameters)
        if env is None:
            raise ValueError("from_env_str takes no such parameters")
        return env

    def describe(self) -> list[dict[str, Any]]:
        """The tools: those that the environment maps to methods."""
        return [_describe(name, getattr(self._env, name)) for name in self._env.func_mapping]

    def call(self, call: dict[str, Any]) -> dict[str, Any]:
        """One step."""
        _, text = self._env.step(json.dumps(call))
        return {
            "text": str(text),
            "finished": bool(self._env.finished),
            "reward": float(self._env.reward),
        }

    def solve(self) -> dict[str, Any]:
        """The calls that the environment's solution makes."""
        env, calls = self._fresh(), list[Any]()
        step = env.step

        def note(action: str) -> Any:
            calls.append(json.loads(action))
            return step(action)

        env.step = note
        env.solve()
        return {"calls": calls}


def _describe(name: str, method: Any) -> dict[str, Any]:
    about = inspect.getdoc(method) or ""
    type_names = dict(ARGUMENT.findall(about))
    parameters = [
        {
            "name": parameter.name,
            "type": _type(parameter.annotation) or type_names.get(parameter.name, ""),
            "needed": parameter.default is inspect.Parameter.empty,
        }
        for parameter in inspect.signature(method).parameters.values()
    ]
    return {"name": name, "about": HIDDEN.sub("", about).strip(), "parameters": parameters}


def _type(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    return (
        annotation.__name__
        if isinstance(annotation, type)
        else str(annotation).removeprefix("typing.")
    )


main()
