"""Settings from a TOML file and `--set key=value`, validated; every error names its file, key and value."""

import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from memagent.errors import ConfigError
from memagent.texts import expand
from memagent_train.config.keys import KIND, find_nearest, list_keys, list_siblings
from memagent_train.config.toml import Table, read_toml

S = TypeVar("S", bound=BaseModel)
UNKNOWN = "extra_forbidden"
NO_LIST = ("tuple_type", "list_type")
"""What pydantic reports for a value that should be a list."""


def load(settings: type[S], file: Path, overrides: Sequence[str] = ()) -> S:
    """Loads settings.

    Args:
        settings: their class.
        file: TOML; relative paths in it, and in `overrides`, are relative to its folder.
        overrides: `section.key=value`; the value is TOML, or else a plain string. A number in the key
            is an index into a list.

    Raises:
        ConfigError: the file can't be read; a key is unknown (the closest known one is named); a value is wrong
            (file, key and value are named). Several errors are reported at once.
    """
    tables = read_toml(file)
    override_keys = [_set(tables, override) for override in overrides]
    where = str(file)
    _refuse_no_numbers(tables, where, override_keys)
    try:
        # As strict JSON: "3" isn't a number and 1 isn't a boolean, but a list may fill a tuple.
        read = settings.model_validate_json(json.dumps(tables, default=_not_plain), strict=True)
    except ValidationError as error:
        keys = list_keys(settings)
        problems, bad = error.errors(), [detail["loc"] for detail in error.errors()]
        # pydantic also reports a list with wrong items as too short.
        within = {loc[:n] for loc in bad for n in range(len(loc))}
        lines = [
            _explain(problem, tables, where, override_keys, keys)
            for problem in problems
            if problem["loc"] not in within
        ]
        raise ConfigError("\n".join(dict.fromkeys(lines))) from error
    except ConfigError as error:  # raised by a class that checks several settings together
        raise ConfigError(f"{where}: {error}") from error
    return cast("S", _anchor(read, file.resolve().parent))


def _set(tables: Table, override: str) -> str:
    """Applies one override.

    Returns:
        Its dotted key, or that of the first section that it adds.
    """
    key, equals, text = override.partition("=")
    key = key.strip()
    if not equals or not key:
        raise ConfigError(
            f"--set {override!r}: write section.key=value, as in optimizer.learning_rate=1e-6"
        )
    path = _path_of(key, override)
    place: Any = tables
    depth = len(path)
    for before, part in enumerate(path[:-1]):
        if isinstance(place, list):
            place = _item(cast("list[Any]", place), part, override)
        elif isinstance(place, dict):
            if part not in place:
                depth = min(depth, before + 1)
            place = cast("Table", place).setdefault(part, {})
        else:
            raise ConfigError(f"--set {override!r}: the part before {part!r} is not a section")
    value = value_of(text)
    if isinstance(place, list):
        items = cast("list[Any]", place)
        _item(items, path[-1], override)
        items[int(path[-1])] = value
    elif isinstance(place, dict):
        place[path[-1]] = value
    else:
        raise ConfigError(f"--set {override!r}: the part before {path[-1]!r} is not a section")
    return ".".join(path[:depth])


def _path_of(key: str, override: str) -> list[str]:
    try:
        parsed: Any = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"--set {override!r}: {key!r} is not a valid key ({error})") from error
    path: list[str] = []
    while isinstance(parsed, dict):
        ((part, parsed),) = cast("Table", parsed).items()
        path.append(part)
    return path


def _item(items: list[Any], part: str, override: str) -> Any:
    if not part.isdecimal() or int(part) >= len(items):
        raise ConfigError(
            f"--set {override!r}: the list has {len(items)} entries, numbered from 0, but no {part!r}"
        )
    return items[int(part)]


def value_of(text: str) -> Any:
    """Parses the value of an override: TOML, or else plain text."""
    try:
        parsed = tomllib.loads(f"value = {text.strip()}")
    except tomllib.TOMLDecodeError:
        return text
    return parsed["value"] if len(parsed) == 1 else text


def _not_plain(value: object) -> str:
    """Converts dates and times, which no setting accepts, to text that fails with the name of their key."""
    return str(value)


def _refuse_no_numbers(value: Any, where: str, override_keys: Sequence[str], key: str = "") -> None:
    if isinstance(value, float) and not math.isfinite(value):
        source = _find_source(key, where, override_keys)
        raise ConfigError(f"{source}: {key} = {value!r}: give a finite number")
    for name, inner in _inside(value):
        _refuse_no_numbers(inner, where, override_keys, f"{key}.{name}" if key else name)


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from cast("Mapping[str, Any]", value).items()
    elif isinstance(value, list):
        yield from ((str(n), inner) for n, inner in enumerate(cast("list[Any]", value)))


def _explain(
    error: ErrorDetails,
    tables: Table,
    where: str,
    override_keys: Sequence[str],
    keys: tuple[str, ...],
) -> str:
    """Returns one line for one pydantic error."""
    path, listed = _read_place(error["loc"], tables)
    key = ".".join(path)
    source = _find_source(key, where, override_keys)
    if error["type"] == UNKNOWN:
        return f"{source}: there is no setting {key!r}; {_hint(path, listed, keys)}"
    if error["type"] == "missing":
        return f"{source}: {key} is missing: give it in the file, or with --set {key}=..."
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] in NO_LIST and any(
        KIND.sub("", name).startswith(f"{listed}.") for name in keys
    ):
        message = f"this is a list of sections: write each as [[{key}]] in the file, or --set {key}=[{{...}}]"
    return f"{source}: {key or 'the settings'} = {_shorten(error['input'])}: {message}"


def _hint(path: list[str], listed: str, keys: tuple[str, ...]) -> str:
    """Says what an unknown key was probably meant to be; see `_read_place` for `path` and `listed`."""
    near = find_nearest(listed, keys)
    section, all_keys = ".".join(path[:-1]), "memagent-train config shows all keys"
    if near is None:
        names = ", ".join(list_siblings(listed, keys))
        return f"{section} has {names}" if section and names else all_keys
    kind, bare, written = KIND.search(near), KIND.sub("", near), KIND.sub("", listed)
    if kind and bare == written:
        return f"it is a setting of kind = {kind[1]!r}"
    if bare.rpartition(".")[0] == written.rpartition(".")[0]:  # with the index of a list's entry
        bare = ".".join((*path[:-1], bare.rpartition(".")[2]))
    if kind and near.rpartition(".")[0] != listed.rpartition(".")[0]:
        return f"did you mean {bare}? (It is a setting of kind = {kind[1]!r}.)"
    return f"did you mean {bare}?"


def _find_source(key: str, where: str, override_keys: Sequence[str]) -> str:
    """Returns what gave a key its value: the file, or an override of the key or of a section with it."""
    overridden = any(f"{key}.".startswith(f"{override}.") for override in override_keys)
    return "--set" if overridden else where


def _read_place(place: tuple[int | str, ...], tables: Table) -> tuple[list[str], str]:
    """Returns the parts of the key at pydantic's `loc`, and its name as in `list_keys`.

    After the number of a list's entry, pydantic adds the entry's kind, if there are several.
    """
    path: list[str] = []
    listed = ""
    value: Any = tables
    for before, part in zip((None, *place), place, strict=False):
        entry = cast("Table", value) if isinstance(value, dict) else {}
        if isinstance(before, int) and entry.get("kind") == part:
            listed += f"[{part}]"
            continue
        path.append(str(part))
        listed += "" if isinstance(part, int) else f".{part}" if listed else part
        value = dict(_inside(value)).get(str(part))
    return path, listed


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else text[:99] + "…"


def _anchor(value: Any, base: Path) -> Any:
    """Returns the settings with all relative paths made absolute."""
    if isinstance(value, Path):
        return base / expand(value)
    if isinstance(value, BaseModel):
        changed = {
            name: new
            for name, old in value
            if (new := _anchor(old, base)) is not old and new != old
        }
        return value.model_copy(update=changed) if changed else value
    if isinstance(value, tuple):
        items = cast("tuple[Any, ...]", value)
        return tuple(_anchor(item, base) for item in items)
    if isinstance(value, list):
        return [_anchor(item, base) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _anchor(item, base) for key, item in cast("Table", value).items()}
    return value
