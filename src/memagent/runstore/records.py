"""What the run store holds: runs with their bindings, and effects under keys."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast


@dataclass(frozen=True)
class RunRecord:
    """One row of the store's list of runs."""

    id: str
    created: float
    """Seconds since the epoch."""
    updated: float
    status: str
    """`running` (or killed), `stopped` (resumable), `finished`."""
    binding: dict[str, Any]
    """What the run is bound to: model, questions, prompt set, counter, budget, cuts, seed."""
    settings: dict[str, Any]
    """What is needed to recreate the agent."""
    source: dict[str, Any]
    """The document's name, path and options."""


@dataclass(frozen=True)
class Begun:
    """An effect about to be made, or already made."""

    body: dict[str, Any] | None
    """The committed body; None if the effect is still pending."""
    sent: int
    """How often it was begun without an outcome, since it was in flight when a session ended."""
    wasted: int
    """How often it was made but unusable."""


def split_key(key: str) -> tuple[str, int]:
    """Splits an effect's key into kind and number: `update-12/q0` is number 12 of kind `update/q0`.

    The number defaults to 0: `answer/q0`. What follows the number is part of the kind: `tool-3-1`, the second call of
    step 3, is number 3 of kind `tool-1`.

    Raises:
        ValueError: it does not start with the name of a kind.
    """
    match = re.match(r"([a-z]+)(?:-(\d+))?", key)
    if match is None:
        raise ValueError(f"effect key {key!r} must start with the name of a kind in lower case")
    return match[1] + key[match.end() :], int(match[2] or 0)


def escape_body(body: Mapping[str, Any]) -> str:
    """Returns an effect's body as JSON, with lone surrogates escaped."""
    return json.dumps(body, ensure_ascii=False).encode(errors="backslashreplace").decode()


def flatten(fields: Mapping[str, Any], within: str = "") -> dict[str, Any]:
    """Returns the fields, with nested ones under paths such as `budget.memory`."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        path, subfields = within + name, cast("dict[str, Any]", value)
        flat |= flatten(subfields, f"{path}.") if isinstance(value, dict) else {path: value}
    return flat


def list_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Lists the values in which two mappings differ; empty if they are the same."""
    return "; ".join(
        f"{name} was {before.get(name)!r}, is {now.get(name)!r}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    )
