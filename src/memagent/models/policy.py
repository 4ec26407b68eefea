"""How a trained policy wants to read: the settings that its folder brings along."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError

from memagent.chunking import Cuts
from memagent.errors import ConfigError
from memagent.messages import Leaf, Sampling
from memagent.prompts import Gate, PromptSet

FILE = "memagent.toml"
"""Where they are, beside the weights."""


class Policy(Leaf):
    """What a policy was trained with. An agent takes it wherever its user says nothing else; None: nothing is said."""

    prompts: PromptSet | None = None
    """In the file: the name of a prompt set beside it."""
    window: int | None = Field(default=None, gt=0)
    chunk_tokens: int | None = Field(default=None, gt=0)
    memory_tokens: int | None = Field(default=None, gt=0)
    cuts: Cuts | None = None
    overlap: int | None = Field(default=None, ge=0)
    gate: Gate | None = None
    trust: Literal["neutral", "exact"] | None = None
    sampling: Sampling | None = None

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """Reads the file of a folder; None where there is no such file.

        Raises:
            ConfigError: it cannot be read, or a key is wrong.
            PromptSetError: the prompt set that it names is no good.
        """
        file = folder / FILE
        try:
            fields = tomllib.loads(file.read_text(encoding="utf-8-sig"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:  # ValueError: no UTF-8, or no TOML
            raise ConfigError(f"{str(file)!r} cannot be read: {error}") from error
        named = fields.get("prompts")
        if named is not None:
            if not isinstance(named, str) or Path(named).name != named:
                raise ConfigError(
                    f"{str(file)!r}, prompts = {named!r}: give the name of a prompt set in the same folder"
                )
            fields["prompts"] = PromptSet.load(folder / named)
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(str(part) for part in first["loc"])
            known = ", ".join(cls.model_fields)
            raise ConfigError(
                f"{str(file)!r}, {key} = {first.get('input')!r}: {first['msg']} (known keys: {known})"
            ) from error

    def reading(self) -> dict[str, Any]:
        """The settings that are said, without the wording."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return {n: value for n, value in fields.items() if value is not None and n != "prompts"}


def policy_of(model: object) -> Policy:
    """What a model says of how it wants to read; nothing where it says nothing, as servers do."""
    policy = getattr(model, "policy", None)
    return policy if isinstance(policy, Policy) else Policy()
