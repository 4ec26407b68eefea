"""The arguments of a Python function: their schema for a model, and how a model's JSON is converted."""

import inspect
import json
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo

from memagent.errors import BadArguments, ConfigError
from memagent.schemas import JsonForm
from memagent.texts import clip, message, quote
from memagent.tools.base import ToolContext

PROBLEMS = 10
"""Maximum invalid arguments reported at once: a model fixes no more in one go."""
SCHEMA_CHARS = 1000
"""Characters of the schema shown with invalid arguments: the model has all of it in its prompt."""
_UNFIT = (PydanticUserError, PydanticUndefinedAnnotation, TypeError, NameError, SyntaxError)
"""What pydantic and typing raise for an unsupported annotation."""

_HEADING = r"(?:Args|Arguments|Parameters):[^\S\n]*"
_SECTION = re.compile(rf"^{_HEADING}\n((?:[^\S\n].*\n|\n)*)", re.MULTILINE)
_ENTRY = re.compile(r"(\w+)\s*(?:\([^()]*(?:\([^()]*\)[^()]*)*\))?\s*:(.*)", re.DOTALL)


@dataclass(frozen=True)
class Signature:
    """A function's parameters."""

    function: Callable[..., Any]
    signature: inspect.Signature
    model: type[BaseModel]
    """One field per parameter, with the parameter's name as its alias, since any name may occur."""
    schema: Mapping[str, JsonValue]
    """JSON schema of the arguments, of type object."""
    contexts: tuple[str, ...] = ()
    """Parameters that get the `ToolContext`."""

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Self:
        """Reads a function's parameters, type hints and docstring.

        Raises:
            ConfigError: a parameter can't be described to a model; the message names it and the remedy.
        """
        who = getattr(function, "__qualname__", repr(function))
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{who} has no readable signature; wrap it in a function") from error
        descriptions = _read_descriptions(function)
        fields: dict[str, Any] = {}
        contexts: list[str] = []
        name = "?"
        try:
            for place, (name, parameter) in enumerate(signature.parameters.items()):
                hint = _hint(who, function, parameter)
                if hint is ToolContext or ToolContext in typing.get_args(hint):
                    contexts.append(name)
                    continue
                default = ... if parameter.default is parameter.empty else parameter.default
                if isinstance(default, FieldInfo):
                    hint, default = cast("Any", typing.Annotated[hint, default]), default.default
                # One at a time first, to find the parameter whose hint pydantic doesn't support.
                TypeAdapter(hint).json_schema(schema_generator=JsonForm)
                description = FieldInfo.from_annotation(hint).description or descriptions.get(name)
                if default is None:
                    hint = _add_none(hint)
                fields[f"p{place}"] = hint, Field(default, alias=name, description=description)
            model = create_model("Arguments", __config__=ConfigDict(extra="forbid"), **fields)
            schema = _drop_titles(model.model_json_schema(schema_generator=JsonForm))
        except _UNFIT as error:
            reason = message(error).partition("\n")[0]
            raise ConfigError(
                f"{who}: the type of its parameter {name!r} cannot be described to a model ({clip(reason, 300)}); "
                f"use a type that has a JSON form, such as str, int, list[str], an Enum or a pydantic model"
            ) from error
        return cls(function, signature, model, schema, tuple(contexts))

    def bind(
        self, arguments: Mapping[str, Any], context: ToolContext | None = None
    ) -> Callable[[], Any]:
        """Returns the call with a model's arguments, checked and converted, and the context if the function takes it.

        Raises:
            BadArguments: they are invalid; the message has a line for each wrong one.
        """
        try:
            values = self.model.model_validate(dict(arguments))
        except ValidationError as error:
            try:  # from JSON, strict types accept a date as text
                values = self.model.model_validate_json(json.dumps(arguments))
            except ValueError:
                raise BadArguments(self._explain(error)) from None
        except RecursionError:
            raise BadArguments("the arguments are nested too deeply; write flatter ones") from None
        values_by_name = {
            name: context if name in self.contexts else getattr(values, f"p{place}")
            for place, name in enumerate(self.signature.parameters)
        }
        bound = inspect.BoundArguments(self.signature, values_by_name)
        return partial(self.function, *bound.args, **bound.kwargs)

    def _explain(self, error: ValidationError) -> str:
        problems = error.errors(include_url=False, include_context=False)
        lines = [self._line(cast("dict[str, Any]", problem)) for problem in problems[:PROBLEMS]]
        if len(problems) > PROBLEMS:
            lines.append(f"- and {len(problems) - PROBLEMS} more")
        schema = clip(json.dumps(self.schema, ensure_ascii=False), SCHEMA_CHARS)
        return "\n".join(["the arguments do not fit:", *lines, f"Expected: {schema}"])

    def _line(self, problem: dict[str, Any]) -> str:
        location = clip(".".join(map(str, problem["loc"])) or "arguments", 200)
        if problem["type"] == "missing":
            return f"- {location}: missing"
        if problem["type"] == "extra_forbidden" and len(problem["loc"]) == 1:
            parameters = (name for name in self.signature.parameters if name not in self.contexts)
            names = ", ".join(parameters) or "none"
            return f"- {location}: there is no such argument; those there are: {clip(names, 300)}"
        return f"- {location}: {clip(problem['msg'].removeprefix('Value error, '), 300)}, not {quote(problem['input'])}"


def _hint(function_name: str, function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """Resolves the type hint of a parameter, even if the function's hints are strings."""
    name = parameter.name
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise ConfigError(
            f"{function_name}: {str(parameter).partition(':')[0]!r} cannot be described to a model; name each "
            f"parameter, or use one of type list or dict"
        )
    if parameter.annotation is parameter.empty:
        raise ConfigError(
            f"{function_name}: parameter {name!r} has no type hint; add one, such as {name}: str"
        )
    holder = type("Holder", (), {"__annotations__": {name: parameter.annotation}})
    names = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return typing.get_type_hints(holder, names, {}, include_extras=True)[name]
    except Exception as error:  # a hint is an expression, which can do whatever expressions do
        raise ConfigError(
            f"{function_name}: the type hint {parameter.annotation!r} of its parameter {name!r} cannot be resolved "
            f"({error}); import or define that type at the top level of the module"
        ) from error


def summary(function: Callable[..., Any]) -> str:
    """Returns the first paragraph of a function's docstring, as one line."""
    text = (inspect.getdoc(function) or "").strip()
    # A docstring that begins with its arguments has no summary.
    if re.match(rf"{_HEADING}$", text, re.MULTILINE):
        return ""
    return " ".join(re.split(r"\n\s*\n", text, maxsplit=1)[0].split())


def _read_descriptions(function: Callable[..., Any]) -> dict[str, str]:
    """Returns the description of each parameter in the section `Args:`, as one line each."""
    section = _SECTION.search(f"{inspect.getdoc(function) or ''}\n")
    text = section[1] if section else ""
    lines = [line for line in text.splitlines() if line.strip()] or [""]
    # Lines indented more than the first continue the line before.
    depth = len(lines[0]) - len(lines[0].lstrip())
    entries = re.split(rf"\n(?!\s{{{depth + 1}}})", "\n".join(lines))
    matches = (_ENTRY.fullmatch(entry.strip()) for entry in entries)
    return {entry[1]: " ".join(entry[2].split()) for entry in matches if entry}


def _drop_titles(node: Any) -> Any:
    """Returns the schema without the titles that pydantic derives from names, which only cost tokens."""
    if isinstance(node, list):
        return [_drop_titles(part) for part in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    result: dict[str, Any] = {}
    for key, value in cast("dict[str, Any]", node).items():
        if key in ("properties", "$defs"):
            result[key] = {name: _drop_titles(schema) for name, schema in value.items()}
        elif key in ("default", "const", "enum", "examples"):
            result[key] = value
        elif key != "title":
            result[key] = _drop_titles(value)
    return result


def _add_none(hint: Any) -> Any:
    """Returns the hint of a parameter whose default is None (`x: int = None`), so that it takes None."""
    if typing.get_origin(hint) is not typing.Annotated:
        return hint if hint is Any else hint | None
    base, *metadata = typing.get_args(hint)
    fields = [item for item in metadata if isinstance(item, FieldInfo)]  # of the parameter
    validators = [item for item in metadata if not isinstance(item, FieldInfo)]  # not for None
    hint = typing.Annotated[(base, *validators)] if validators else base
    return typing.Annotated[(hint | None, *fields)] if fields else hint | None
