"""Rows described by a JSON schema become pydantic models."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from memagent import MemoryAgent, ScriptedModel
from memagent.errors import ConfigError
from memagent.prompts.rows import RowForm
from memagent.schemas import read_schema

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
    file.write_text(json.dumps(INVOICE))
    for model in (read_schema(file), read_schema(INVOICE)):
        made: Any = model(number="A1", amount=3, items=[{"name": "tea"}])
        assert (made.number, made.amount, made.items[0].name, made.due) == ("A1", 3, "tea", None)
        with pytest.raises(ValidationError, match="amount"):
            model(number="A1", amount=-1)
        assert model.model_json_schema()["properties"]["number"]["description"] == "As printed."
        RowForm(model)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({}, "object with properties, got '{}'"),
        ({"type": "object", "properties": {}}, "object with properties"),
        ({"type": "array", "items": {"type": "string"}}, "object with properties"),
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


def test_unique_items_stay_in_order() -> None:
    names = {"type": "array", "uniqueItems": True, "items": {"type": "string"}}
    given = [f"name {n}" for n in range(50)]
    assert read_schema(row(names=names))(names=given).model_dump() == {"names": given}
    assert read_schema(row(uniqueItems={"type": "string"}))(uniqueItems="a").model_dump_json() == (
        '{"uniqueItems":"a"}'
    )


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
    model = read_schema(schema)
    rows = [
        '{"name":"a","due":null}',
        '{"due":null,"name":"a","vat":null,"at":null,"kind":"bill"}',
        '{"name":"b","due":"","at":{"x":null},"properties":{"x":1},"pages":[{}]}',
    ]
    found = MemoryAgent(ScriptedModel(["\n".join(rows)]), store=None).extract("T.", model, "all")
    assert [row.to_dict()["value"] for row in found.rows] == [
        {"name": "a", "due": None, "kind": "bill"},
        {"name": "b", "due": "", "at": {}, "properties": {"x": 1}, "pages": [{}], "kind": "bill"},
    ]
    assert (found.duplicates, found.usage.calls) == (1, 1)
    assert model.model_json_schema()["properties"]["vat"]["description"] == "As printed."


def test_objects_in_all_of_are_one() -> None:
    both = {"allOf": [{"$ref": "#/$defs/X"}, row(y={"type": "integer"})]}
    model: Any = read_schema({**row(at=both), "$defs": {"X": row(x={"type": "integer"})}})
    assert (made := model(at={"x": 1, "y": 2}).at).x < made.y


TEXT = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (row(model_config=TEXT, name=TEXT), "cannot be used: .*'model_config'; rename it"),
        (row(inner=row(model_config=TEXT)), "cannot be used: .*'model_config'; rename it"),
        (row(a={"allOf": [{"type": "integer"}, {"minimum": 5}]}), "`allOf`.* merge"),
        (row(a={"allOf": [{"minimum": 5}], "type": "integer", "minimum": 1}), "`allOf`.* merge"),
        ({**row(a=TEXT), "allOf": [row(b=TEXT), row(c=TEXT)]}, "`allOf`.* merge"),
        (row(a={**row(a=TEXT), "allOf": [row(b=TEXT)]}), "`allOf`.* merge"),
        (row(a={**TEXT, "not": {"const": "x"}}), "cannot be used: `not` would not be checked"),
        ({"properties": {"a": TEXT}, "not": {"required": ["b"]}}, "`not` would"),
        (row(a={"type": "object", "patternProperties": {"^b": TEXT}}), "`patternProperties` would"),
        ({**row(a=TEXT), "if": {"required": ["a"]}, "minProperties": 1}, "`if`, `minProperties`"),
    ],
)
def test_what_would_be_dropped_or_refuse_every_value_is_refused(
    schema: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read_schema(schema)


def test_fields_may_have_the_names_of_keywords() -> None:
    made: Any = read_schema(row(**{"not": TEXT, "contains": {"type": "integer"}}))
    assert made(**{"not": "a", "contains": 1}).contains == 1


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"memagent\[schema\]"):
        read_schema(INVOICE)
