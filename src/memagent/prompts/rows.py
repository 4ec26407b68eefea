"""Rows: the wording that asks for them, and finding the JSON objects in a reply."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, NamedTuple, cast

from pydantic import BaseModel, Field
from pydantic_core import PydanticSerializationError, from_json, to_json

from memagent.errors import ConfigError
from memagent.messages import Completion, FinishReason
from memagent.prompts.loading import compile_template
from memagent.prompts.output import Output
from memagent.prompts.promptset import PromptSet
from memagent.prompts.reply import UnusableReply, visible
from memagent.schemas import JsonForm
from memagent.texts import clip, quote, words

_JSON = json.JSONDecoder()
_FENCE = re.compile(r"^\s*```\w*\s*$", re.MULTILINE)
SHOWN = 400
"""Characters of an invalid row that are stored and shown to the model."""


class RowPrompts(PromptSet):
    """The wording of an extraction: an update asks for the rows of a chunk."""

    built_in: ClassVar[tuple[str, ...]] = ("rows",)
    request: str = Field(min_length=1)
    """The question of the run: shows `what` and `schema`."""
    invalid: str = Field(min_length=1)
    """Precedes the rows after a reply with invalid ones: shows `problem`."""
    cut_off: str = Field(min_length=1)
    """Precedes the rows after a reply that was cut off: shows `tail`, the row that it broke off in, if any."""

    def say(self, template: str, **fields: str) -> str:
        """Renders a template of this set, given by its field name."""
        return compile_template(getattr(self, template)).render(fields).strip()


class _UntitledSchema(JsonForm):
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class RowForm(Output):
    """A pydantic model as the form of a row, shown without pydantic's titles of fields, which repeat their names."""

    def __init__(self, model: type[BaseModel]) -> None:
        super().__init__(model, "schema")
        if "object" not in self.schema.get("type", "object"):
            raise ConfigError(
                f"schema must describe JSON objects, got {quote(model)}; make the value a field of a model"
            )
        schema = model.model_json_schema(schema_generator=_UntitledSchema)
        self.text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))


class WrittenRow(NamedTuple):
    """A valid row: JSON to read it from again, and a line that is equal for equal rows."""

    text: str
    line: str


class BadRow(NamedTuple):
    """A part of a reply that isn't a valid row."""

    text: str
    problem: str

    def may_become(self, text: str) -> bool:
        """Returns whether a row may be the correction of this one: it has the parts that were right."""
        try:
            old, row = from_json(self.text), from_json(text)
            errors = {re.split("[.:]", line)[0] for line in self.problem.splitlines()}
            names = (errors & {*old, *row}) and (old.keys() & row.keys()) - errors
        except (ValueError, TypeError):  # prose, or clipped
            return True
        # `7` and `7.0`, `lift` and `the lift` are the same.
        pairs = [(set(words(str(old[name]))), set(words(str(row[name])))) for name in names]
        return all(first <= second or second <= first for first, second in pairs)


class RowReply(NamedTuple):
    """The content of a reply; `tail` is what the token limit cut off, perhaps nothing; None if it wasn't reached."""

    rows: tuple[WrittenRow, ...] = ()
    bad: tuple[BadRow, ...] = ()
    tail: str | None = None

    def find_missing(self, pending: list[BadRow]) -> list[BadRow]:
        """Returns the invalid rows for which this reply has no correction, valid or not."""
        texts, missing = [row.text for row in (*self.rows, *self.bad)], list[BadRow]()
        # First the rows with the fewest possible corrections.
        for bad_row in sorted(pending, key=lambda bad_row: sum(map(bad_row.may_become, texts))):
            candidates = list(filter(bad_row.may_become, texts))
            if candidates:
                texts.remove(candidates[0])
            else:
                missing.append(bad_row)
        return missing


def read_rows(completion: Completion, prompts: RowPrompts, form: Output) -> RowReply:
    """Reads the rows of a reply: its JSON objects, whatever surrounds them. Raises like `visible`."""
    text = _FENCE.sub("", visible(completion, prompts.stop.update)).strip()
    limited = completion.finish_reason is FinishReason.LENGTH
    if not limited and "".join(text.split()) in ("", "[]", prompts.keep):
        return RowReply()
    rows, bad_rows, tail = list[WrittenRow](), list[BadRow](), "" if limited else None
    for part, end in _objects(text, form.schema.get("properties", ())):
        if limited and end is None:
            tail = clip(part, SHOWN)
            continue
        try:
            value = form.read(part)
            if type(value).model_fields and not value.model_fields_set:
                bad_rows.append(BadRow(clip(part, SHOWN), "it has none of the schema's fields"))
                continue
            dump = from_json(value.model_dump_json(by_alias=True))
            line = to_json(_sort_sets(value.model_dump(by_alias=True), dump)).decode()
            # Dumping may hide secrets and leave fields out, and a default may differ each time.
            text = line if _is_read_as(value, line, form) else part
            if text is part or not _is_read_as(value, part, form):
                line = to_json(from_json(part), inf_nan_mode="constants").decode()
            rows.append(WrittenRow(text, line))
        except (UnusableReply, PydanticSerializationError) as error:
            bad_rows.append(BadRow(clip(part, SHOWN), str(error)))
    if not rows and not bad_rows and not tail:
        if limited:
            tail = clip(text, SHOWN)
        else:
            bad_rows.append(BadRow(clip(text, SHOWN), "the reply has no JSON object"))
    return RowReply(tuple(rows), tuple(bad_rows), tail)


def _sort_sets(value: Any, dump: Any) -> Any:
    """Sorts the sets in a dumped value, since their order differs from process to process."""
    if isinstance(dump, list) and isinstance(value, set | frozenset):
        return sorted(cast("list[Any]", dump), key=to_json)
    if isinstance(dump, list) and isinstance(value, list | tuple):
        return list(map(_sort_sets, cast("list[Any]", value), cast("list[Any]", dump)))
    if isinstance(dump, dict) and isinstance(value, dict):
        fields, values = cast("dict[str, Any]", dump), cast("dict[Any, Any]", value).values()
        return {k: _sort_sets(v, fields[k]) for k, v in zip(fields, values, strict=False)}
    return cast("Any", dump)


def _is_read_as(value: BaseModel, text: str, form: Output) -> bool:
    try:
        return form.read(text) == value
    except Exception:  # noqa: BLE001 - a schema's validators and comparisons may do anything
        return False


def _objects(text: str, names: Iterable[str]) -> Iterator[tuple[str, int | None]]:
    """Yields the JSON objects of a text and where they end; None for a broken one up to the text's end."""
    fields = "|".join(map(re.escape, names)) or r"\w+"
    # Where a row may begin: not as the value of a field, or first in its list.
    start = re.compile(rf"(?<=\n)\{{|(?<![:\[])(?<![:\[]\s)\{{(?=\s*[\"']?(?:{fields})[\"']?\s*:)")
    at = text.find("{")
    while at >= 0:
        end: int | None
        try:
            end = _JSON.raw_decode(text, at)[1]
        except (ValueError, RecursionError) as error:
            # Not JSON: up to the next row. An unclosed string seems to end at the first quote after that row's `{`.
            match = start.search(text, max(at + 1, getattr(error, "pos", at) - 3))
            end = None if match is None else match.start()
        yield text[at:end].rstrip(", \n"), end
        at = -1 if end is None else text.find("{", end)
