"""TOML, read with clear errors and written so that it reads back the same."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from memagent.errors import ConfigError

BARE = re.compile(r"[A-Za-z0-9_-]+")
Table = dict[str, Any]


def read_toml(file: Path) -> Table:
    """The tables of a file. A byte order mark and Windows line ends are fine.

    Raises:
        ConfigError: it is missing, a folder, not UTF-8, or no TOML.
    """
    try:
        raw = file.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: it can be no path
        why = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"cannot read the settings {str(file)!r} ({why}): give a TOML file"
        ) from error
    try:
        return tomllib.loads(raw.decode("utf-8-sig").replace("\r\n", "\n"))
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{str(file)!r} is not UTF-8 (byte {error.start} is {raw[error.start]:#04x}): save it as UTF-8"
        ) from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{str(file)!r} is not TOML: {error}") from error


def written(tables: Mapping[str, Any]) -> str:
    """Plain data as TOML: values first, then a `[section]` for each table and a `[[section]]` for each of a list.

    Args:
        tables: strings, finite or infinite numbers, booleans, lists and mappings of those; no None.
    """
    return "\n".join(_blocks(tables, ())).lstrip("\n") + "\n"


def _blocks(table: Mapping[str, Any], path: tuple[str, ...], head: str = "") -> list[str]:
    lines = [f"{_key(key)} = {_value(one)}" for key, one in table.items() if not _tables(one)]
    if head and (lines or not table or head.startswith("[[")):
        lines.insert(0, f"\n{head}")
    for key, one in table.items():
        below = (*path, key)
        name = ".".join(map(_key, below))
        if isinstance(one, Mapping):
            lines += _blocks(cast("Table", one), below, f"[{name}]")
        elif _tables(one):
            for entry in one:
                lines += _blocks(entry, below, f"[[{name}]]")
    return lines


def _tables(value: object) -> bool:
    """Whether it stands in a block of its own: a table, or a list of nothing but tables."""
    if isinstance(value, (list, tuple)):
        items = cast("list[object]", value)
        return bool(items) and all(isinstance(item, Mapping) for item in items)
    return isinstance(value, Mapping)


def _key(key: str) -> str:
    return key if BARE.fullmatch(key) else _string(key)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, Mapping):
        inner = cast("Mapping[str, Any]", value)
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in inner.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, cast("list[Any]", value))) + "]"
    raise TypeError(f"TOML has no {type(value).__name__}: {value!r}")


def _string(text: str) -> str:
    """TOML's strings are those of JSON, but for DEL, which it wants escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
