"""Rows that a JSON schema describes, checked with jsonschema. A schema fetches nothing, and no pattern hangs."""

import copy
import json
from collections.abc import Callable, Iterator
from datetime import datetime, time
from fractions import Fraction
from functools import lru_cache
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
CHECKED = {keyword for draft in DRAFTS.values() for keyword in draft.VALIDATORS}
"""Keywords that a draft checks."""
REMEDIES = {
    "nullable": 'write `"type": ["string", "null"]`',
    "patternProperties": "use `propertyNames` and `additionalProperties`",
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
    are null: they count as absent.

    Raises:
        ValueError: it breaks a rule of its draft, or has parts that would not be checked.
    """
    root = json.loads(json.dumps(schema, allow_nan=False))
    if not isinstance(root, dict):
        return None
    uri = cast("dict[str, Any]", root).get("$schema", next(iter(DRAFTS)))
    draft = DRAFTS.get(str(uri).rstrip("#"))
    if draft is None:
        raise ValueError(f"its `$schema` must be one of {', '.join(DRAFTS)}, got {quote(uri)}")
    names = _check_schema(root, draft)
    if not names:
        return None
    row_draft = js.validators.extend(draft, KEYWORDS)
    pruning_draft = js.validators.extend(row_draft, PRUNING)
    nothing: Any = Registry[Any]()  # without it, jsonschema may fetch what a `$ref` names
    checker = row_draft(root, registry=nothing, format_checker=FORMATS)
    pruner = pruning_draft(root, registry=nothing)

    class Row(BaseModel, extra="allow"):
        """An object that follows the schema."""

        @model_validator(mode="before")
        @classmethod
        def _check(cls, row: Any) -> Any:
            try:
                row = json.loads(json.dumps(row, allow_nan=False), parse_float=_read_number)
            except ValueError as error:
                problem = "a number is NaN or infinite, which JSON lacks"
                raise PydanticCustomError("schema", problem) from error
            if isinstance(cast("object", row), dict) and names.isdisjoint(row):
                raise PydanticCustomError("schema", "it has none of the schema's fields")
            pruned = copy.deepcopy(row)
            try:
                list(pruner.iter_errors(pruned))
                for value in (pruned, row):
                    if checker.is_valid(value):
                        return value
                problems = list(map(_describe, checker.iter_errors(pruned)))
            except RecursionError:
                problems = [((), "it is nested too deeply")]
            errors: list[InitErrorDetails] = [
                {
                    "type": PydanticCustomError("schema", "{text}", {"text": text}),
                    "loc": path,
                    "input": "",
                }
                for path, text in problems
            ]
            raise ValidationError.from_exception_data("Row", errors)

        @classmethod
        def model_json_schema(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
            return schema

    return Row


def _read_number(text: str) -> float:
    """Reads 7.0 like 7, which are equal in JSON."""
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _describe(problem: Any) -> tuple[tuple[str | int, ...], str]:
    """Returns where the problem is, or the one of the likeliest branch, and what it is, without long values."""
    problem = js.exceptions.best_match([problem])
    lines = [
        p.message.replace(repr(p.instance), quote(p.instance), 1)
        for p in problem.context or [problem]
    ]
    return tuple(problem.absolute_path), " or ".join(dict.fromkeys(lines))


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
        raise ValueError(f"`pattern` {quote(pattern)} cannot be matched: {reason}") from error


def _require(_validator: Any, names: list[str], row: Any, _schema: Any) -> Iterator[Any]:
    """Has the missing property in the path, as pydantic does."""
    for name in names if isinstance(row, dict) else ():
        if name not in row:
            yield js.ValidationError(f"{name!r} is missing", path=[name])


def _drop_nulls(validator: Any, properties: Any, row: Any, schema: Any) -> Iterator[Any]:
    """Removes the optional properties that are null from the row."""
    for name in properties if isinstance(cast("object", row), dict) else ():
        if row.get(name, "") is None and name not in schema.get("required", ()):
            del row[name]
    return js.Draft202012Validator.VALIDATORS["properties"](validator, properties, row, schema)


def _skip(*_: Any) -> Iterator[Any]:
    """Looks for no nulls in a condition, whose properties need not be optional where it is met."""
    return iter(())


KEYWORDS = {"multipleOf": _divide, "pattern": _match, "required": _require}
PRUNING = dict.fromkeys(("contains", "if", "not"), _skip) | {"properties": _drop_nulls}


# --- the schema itself


def _check_schema(root: Any, draft: Any) -> set[str]:
    """Returns the names of a row's properties.

    Removes each `$schema`: of a part that has one, jsonschema checks the keywords in its own way.
    """
    specification, rules = (
        specification_with(draft.META_SCHEMA["$schema"]),
        draft(draft.META_SCHEMA),
    )

    def make_resource(part: Any) -> Any:
        problem = js.exceptions.best_match(rules.iter_errors(part))
        if problem is not None:
            path, text = _describe(problem)
            text = ": ".join(filter(None, (".".join(map(str, path)), text)))
            raise ValueError(f"{text}; correct it, or name the draft that it follows in `$schema`")
        return specification.create_resource(part)

    resource = make_resource(root)
    resolver = Registry[Any]().resolver_with_root(resource)
    unchecked = CHECKED - draft.VALIDATORS.keys() | REMEDIES.keys()
    unchecked -= {"exclusiveMaximum", "exclusiveMinimum"}  # draft 4 checks them with the limit
    required, declared = set[str](), set[str]()
    for part in _parts(resource, resolver, make_resource, set()):
        part.pop("$schema", None)
        found = {keyword for keyword in part.keys() & unchecked if part[keyword] is not False}
        # Older drafts ignore what is beside a `$ref`.
        if "$ref" in part and "draft-0" in draft.META_SCHEMA["$schema"]:
            found |= part.keys() & draft.VALIDATORS.keys() - {"$ref"}
        for keyword in sorted(found):
            remedy = REMEDIES.get(keyword, "leave it out, or name its draft in `$schema`")
            raise ValueError(f"`{keyword}` would not be checked; {remedy}")
        if "pattern" in part:
            _matcher(part["pattern"])
        declared |= part.get("properties", {}).keys()
        required |= set(part.get("required", ())) if "properties" in part else set()
    for name in sorted(required - declared):
        raise ValueError(f"`required` has {quote(name)}, which `properties` lacks; correct it")
    return set(_names(root, resolver, set()))


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
