"""A command whose options are the fields of a dataclass: declared once, shared by several commands."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import MISSING, fields
from inspect import Parameter, Signature, get_annotations
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    T = TypeVar("T", bound=DataclassInstance)
else:
    T = TypeVar("T")


def command_of(
    options: type[T], run: Callable[[T], None], *, without: Collection[str] = ()
) -> Callable[..., None]:
    """A function that typer can make a command of.

    Args:
        options: a dataclass whose fields are annotated as parameters of a command are.
        run: gets the filled dataclass; its docstring is the help.
        without: fields that this command does not offer; they keep their defaults.
    """
    hints = get_type_hints(options, include_extras=True)
    # What a class adds comes before what it inherits: that is what its command is about.
    added = [get_annotations(one) for one in options.__mro__]
    offered = sorted(
        (field for field in fields(options) if field.name not in without),
        key=lambda field: next(n for n, names in enumerate(added) if field.name in names),
    )

    def command(**given: Any) -> None:
        run(options(**given))

    parameters = [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in offered
    ]
    command.__doc__ = run.__doc__
    command.__annotations__ = {field.name: hints[field.name] for field in offered}
    # What typer looks at; a function has no such attribute of its own.
    setattr(command, "__signature__", Signature(parameters))  # noqa: B010
    return command
