"""All keys of a settings class, and suggestions for mistyped ones."""

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel

from memagent.texts import nearest


def list_keys(settings: type[BaseModel]) -> tuple[str, ...]:
    """Dotted names of all keys and sections; elements of lists are named without their index, but with their kind."""
    return tuple(dict.fromkeys(_walk(settings, "", ())))


def find_nearest(key: str, known: tuple[str, ...]) -> str | None:
    """The known key that `key` was probably meant to be: from its section, else another; None if none is close.

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
            if inner not in (*above, settings):  # a class that holds itself has no end of keys
                yield from _walk(inner, ".".join((prefix + name, *kinds, "")), (*above, settings))


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Settings classes in an annotation: itself, or inside unions, lists and tables."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        return
    for part in get_args(annotation):
        yield from _models_in(part)
