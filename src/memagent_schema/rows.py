"""Rows that a JSON schema describes, checked with jsonschema. A schema fetches nothing, and no pattern hangs."""

import json
from collections.abc import Callable, Iterator
from datetime import datetime, time
from fractions import Fraction
from functools import lru_cache
from itertools import groupby
from typing import Any, cast

import jsonschema
from pydantic import AnyUrl, BaseModel, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError, SchemaError, SchemaValidator
from pydantic_core.core_schema import str_schema
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import specification_with

from memagent.texts import quote

js = cast("Any", jsonschema)  # it has no type hints
DRAFTS: dict[str, Any] = {
    draft.META_SCHEMA["$schema"].rstrip("#"): draft
    for draft in (
        js.Draft202012Validator,
        js.Draft201909Validator,
        js.Draft7Validator,
        js.Draft6Validator,
        js.Draft4Validator,
    )
}
"""By `$schema`; the first is the default."""
REFUSED = {
    "nullable": 'is not JSON Schema: write `"type": ["string", "null"]`',
    "patternProperties": "is not supported: use `propertyNames` and `additionalProperties`",
}
"""OpenAPI's keyword, and one whose patterns jsonschema leaves to `re`, which may take forever."""
REFERENCES = {"$dynamicRef", "$recursiveRef", "$ref"}
FORMATS = js.FormatChecker(("date", "email", "ipv4", "ipv6", "uuid"))
"""Those that jsonschema checks without other packages, and the ones below."""


@FORMATS.checks("date-time", ValueError)
def _is_date_time(text: Any) -> bool:
    return not isinstance(text, str) or (":" in text and bool(datetime.fromisoformat(text)))


@FORMATS.checks("time", ValueError)
def _is_time(text: Any) -> bool:
    return not isinstance(text, str) or bool(time.fromisoformat(text))


@FORMATS.checks("uri", ValueError)
def _is_uri(text: Any) -> bool:
    return not isinstance(text, str) or bool(AnyUrl(text))


def make_model(schema: Any) -> type[BaseModel] | None:
    """Makes a model of the objects that a schema describes. Returns None if it names no properties of an object.

    The model's `model_json_schema` is the schema. An object keeps what was written, but for optional properties that
    are null where their schema doesn't allow it: they count as absent.

    Raises:
        ValueError: it is not JSON, breaks a rule of its draft, or has a keyword of `REFUSED`.
    """
    try:
        root = json.loads(json.dumps(schema, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{error}; use only what JSON has: no set, date or NaN") from error
    if not isinstance(root, dict):
        return None
    uri = cast("dict[str, Any]", root).get("$schema", next(iter(DRAFTS)))
    draft = DRAFTS.get(str(uri).rstrip("#"))
    if draft is None:
        raise ValueError(f"its `$schema` must be one of {', '.join(DRAFTS)}, got {quote(uri)}")
    resolver, names = _check_schema(root, draft)
    if not names or "object" not in cast("dict[str, Any]", root).get("type", "object"):
        return None
    nothing: Any = Registry[Any]()  # without it, jsonschema may fetch what a `$ref` names
    checker = js.validators.extend(draft, KEYWORDS)(root, registry=nothing, format_checker=FORMATS)

    class Row(BaseModel, extra="allow"):
        """An object that follows the schema."""

        @model_validator(mode="before")
        @classmethod
        def _check(cls, row: Any) -> Any:
            try:
                row = json.loads(json.dumps(row, allow_nan=False), parse_float=_read_number)
                _drop_nulls(row, root, resolver, checker)
                problems = list(map(_describe, checker.iter_errors(row)))
            except RecursionError:
                problems = [((), "it is nested too deeply, or a `$ref` leads back to itself")]
            except ValueError:
                problems = [((), "a number is NaN or infinite, which JSON lacks")]
            is_object = isinstance(cast("object", row), dict)
            if is_object and all(row.get(name) is None for name in names):
                problems = [((), "it has none of the schema's fields")]
            if problems:
                raise ValidationError.from_exception_data("Row", list(map(_as_error, problems)))
            return row

        @classmethod
        def model_json_schema(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
            return schema

    return Row


def _as_error(problem: tuple[tuple[str | int, ...], str]) -> InitErrorDetails:
    path, text = problem
    kind = PydanticCustomError("schema", "{text}", {"text": text})
    return InitErrorDetails(type=kind, loc=path, input="")


def _read_number(text: str) -> float:
    """Reads 7.0 like 7, which are equal in JSON."""
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _drop_nulls(value: Any, schema: Any, resolver: Any, checker: Any) -> None:
    """Removes optional properties that are null where their schema doesn't allow it, but not those of unions."""
    if isinstance(schema, bool):
        return
    for part in schema.get("allOf", ()):
        _drop_nulls(value, part, resolver, checker)
    if "$ref" in schema:
        target = resolver.lookup(schema["$ref"])
        _drop_nulls(value, target.contents, target.resolver, checker)
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in cast("list[Any]", value):
            _drop_nulls(item, schema["items"], resolver, checker)
    if not isinstance(value, dict):
        return
    row, required = cast("dict[str, Any]", value), schema.get("required", ())
    for name, part in schema.get("properties", {}).items():
        if row.get(name) is not None:
            _drop_nulls(row[name], part, resolver, checker)
        elif (
            name in row and name not in required and not checker.evolve(schema=part).is_valid(None)
        ):
            del row[name]


def _describe(problem: Any) -> tuple[tuple[str | int, ...], str]:
    """Returns where a problem is and what it is, without long values; for a union, what each branch wants."""
    branches = groupby(problem.context, lambda part: part.schema_path[0])
    parts = [js.exceptions.best_match(branch) for _, branch in branches] or [problem]
    texts: list[str] = []
    for part in parts:
        place = ".".join(map(str, list(part.absolute_path)[len(problem.absolute_path) :]))
        text = part.message.replace(repr(part.instance), quote(part.instance), 1)
        texts.append(f"{place}: {text}" if place else text)
    return tuple(problem.absolute_path), " or ".join(dict.fromkeys(texts))


# --- the keywords that rows need different from jsonschema's


def _divide(validator: Any, factor: float, number: Any, _schema: Any) -> Iterator[Any]:
    """Checks `multipleOf` in decimals: as floats, 19.99 and 0.01 leave a remainder."""
    if validator.is_type(number, "number"):
        ratio = Fraction(repr(number)) / Fraction(repr(factor))
        if ratio.denominator != 1:
            yield js.ValidationError(f"{number!r} is not a multiple of {factor}")


def _match(_validator: Any, pattern: str, text: Any, _schema: Any) -> Iterator[Any]:
    if isinstance(text, str) and not _matcher(pattern).isinstance_python(text):
        yield js.ValidationError(f"{text!r} does not match {pattern!r}")


@lru_cache
def _matcher(pattern: str) -> SchemaValidator:
    """Returns what pydantic matches a pattern with, in a time that is linear in the text."""
    try:
        return SchemaValidator(str_schema(pattern=pattern))
    except SchemaError as error:
        reason = str(error).splitlines()[-1].strip()
        raise ValueError(
            f"`pattern` {quote(pattern)} cannot be matched: {reason}; correct it, without look-around"
        ) from error


def _compare(_validator: Any, unique: bool, items: Any, _schema: Any) -> Iterator[Any]:
    """Checks `uniqueItems` in linear time: jsonschema compares each object with all others."""
    values = cast("list[Any]", items) if unique and isinstance(items, list) else []
    if len(set(map(_freeze, values))) < len(values):
        yield js.ValidationError(f"{items!r} has non-unique elements")


def _freeze(value: Any) -> Any:
    """Returns a hashable form that is the same for equal JSON: for 1 and 1.0, but not for true."""
    if isinstance(value, dict):
        return frozenset((k, _freeze(v)) for k, v in cast("dict[str, Any]", value).items())
    if isinstance(value, list):
        return tuple(map(_freeze, cast("list[Any]", value)))
    return isinstance(value, bool), value


KEYWORDS = {"multipleOf": _divide, "pattern": _match, "uniqueItems": _compare}


# --- the schema itself


def _check_schema(root: Any, draft: Any) -> tuple[Any, set[str]]:
    """Returns what resolves references, and the names of a row's properties.

    Removes each `$schema`: of a part that has one, jsonschema checks the keywords in its own way.
    """
    specification = specification_with(draft.META_SCHEMA["$schema"])
    rules = draft(draft.META_SCHEMA)

    def make_resource(part: Any) -> Any:
        problem = js.exceptions.best_match(rules.iter_errors(part))
        if problem is not None:
            path, text = _describe(problem)
            text = ": ".join(filter(None, (".".join(map(str, path)), text)))
            raise ValueError(f"{text}; correct it, or name the draft that it follows in `$schema`")
        return specification.create_resource(part)

    resource = make_resource(root)
    resolver = Registry[Any]().resolver_with_root(resource)
    for part in _parts(resource, resolver, make_resource, set()):
        part.pop("$schema", None)
        for keyword in sorted(part.keys() & REFUSED):
            raise ValueError(f"`{keyword}` {REFUSED[keyword]}")
        if "pattern" in part:
            _matcher(part["pattern"])
    return resolver, set(_names(root, resolver, set()))


def _parts(
    resource: Any, resolver: Any, make_resource: Callable[[Any], Any], seen: set[int]
) -> Iterator[dict[str, Any]]:
    """Yields the parts of a schema that are schemas, and what they refer to, each once, but for true and false."""
    part = resource.contents
    if isinstance(part, bool) or id(part) in seen:
        return
    seen.add(id(part))
    yield part
    resolver = resolver.in_subresource(resource)
    for keyword in REFERENCES & part.keys():
        target = _look_up(resolver, part[keyword])
        if id(target.contents) not in seen:
            yield from _parts(make_resource(target.contents), target.resolver, make_resource, seen)
    for inner in resource.subresources():
        yield from _parts(inner, resolver, make_resource, seen)


def _names(part: Any, resolver: Any, seen: set[int]) -> Iterator[str]:
    """Yields the names of an object's properties, wherever its schema has them."""
    if isinstance(part, bool) or id(part) in seen:
        return
    seen.add(id(part))
    yield from part.get("properties", ())
    for keyword in ("allOf", "anyOf", "oneOf"):
        for branch in part.get(keyword, ()):
            yield from _names(branch, resolver, seen)
    for keyword in REFERENCES & part.keys():
        target = _look_up(resolver, part[keyword])
        yield from _names(target.contents, target.resolver, seen)


def _look_up(resolver: Any, ref: str) -> Any:
    try:
        return resolver.lookup(ref)
    except (LookupError, TypeError, Unresolvable, ValueError) as error:
        raise ValueError(f"`$ref` {quote(ref)} is not in it; refer to '#/$defs/NAME'") from error
