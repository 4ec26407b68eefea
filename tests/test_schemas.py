"""Rows described by a JSON schema become pydantic models."""

import functools
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from memagent import MemoryAgent, ScriptedModel
from memagent.errors import ConfigError
from memagent.prompts.reply import UnusableReply
from memagent.prompts.rows import RowForm
from memagent.schemas import read_schema

TEXT, NULL = {"type": "string"}, {"type": "null"}
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
INVOICE = {
    "title": "Invoice",
    "type": "object",
    "properties": {
        "number": {"type": "string", "description": "As printed."},
        "amount": {"type": "number", "minimum": 0},
        "items": {
            "type": "array",
            "items": {"type": "object", "properties": {"name": {"type": "string"}}},
        },
        "due": {"type": ["string", "null"], "format": "date"},
    },
    "required": ["number", "amount"],
}


def test_a_file_or_a_mapping_is_a_model(tmp_path: Path) -> None:
    file = tmp_path / "invoice.json"
    file.write_text(json.dumps(INVOICE), encoding="utf-8-sig")  # a byte order mark, as on Windows
    for model in (read_schema(file), read_schema(INVOICE)):
        made: Any = model(number="A1", amount=3, items=[{"name": "tea"}])
        assert made.model_dump() == {"number": "A1", "amount": 3, "items": [{"name": "tea"}]}
        assert (made.number, made.items) == ("A1", [{"name": "tea"}])
        with pytest.raises(ValidationError, match="amount"):
            model(number="A1", amount=-1)
        assert RowForm(model).text == json.dumps(INVOICE, separators=(",", ":"))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({}, "object with properties, got '{}'"),
        ({"type": "object", "properties": {}}, "object with properties"),
        ({"type": "array", "items": {"type": "string"}}, "object with properties"),
        ({"type": "array", "properties": {"a": {}}}, "object with properties, got"),
        ({"additionalProperties": {"properties": {"a": {}}}}, "object with properties"),
        ({"properties": {"a": {"enum": {1, 2}}}}, "set is not JSON.*; use only what JSON has"),
        ({"properties": {"a": {"$ref": "http://localhost/x"}}}, "cannot be used"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "cannot be used"),
        ({"properties": {"a": {"type": "string", "pattern": "("}}}, "cannot be used"),
    ],
)
def test_what_is_no_schema_of_a_row(schema: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_schema(schema)


@pytest.mark.parametrize(
    ("text", "message"), [("{", "is not JSON"), ("3", "got '3'"), ("[" * 100_000, "is not JSON")]
)
def test_a_file_that_holds_none(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "row.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_schema(file)
    with pytest.raises(ConfigError, match="cannot read the schema"):
        read_schema(tmp_path / "none.json")


def row(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def nested(depth: int) -> dict[str, Any]:
    return row(a=functools.reduce(lambda part, _: {"items": part}, range(depth), TEXT))


def problems(schema: dict[str, Any], value: Any) -> str:
    """What a model is told about a row, "" if it is valid."""
    try:
        RowForm(read_schema(schema)).read(json.dumps(value))
    except UnusableReply as error:
        return str(error)
    return ""


@pytest.mark.parametrize("required", [True, False])
@pytest.mark.parametrize("wrap", ["field", "branch", "item", "value", "ref"])
@pytest.mark.parametrize(
    ("limits", "good", "bad", "problem"),
    [
        ({"type": "integer", "minimum": 0, "maximum": 10}, 10, 99, "99 is greater than the max"),
        ({"type": "number", "exclusiveMinimum": 0}, 0.5, 0, "0 is less than or equal to the min"),
        ({"type": "number", "multipleOf": 0.01}, 19.99, 0.015, "0.015 is not a multiple of 0.01"),
        ({"type": "string", "minLength": 2}, "xx", "x", "'x' is too short"),
        ({"type": "string", "pattern": r"^\p{Lu}"}, "Äh", "äh", "'äh' does not match "),
        ({"type": "string", "format": "date"}, "2024-02-29", "2023-02-29", "is not a 'date'"),
        ({"type": "array", "maxItems": 1, "uniqueItems": True}, [2], [2, 1], "[2, 1] is too long"),
        ({**TEXT, "not": {"const": "x"}}, "y", "x", "'x' should not be valid under"),
        ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, 0.5, 1, "1 is valid under each of"),
    ],
)
def test_limits_hold_wherever_they_are(
    limits: dict[str, Any], good: Any, bad: Any, problem: str, wrap: str, required: bool
) -> None:
    forms = {
        "field": (limits, lambda value: value),
        "branch": ({"anyOf": [limits, NULL]}, lambda value: value),
        "item": ({"type": "array", "items": limits}, lambda value: [value]),
        "value": ({"type": "object", "additionalProperties": limits}, lambda value: {"x": value}),
        "ref": ({"$ref": "#/$defs/Limits"}, lambda value: value),
    }
    form, make = forms[wrap]
    schema = {**row(name=TEXT, f=form), "$defs": {"Limits": limits}}
    if not required:
        schema["required"] = ["name"]
    assert problems(schema, {"name": "a", "f": make(good)}) == ""
    (line,) = problems(schema, {"name": "a", "f": make(bad)}).splitlines()
    assert line.startswith("f")
    assert problem in line


def test_unique_items_stay_in_order() -> None:
    names = {"type": "array", "uniqueItems": True, "items": {"type": "string"}}
    given = [f"name {n}" for n in range(50)]
    assert read_schema(row(names=names))(names=given).model_dump() == {"names": given}
    assert "has non-unique elements" in problems(row(names=names), {"names": ["a", "a"]})


@pytest.mark.timeout(20)
def test_unique_items_are_compared_as_json_values_in_linear_time() -> None:
    schema = row(a={"uniqueItems": True})
    for different in ([{"x": n} for n in range(20_000)], [1, True, [1], [True], {}, [], "", None]):
        assert problems(schema, {"a": different}) == ""
    for equal in ([1, 1.0], [{"x": [10**16], "y": 0}, {"y": 0.0, "x": [1e16]}]):
        assert "has non-unique elements" in problems(schema, {"a": equal})


def test_a_problem_is_a_line_with_its_place_and_no_long_value() -> None:
    inner = {"type": "array", "items": row(x={"type": "integer"})}
    schema = row(a=inner, b={"anyOf": [{"type": "integer"}, NULL]}, c=TEXT)
    found = problems(schema, {"a": [{"x": 1}, {"x": "y" * 9999}, {}], "b": "z", "d": 1})
    lines = found.splitlines()
    assert lines[0].startswith("a.1.x: 'yyy")
    assert lines[0].endswith("y' is not of type 'integer'")
    assert lines[1:] == [
        "a.2: 'x' is a required property",
        "b: 'z' is not of type 'integer' or 'z' is not of type 'null'",
        "'c' is a required property",
    ]
    assert max(map(len, lines)) < 200


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_numbers_that_json_lacks_are_refused(number: str) -> None:
    with pytest.raises(UnusableReply, match="a number is NaN or infinite"):
        RowForm(read_schema(row(a={}))).read(f'{{"a": [{number}]}}')


def test_equal_rows_are_one_and_kept_as_written() -> None:
    schema = row(name=TEXT, size={"type": "number"})
    rows = [
        '{"name":"a","size":7,"at":{"x":1,"y":[]}}',
        '{"at":{"y":[],"x":1.0},"size":7.0,"name":"a"}',
        '{"name":"a","size":7.5}',
    ]
    reply = "\n".join([*rows, '{"rows": []}'])
    model = ScriptedModel([reply, "[]", "[]"])
    found = MemoryAgent(model, store=None).extract("T.", read_schema(schema), "all")
    assert [json.dumps(row.to_dict()["value"], separators=(",", ":")) for row in found.rows] == [
        rows[0],
        rows[2],
    ]
    assert found.duplicates == 1
    assert [bad.problem for bad in found.invalid] == ["it has none of the schema's fields"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("draft", [{}, {"$schema": DRAFT_7}])
def test_no_pattern_takes_forever(draft: dict[str, str]) -> None:
    schema: dict[str, Any] = row(a={**TEXT, "pattern": r"^(\w+\s?)*$"}) | draft
    schema["properties"]["again"] = {"$ref": "#"}
    found = problems(schema, {"a": "b", "again": {"a": "word " * 9999 + "!"}})
    assert found.startswith("again.a: 'word word")


def test_optional_fields_may_be_null_and_are_then_left_out() -> None:
    schema = row(name={"type": "string"}, due={"type": ["string", "null"]})
    inner = {"type": "object", "properties": {"x": {"type": "integer"}}}
    schema["properties"] |= {
        "vat": {"type": "string", "description": "As printed."},
        "at": inner,
        "properties": inner,
        "pages": {"type": "array", "items": inner},
        "kind": {"type": "string", "default": "bill"},
    }
    rows = [
        '{"name":"a","due":null}',
        '{"due":null,"name":"a","vat":null,"at":null,"kind":null}',
        '{"name":"b","due":"","at":{"x":null},"properties":{"x":1},"pages":[{}],"kind":"bill"}',
    ]
    model = ScriptedModel(["\n".join(rows)])
    found = MemoryAgent(model, store=None).extract("T.", read_schema(schema), "all")
    assert [row.to_dict()["value"] for row in found.rows] == [
        {"name": "a", "due": None},
        {"name": "b", "due": "", "at": {}, "properties": {"x": 1}, "pages": [{}], "kind": "bill"},
    ]
    assert (found.duplicates, found.usage.calls) == (1, 1)


def test_null_is_kept_where_it_says_something() -> None:
    both = {"type": ["string", "null"]}
    schema = row(a=both) | {"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["z"]}}
    schema["properties"] |= {"b": {"type": "object", "additionalProperties": both}, "z": TEXT}
    value = {"a": None, "b": {"x": None}, "z": None}
    assert read_schema(schema)(**value).model_dump() == {"a": None, "b": {"x": None}}


KIND_A = {"properties": {"kind": {"const": "a"}, "x": {"type": ["string", "null"]}}}
KINDS = [KIND_A | {"required": ["kind", "x"]}, row(kind={"const": "b"}) | {"required": ["kind"]}]
KINDS[1]["properties"]["x"] = TEXT


@pytest.mark.parametrize(
    ("schema", "value", "kept"),
    [
        (
            {"properties": {"due": TEXT}, "oneOf": KINDS},
            {"kind": "a", "x": None, "due": None},
            "kind x",
        ),
        ({"properties": {"due": TEXT}, "anyOf": KINDS[::-1]}, {"kind": "a", "x": None}, "kind x"),
        (
            {
                "properties": {"a": {"type": ["string", "null"]}, "b": TEXT, "c": {}},
                "allOf": [{"required": ["a"]}],
            },
            {"a": None, "b": None, "c": 1},
            "a c",
        ),
        ({"properties": {"a": {}, "b": {}}, "minProperties": 2}, {"a": 1, "b": None}, "a b"),
    ],
)
def test_each_null_is_kept_only_where_the_row_needs_it(
    schema: dict[str, Any], value: dict[str, Any], kept: str
) -> None:
    assert list(read_schema(schema)(**value).model_dump()) == kept.split()


def test_a_row_of_nothing_but_optional_nulls_is_no_row() -> None:
    schema = {"properties": {"a": TEXT, "b": {"type": ["integer", "null"]}}}
    assert problems(schema, {"a": None, "b": None, "c": 1}) == "it has none of the schema's fields"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"kind": "a"}, "'y' is a required property or 'x' is a required property"),
        ({"kind": "a", "x": 5}, "'y' is a required property or x: 5 is not of type 'string'"),
        (
            {"kind": "c", "x": "", "y": ""},
            "kind: 'b' was expected or kind: 'a' was expected",
        ),
        ([], "[] is not of type 'object'"),
    ],
)
def test_the_problem_of_a_union_is_that_of_each_branch(value: Any, problem: str) -> None:
    first, second = row(kind={"const": "b"}, y=TEXT), row(kind={"const": "a"}, x=TEXT)
    assert problems(row(f={"anyOf": [first, second]}), {"f": value}) == f"f: {problem}"


def test_objects_in_all_of_are_one() -> None:
    both = {"allOf": [{"$ref": "#/$defs/X"}, row(y={"type": "integer"})]}
    schema = {**both, "$defs": {"X": row(x={"type": "integer"})}}
    assert problems(schema, {"x": 1, "y": 2}) == ""
    assert problems(schema, {"x": 1, "y": "2"}) == "y: '2' is not of type 'integer'"
    assert problems(schema, {"y": 2}) == "'x' is a required property"


class Part(BaseModel):
    name: str
    parts: list["Part"] = []


def test_a_recursive_schema_is_read_as_pydantic_writes_it() -> None:
    schema = Part.model_json_schema()
    assert schema["$ref"]
    assert problems(schema, {"name": "a", "parts": [{"name": "b"}]}) == ""
    wrong = {"name": "a", "parts": [{"name": "b", "parts": [{"nam": "c"}]}]}
    assert problems(schema, wrong) == "parts.0.parts.0: 'name' is a required property"


def test_a_reference_that_leads_back_to_itself_is_told() -> None:
    schema = row(a=TEXT, b={"$ref": "#/properties/b"})
    assert problems(schema, {"a": "x"}) == "'b' is a required property"
    assert "a `$ref` leads back to itself" in problems(schema, {"a": "x", "b": 1})


def test_a_name_may_be_required_that_additional_properties_describe() -> None:
    schema = {**row(a=TEXT), "required": ["a", "id"], "additionalProperties": TEXT}
    assert problems(schema, {"a": "x", "id": "y"}) == ""
    assert problems(schema, {"a": "x"}) == "'id' is a required property"


def test_a_schema_may_be_of_an_older_draft() -> None:
    schema = row(a={"type": "number", "minimum": 0, "exclusiveMinimum": True})
    schema["$schema"] = "http://json-schema.org/draft-04/schema#"
    assert problems(schema, {"a": 1}) == ""
    assert problems(schema, {"a": 0}) == "a: 0 is less than or equal to the minimum of 0"


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (row(a={"type": "Integer"}), r"properties.a.type: 'Integer' is not one of .*; correct it"),
        (row(a=5), "properties.a: 5 is not of type 'object', 'boolean'; correct it"),
        (
            row(a={"minimum": 0, "exclusiveMinimum": True}),
            "exclusiveMinimum: True is .*`\\$schema`",
        ),
        (
            row(a={**TEXT, "nullable": True}),
            r"`nullable` is not JSON Schema: write `\"type\": \[",
        ),
        (
            row(a={"patternProperties": {"^b": TEXT}}),
            "`patternProperties` is not supported: use `property",
        ),
        ({**row(a=TEXT), "$schema": "draft-3"}, "`\\$schema` must be one of .* got 'draft-3'"),
        (row(a={"$ref": "#/properties/b/const"}, b={"const": "x"}), "'x' is not of type 'object'"),
        (row(a={"$ref": "#/$defs/B"}), "`\\$ref` '#/\\$defs/B' is not in it; refer to"),
        (row(a={"pattern": "a(?=b)"}), r"`pattern` 'a\(\?=b\)' cannot be matched: .*; correct it"),
        (row(a={"minimum": float("nan")}), "not JSON compliant; use only"),
        (nested(9999), "it is nested too deeply"),
    ],
)
def test_what_would_not_be_checked_is_refused(schema: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"the schema cannot be used: .*{message}"):
        read_schema(schema)


def test_fields_may_have_any_name() -> None:
    names = ("not", "contains", "schema", "json", "model_config", "_id", "$ref", "nullable")
    value = dict.fromkeys(names, "a")
    made = read_schema(row(**dict.fromkeys(names, TEXT))).model_validate(value)
    assert json.loads(made.model_dump_json()) == value


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"memagent\[schema\]"):
        read_schema(INVOICE)
