"""JSON schemas of pydantic models, and models from schemas, for extracting rows without Python."""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, model_serializer
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError

from memagent.errors import ConfigError
from memagent.texts import clip, name_extra, quote


class JsonForm(GenerateJsonSchema):
    """Makes JSON schemas without defaults that JSON can't express, such as infinity."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - pydantic's type

    def encode_default(self, dft: Any) -> Any:
        """See `GenerateJsonSchema`, which omits a default if this raises."""
        value = super().encode_default(dft)
        try:
            json.dumps(value, allow_nan=False)
        except ValueError as error:
            raise PydanticSerializationError(str(error)) from error
        return value


class _SchemaModel(BaseModel):
    """Omits optional fields without a value, as the schema requires."""

    @model_serializer(mode="wrap")
    def _write(self, write: Any) -> dict[str, Any]:
        fields, values = type(self).model_fields.items(), cast("dict[str, Any]", write(self))
        names = {n for name, f in fields if f.is_required() for n in (name, f.alias or name)}
        return {k: v for k, v in values.items() if v is not None or k in names}


def read_schema(source: Path | dict[str, Any]) -> type[BaseModel]:
    """Makes a pydantic model of the object that a JSON schema describes. A `$ref` must stay inside the schema.

    Args:
        source: a file, or the schema itself.

    Raises:
        ConfigError: it cannot be read, is not the schema of an object, or the extra `[schema]` is not installed.
    """
    schema, subject = cast("dict[str, Any]", source), "the schema"
    if isinstance(source, Path):
        subject = f"the schema {str(source)!r}"
        try:
            schema = json.loads(source.read_text("utf-8"))
        except OSError as error:
            raise ConfigError(f"cannot read {subject}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{subject} is not JSON: {error}") from error
    properties = isinstance(cast("object", schema), dict) and schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        raise ConfigError(
            f"{subject} must describe an object with properties, got {quote(str(schema))}"
        )
    if importlib.util.find_spec("json_schema_to_pydantic") is None:
        raise ConfigError(name_extra("a row's JSON schema", "schema"))
    from json_schema_to_pydantic import create_model  # pyright: ignore[reportMissingTypeStubs]

    try:
        model = create_model(json.loads(json.dumps(schema), object_hook=_readable), _SchemaModel)
        form = model.model_json_schema(schema_generator=JsonForm)
    except Exception as error:  # the library raises what its steps raise
        raise ConfigError(f"{subject} cannot be used: {clip(str(error), 300)}") from error
    # The library makes closed objects of `allOf`, and one without properties if it is of another type.
    objects = (form, *form.get("$defs", {}).values())
    empty = any(p.get("additionalProperties") is False and not p["properties"] for p in objects)
    if empty or form.get("properties", {}).keys() != properties.keys():
        raise ConfigError(f"{subject} cannot be used: {_MERGE}")
    return model


_UNCHECKED = re.compile(
    "contains|depend.+|if|m..Properties|not|pattern.+|prefixItems|propertyNames"
)
_MERGE = "`allOf` must be of objects, and not beside `properties`; merge its parts into one"


def _readable(part: dict[str, Any]) -> dict[str, Any]:
    """Fixes a part for the library: drops `uniqueItems`, and lets optional fields be null, the library's default."""
    properties = part.get("properties")
    keywords = ", ".join(f"`{name}`" for name in sorted(filter(_UNCHECKED.fullmatch, part)))
    # If all values are schemas, the keys are names of fields.
    if keywords and (properties or not all(isinstance(v, dict) for v in part.values())):
        raise ConfigError(f"{keywords} would not be checked; leave it out")
    if isinstance(properties, dict):
        if "model_config" in properties:
            raise ConfigError("a field cannot be named 'model_config'; rename it")
        if isinstance(part.get("allOf"), list):
            raise ConfigError(_MERGE)
        fields = cast("dict[str, Any]", properties)
        for name, field in fields.items() if part.get("type") == "object" else ():
            if name not in part.get("required", ()) and "default" not in field:
                about = {"description": field["description"]} if "description" in field else {}
                fields[name] = about | {"anyOf": [field, {"type": "null"}]}
    # A field named `uniqueItems` has a schema as its value.
    return {k: v for k, v in part.items() if k != "uniqueItems" or isinstance(v, dict)}
