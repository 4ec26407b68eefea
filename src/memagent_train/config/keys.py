"""All keys of a settings class, and suggestions for mistyped ones."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel

from memagent.texts import nearest

KIND = re.compile(r"\[(\w+)\]")
"""The kind of a list's entry in a name of `list_keys`."""
CLOSE, VERY_CLOSE = 0.6, 0.8
"""difflib's default, as in `nearest`; and between `name` for `games` (0.67) and `file` for `files` (0.89)."""


def list_keys(settings: type[BaseModel]) -> tuple[str, ...]:
    """Lists the dotted names of all keys and sections.

    Entries of a list have no index; where they are of several kinds, the list's name is followed by the kind, as in
    `data.source[jsonl].files`.
    """
    return tuple(dict.fromkeys(_walk(settings, "", ())))


def find_nearest(key: str, known: tuple[str, ...]) -> str | None:
    """Returns the known key that `key` was probably meant to be, first from its own section; None if none is close.

    The same key of another kind of entry comes before a sibling that isn't very close.

    Args:
        key: dotted key as the user wrote it.
        known: from `list_keys`.
    """
    twins = [candidate for candidate in known if KIND.sub("", candidate) == KIND.sub("", key)]
    siblings = list_siblings(key, known)
    name = key.rpartition(".")[2]
    if close := get_close_matches(name, siblings, n=1, cutoff=VERY_CLOSE if twins else CLOSE):
        return siblings[close[0]]
    elsewhere = [candidate for candidate in known if candidate.rpartition(".")[2] == name]
    if same := twins or elsewhere:
        return same[0]
    # Siblings and the section have most of their text in common with any key of the section.
    near = {*siblings.values(), key.rpartition(".")[0]}
    return nearest(key, [candidate for candidate in known if candidate not in near])


def list_siblings(key: str, known: tuple[str, ...]) -> dict[str, str]:
    """Returns the known keys in the section of `key`, by their last part."""
    section = key.rpartition(".")[0]
    parts = (candidate.rpartition(".") for candidate in known)
    return {name: prefix + dot + name for prefix, dot, name in parts if prefix == section}


def _walk(
    settings: type[BaseModel], prefix: str, above: tuple[type[BaseModel], ...]
) -> Iterator[str]:
    for name, field in settings.model_fields.items():
        yield prefix + name
        for inner in _models_in(field.annotation):
            kinds = get_args(getattr(inner.model_fields.get("kind"), "annotation", None))
            section = prefix + name + "".join(f"[{kind}]" for kind in kinds)
            if inner not in (*above, settings):  # a class in itself would have endless keys
                yield from _walk(inner, f"{section}.", (*above, settings))


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yields the settings classes in an annotation: itself, or inside unions, lists and tables."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        return
    for part in get_args(annotation):
        yield from _models_in(part)
