"""The wording of the RULER tasks, as data: one TOML file, validated when loaded."""

from __future__ import annotations

import hashlib
import tomllib
from importlib import resources
from pathlib import Path
from string import Formatter
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, Field, PrivateAttr, ValidationError

from memagent.errors import ConfigError
from memagent.messages import Leaf


def _fields(needed: str = "", allowed: str = "") -> AfterValidator:
    """Validates a template: it has each field of `needed`, may have those of `allowed`, and no others."""
    must = set(needed.split())
    may = must | set(allowed.split())

    def check(template: str) -> str:
        fields: set[str] = set()
        for _, field, form, conversion in Formatter().parse(template):
            if field is None:
                continue
            if field not in may or form or conversion:
                names = ", ".join(f"{{{name}}}" for name in sorted(may)) or "none"
                placeholder = (
                    field + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "")
                )
                raise ValueError(f"unknown field {{{placeholder}}}; those known here: {names}")
            fields.add(field)
        for missing in sorted(must - fields):
            raise ValueError(f"the field {{{missing}}} is missing")
        return template

    return AfterValidator(check)


T = TypeVar("T")
REMEDY = "memagent-bench generate --print-frames prints a whole file to change"
Text = Annotated[str, _fields()]
Line = Annotated[str, Field(min_length=1), _fields()]


class Kind(Leaf):
    """Words for a kind of value."""

    one: str = Field(min_length=1)
    many: str = Field(min_length=1)


class Kinds(Leaf):
    """Words for the values of needles."""

    words: Kind
    numbers: Kind
    uuids: Kind

    def of(self, name: Literal["words", "numbers", "uuids"]) -> Kind:
        """Returns the words for one kind."""
        return {"words": self.words, "numbers": self.numbers, "uuids": self.uuids}[name]


class NiahFrame(Leaf):
    """The prompt around a haystack. `{kind}` and `{kinds}` are one and many of what is sought, `{query}` the keys."""

    before: Annotated[str, _fields(allowed="kind kinds query")]
    after: Annotated[str, _fields("query", "kind kinds")]
    answer_prefix: Annotated[str, _fields(allowed="query kind kinds")] = ""
    """Beginning of the reply, in all frames."""
    question: Annotated[str, _fields("query", "kind kinds")]
    """All that an agent is told: what to find, and the form of the reply."""


class Niah(Leaf):
    """Needles in a haystack."""

    needle: Annotated[str, _fields("key value", "kind kinds")]
    noise: Line
    """One line of the noise haystack."""
    between: Text
    """Separator of the keys of a query, except before the last."""
    last: Text
    """Separator before the last key."""
    kinds: Kinds
    one: NiahFrame
    """For one value of one key."""
    many: NiahFrame
    """For several values or keys."""

    def query(self, keys: list[str]) -> str:
        """Joins the keys as a question names them."""
        return self.between.join(keys[:-1]) + self.last + keys[-1] if len(keys) > 1 else keys[0]


class Vt(Leaf):
    """Variable tracking."""

    assign: Annotated[str, _fields("name value")]
    """The line that starts a chain."""
    copy_: Annotated[str, _fields("name source")] = Field(alias="copy")
    """The line of a further hop."""
    noise: Line
    before: Annotated[str, _fields(allowed="value count")]
    after: Annotated[str, _fields("value", "count")]
    answer_prefix: Annotated[str, _fields(allowed="value count")] = ""
    question: Annotated[str, _fields("value", "count")]
    answer: Annotated[str, _fields("names")]
    """Template of the example's reply after its answer prefix, including the separator before the real prompt."""
    between: Text
    """Separator of the names in that reply."""


class Words(Leaf):
    """Common or frequent words."""

    before: Annotated[str, _fields(allowed="count")]
    after: Annotated[str, _fields(allowed="count")]
    answer_prefix: Annotated[str, _fields(allowed="count")] = ""
    question: Annotated[str, _fields(allowed="count")]


class Cwe(Words):
    """Common words of a numbered list."""

    item: Annotated[str, _fields("word", "rank")]
    """One word of the list, and of the example's reply."""
    between: Text
    """Separator of items."""
    answer: Annotated[str, _fields("items")]
    """Template of the example's reply after its answer prefix, including the separator before the real prompt."""


class Fwe(Words):
    """Frequent coded words."""

    rank_one: Line
    """Stands for the most frequent word, which isn't an answer."""
    between: Text
    """Separator of words."""


class Qa(Leaf):
    """Questions about documents."""

    document: Annotated[str, _fields("text", "number")]
    between: Text
    """Separator of documents."""
    before: Annotated[str, _fields(allowed="question")]
    after: Annotated[str, _fields("question")]
    answer_prefix: Annotated[str, _fields(allowed="question")] = ""
    question: Annotated[str, _fields("question")]


class Frames(Leaf):
    """The wording of the 13 tasks, or of some of them."""

    name: str = Field(min_length=1)
    niah: Niah | None = None
    vt: Vt | None = None
    cwe: Cwe | None = None
    fwe: Fwe | None = None
    qa: Qa | None = None
    _hash: str = PrivateAttr(default="")

    def table(self, kind: type[T]) -> T:
        """Returns the wording of one kind of task, such as `Niah`.

        Raises:
            ConfigError: the file has no such table.
        """
        for table in (self.niah, self.vt, self.cwe, self.fwe, self.qa):
            if isinstance(table, kind):
                return table
        raise ConfigError(
            f"the wording {self.name!r} has no table [{kind.__name__.lower()}], which this task needs; {REMEDY}"
        )

    @property
    def hash(self) -> str:
        """First 16 hex digits of the SHA-256 of the file, with line ends and BOM normalised."""
        return self._hash

    @property
    def wording(self) -> str:
        """Its name in records: name and hash."""
        return f"{self.name}:{self.hash}"

    @classmethod
    def parse(cls, raw: bytes, name: str) -> Frames:
        """Reads wording from TOML bytes.

        Raises:
            ConfigError: it isn't TOML in UTF-8, or a template has a missing or unknown field.
        """
        try:
            text = raw.decode("utf-8-sig").replace("\r\n", "\n").rstrip("\n") + "\n"
            frames = cls.model_validate(tomllib.loads(text))
        except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
            raise ConfigError(f"{name!r} is not TOML in UTF-8: {error}") from error
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "the file"
            reason = first["msg"].removeprefix("Value error, ")
            raise ConfigError(f"wording in {name!r}, {where}: {reason} ({REMEDY})") from error
        frames._hash = hashlib.sha256(text.encode()).hexdigest()[:16]
        return frames


def shipped_frames() -> bytes:
    """Returns the bytes of the shipped wording."""
    return resources.files("memagent_bench.ruler").joinpath("frames.toml").read_bytes()


def load_frames(path: Path | None) -> Frames:
    """Loads the wording of a TOML file; None for the shipped one.

    Raises:
        ConfigError: it can't be read, or isn't a valid wording (see `Frames.parse`).
    """
    if path is None:
        return Frames.parse(shipped_frames(), "frames.toml")
    try:
        raw = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: not a valid path
        raise ConfigError(
            f"no wording at {str(path)!r}: give a readable TOML file ({getattr(error, 'strerror', error)})"
        ) from error
    return Frames.parse(raw, str(path))
