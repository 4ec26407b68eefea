"""Answers of a given form: the schema that the model is shown, and validating its reply."""

import json
import re
from typing import Any, cast

from pydantic import BaseModel, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticSerializationError

from memagent.errors import ConfigError
from memagent.prompts.reply import UnusableReply
from memagent.schemas import JsonForm
from memagent.texts import clip, quote

_FENCED = re.compile(r"\s*```(?:\w+)?\s*\n(.*?)\n?\s*```\s*", re.DOTALL)
PROBLEMS = 10
"""Maximum problems shown to the model at once."""


class Output:
    """A pydantic model as the form of an answer or a row; `name` is the argument's name, for errors.

    Raises:
        ConfigError: it isn't a pydantic model, or has no JSON schema.
    """

    def __init__(self, model: type[BaseModel], name: str = "output_type") -> None:
        # Not everybody has a type checker.
        if not isinstance(cast("object", model), type(BaseModel)) or model is BaseModel:
            raise ConfigError(
                f"{name} must be a pydantic model (a class derived from BaseModel), got {quote(model)}"
            )
        self._model = model
        try:
            self.schema: dict[str, Any] = model.model_json_schema(schema_generator=JsonForm)
        except PydanticUserError as error:
            raise ConfigError(
                f"{name} {model.__name__!r} has no JSON schema: {clip(str(error), 300)}"
            ) from error

    def read(self, text: str) -> BaseModel:
        """Reads the value of an answer, which may be in a code block.

        Raises:
            UnusableReply: it does not validate; the message says where.
        """
        fence = _FENCED.fullmatch(text)
        try:
            value = self._model.model_validate_json(fence[1] if fence else text.strip())
        except ValidationError as error:
            problems = error.errors(include_url=False, include_context=False)
            lines: list[str] = []
            for problem in problems[:PROBLEMS]:
                path = clip(".".join(map(str, problem["loc"])), 200)
                lines.append(f"{path}{': ' if path else ''}{clip(problem['msg'], 300)}")
            raise UnusableReply("\n".join(lines)) from error
        try:  # not the defaults: no reply could change them
            json.dumps(value.model_dump(mode="json", exclude_unset=True), allow_nan=False)
        except ValueError as error:
            if not isinstance(error, PydanticSerializationError):
                raise UnusableReply("a number is NaN or infinite, which JSON lacks") from error
        return value
