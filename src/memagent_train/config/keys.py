"""All keys of a settings class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel


def list_keys(settings: type[BaseModel]) -> tuple[str, ...]:
    """Dotted names of all keys and sections; elements of lists are named without their index, but with their kind."""
    return tuple(dict.fromkeys(_walk(settings, "", ())))


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
