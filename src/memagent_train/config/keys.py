"""All keys of a settings class, and suggestions for mistyped ones."""

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel

from memagent.texts import nearest


def list_keys(settings: type[BaseModel]) -> tuple[str, ...]:
    """Lists the dotted names of all keys and sections.

    Entries of a list have no index; where they are of several kinds, the list's name is followed by the kind, as in
    `data.source[jsonl].files`.
    """
    return tuple(dict.fromkeys(_walk(settings, "", ())))


def find_nearest(key: str, known: tuple[str, ...]) -> str | None:
    """Returns the known key that `key` was probably meant to be, first from its own section; None if none is close.

    Args:
        key: dotted key as the user wrote it.
        known: from `list_keys`.
    """
    section, _, name = key.rpartition(".")
    siblings = {
        candidate.rpartition(".")[2]: candidate
        for candidate in known
        if candidate.rpartition(".")[0] == section
    }
    if sibling := nearest(name, siblings):
        return siblings[sibling]
    elsewhere = [candidate for candidate in known if candidate.rpartition(".")[2] == name]
    if elsewhere:
        return elsewhere[0]
    return nearest(key, known)


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
