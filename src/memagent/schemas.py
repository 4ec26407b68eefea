"""JSON schemas of pydantic models, and models from schemas, for extracting rows without Python."""

import importlib.util
import json
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel
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
            schema = json.loads(source.read_text("utf-8-sig"))
        except OSError as error:
            raise ConfigError(f"cannot read {subject}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{subject} is not JSON: {error}") from error
    if importlib.util.find_spec("jsonschema") is None:
        raise ConfigError(name_extra("a row's JSON schema", "schema"))
    from memagent_schema.rows import make_model  # jsonschema takes a while to import

    try:
        model = make_model(schema)
    except ValueError as error:
        raise ConfigError(f"{subject} cannot be used: {clip(str(error), 500)}") from error
    except RecursionError as error:
        raise ConfigError(f"{subject} cannot be used: it is nested too deeply") from error
    if model is None:
        text = quote(str(schema))
        raise ConfigError(f"{subject} must describe an object with properties, got {text}")
    return model
