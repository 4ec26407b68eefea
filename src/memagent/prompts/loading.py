"""Wording from TOML files: reading one, compiling its templates, and writing one anew."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Collection
from functools import lru_cache
from importlib import resources
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import tomli_w
from pydantic import BaseModel, Field, PrivateAttr, ValidationError

from memagent.errors import PromptSetError
from memagent.messages import Leaf
from memagent.texts import describe_problem

if TYPE_CHECKING:
    from jinja2 import Template

M = TypeVar("M", bound=BaseModel)


def raw_bytes(spec: str | PathLike[str], built_in: Collection[str]) -> bytes:
    """The bytes of a shipped file, by name, or of any file, by path.

    Raises:
        PromptSetError: it cannot be read.
    """
    if isinstance(spec, str) and spec in built_in:
        return resources.files("memagent.prompts").joinpath(f"{spec}.toml").read_bytes()
    try:
        return Path(spec).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: it can be no path
        raise PromptSetError(
            f"no prompt set {fspath(spec)!r}: give a TOML file that can be read, "
            f"or one of {', '.join(built_in)} ({getattr(error, 'strerror', error)})"
        ) from error


def parsed(kind: type[M], raw: bytes, name: str) -> tuple[M, str]:
    """Reads TOML (UTF-8; a BOM and CRLF are normalised away).

    Returns:
        What it says, and its normalised text.

    Raises:
        PromptSetError: it is no TOML, or fields are missing, unknown or bad.
    """
    try:
        text = raw.decode("utf-8-sig").replace("\r\n", "\n").rstrip("\n") + "\n"
        return kind.model_validate(tomllib.loads(text)), text
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise PromptSetError(f"{name!r} is not TOML in UTF-8: {error}") from error
    except ValidationError as error:
        raise PromptSetError(
            f"{name!r}: {describe_problem(error)} (see docs/prompts.md)"
        ) from error


class Wording(Leaf):
    """A set of texts that stands in a TOML file."""

    name: str = Field(min_length=1)
    _read: str = PrivateAttr(default="")
    """The TOML text that this set was read from, normalised; empty where it was made otherwise."""

    @property
    def source(self) -> str:
        """The set as TOML: the text that it was read from, or one written anew where it has changed since.

        Raises:
            PromptSetError: a field holds what TOML cannot.
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
        """First 16 hex digits of the SHA-256 of the normalised TOML bytes.

        Raises:
            PromptSetError: a field holds what TOML cannot.
        """
        return hashlib.sha256(self.source.encode()).hexdigest()[:16]


@lru_cache(maxsize=64)
def compiled(template: str) -> Template:
    """A Jinja template, in a sandbox."""
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False
    )
    return environment.from_string(template)
