"""Prompt sets from TOML files: reading, compiling templates, and writing."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import Annotated, ClassVar, Self, cast

import tomli_w
from jinja2 import StrictUndefined, Template
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import Field, PrivateAttr, ValidationError

from memagent.errors import PromptSetError
from memagent.messages import Leaf
from memagent.texts import describe_problem

MARK = " \ue000{}\ue001 \u2060<b class='x'>\"{{{{ 1 }}}}\" &amp; \\\\  ÉtÉ\r\n\n\t" + "x " * 50_000
"""A text that any transformation would change; longer than the fields of any window in use."""


TagName = Annotated[str, Field(pattern=r"^[A-Za-z][\w-]*$")]
"""Name of the tag around a field of a prompt."""


class Wording(Leaf):
    """A set of texts in a TOML file."""

    built_in: ClassVar[tuple[str, ...]] = ()
    """Names of the shipped sets, the default first."""
    package: ClassVar[str] = "memagent.prompts"
    """The package that has their files."""
    called: ClassVar[str] = "prompt set"
    """What errors call it."""
    name: str = Field(min_length=1)
    _read: str = PrivateAttr(default="")
    """The TOML text that this set was read from, normalised; empty if it wasn't read from TOML."""

    @classmethod
    def load(cls, spec: str | PathLike[str] | Self | None = None) -> Self:
        """Loads a shipped set by name (None: the default) or any set by path. A set object is checked like a file.

        Raises:
            PromptSetError: there is no such set, or it has invalid TOML, missing fields, or a template that does not
                show each field exactly once.
        """
        if isinstance(spec, cls):
            if spec._read and spec.source == spec._read:  # checked when it was read
                return spec
            return cls.parse(spec.source.encode(), name=spec.name)
        path = cls.built_in[0] if spec is None else cast("str | PathLike[str]", spec)
        if path in cls.built_in:
            data = resources.files(cls.package).joinpath(f"{path}.toml").read_bytes()
            return cls.parse(data, name=str(path))
        try:
            data = Path(path).read_bytes()
        except (OSError, ValueError, TypeError) as error:  # not a valid path
            raise PromptSetError(
                f"no {cls.called} {str(path)!r}: give a readable TOML file, "
                f"or one of {', '.join(cls.built_in)} ({getattr(error, 'strerror', error)})"
            ) from error
        return cls.parse(data, name=str(path))

    @classmethod
    def parse(cls, raw: bytes, *, name: str = "prompt set") -> Self:
        """Reads a set from TOML bytes (UTF-8; a BOM and CRLF are normalised away). Raises like `load`."""
        try:
            text = raw.decode("utf-8-sig").replace("\r\n", "\n").rstrip("\n") + "\n"
            wording = cls.model_validate(tomllib.loads(text))
        except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
            raise PromptSetError(f"{name!r} is not TOML in UTF-8: {error}") from error
        except ValidationError as error:
            raise PromptSetError(f"{name!r}: {describe_problem(error)}") from error
        wording._read = text
        wording.check(name)
        return wording

    def check(self, name: str) -> None:
        """Raises a `PromptSetError` for templates that would break budgets; `name` is the file's name."""

    @property
    def source(self) -> str:
        """The set as TOML: the text that it was read from, or new text if it has changed since.

        Raises:
            PromptSetError: a field has a value that TOML can't express.
        """
        try:
            fields = self.model_dump(warnings=False)
            if self._read and self.model_validate(tomllib.loads(self._read)).model_dump() == fields:
                return self._read
            text = tomli_w.dumps(fields)
            text.encode()
        except (TypeError, ValueError, AttributeError) as error:
            raise PromptSetError(f"prompt set {self.name!r} cannot be written: {error}") from error
        return text

    @property
    def hash(self) -> str:
        """First 16 hex digits of the SHA-256 of the normalised TOML bytes. Raises like `source`."""
        return hashlib.sha256(self.source.encode()).hexdigest()[:16]


def check_shown(who: str, render: Callable[..., str], times: Mapping[str, int]) -> None:
    """Checks how often a template shows each field verbatim, and that nothing else depends on the fields.

    Budgets add the fields to a frame rendered with empty ones, so a template that shows a field twice, changes it,
    or adds text because of it would overflow.

    Raises:
        PromptSetError: a check failed; the message begins with `who`.
    """
    marks = {field: MARK.format(field) for field in times}
    text = render(**marks)
    for field, mark in marks.items():
        if (count := text.count(mark)) != times[field]:
            raise PromptSetError(
                f"{who} shows {field!r} {count} times, not {times[field]} "
                f"(verbatim: a filter or slice that changes it does not count)"
            )
        text = text.replace(mark, "")
    if text != render(**dict.fromkeys(times, "")):
        raise PromptSetError(
            f"{who} changes with the content of a field; show each field once, and let nothing else depend on it"
        )


@lru_cache(maxsize=64)
def compile_template(template: str) -> Template:
    """Compiles a template in Jinja's sandbox."""
    environment = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False
    )
    return environment.from_string(template)
