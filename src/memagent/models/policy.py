"""How a trained policy reads: the settings in its folder."""

import tomllib
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError

from memagent.chunking import Cuts
from memagent.errors import ConfigError
from memagent.messages import Leaf, Sampling
from memagent.prompts import Gate, PromptSet
from memagent.texts import describe_problem

Degenerate = Literal["retry", "keep", "take"]
FILE = "memagent.toml"
"""The settings file, next to the weights."""


class ReadingSettings(Leaf):
    """How a document is read; shared by the agent, the command line, the benchmarks and the trainer."""

    window: int | None = Field(default=None, gt=0)
    """Tokens of prompt plus output; default the smaller of the model's window and 8192."""
    chunk_tokens: int | None = Field(default=None, gt=0)
    """Tokens of a chunk; default as `ContextBudget` divides the window."""
    memory_tokens: int | None = Field(default=None, gt=0)
    """Tokens of the memory, and of one output; default as `ContextBudget` divides the window."""
    cuts: Cuts = "sentence"
    """`sentence` cuts at paragraph and sentence ends, `exact` at the last grapheme that fits."""
    gate: Gate = "off"
    """`update` lets the model keep the memory unchanged for a few tokens, `exit` lets it stop early, `both`, `off`."""
    degenerate: Degenerate = "retry"
    """What happens to a degenerate memory: `retry` asks again, up to twice, then accepts it; `keep` asks again, then
    keeps the old one; `take` accepts it at once."""
    reread: int = Field(default=0, ge=0)
    """Chunks read again, at most, for a question that the memory doesn't settle."""
    trust: Literal["neutral", "exact"] = "neutral"
    """`neutral` neutralises look-alikes of prompt fields and control tokens; `exact` leaves field tags alone."""


class Policy(ReadingSettings):
    """The settings a policy was trained with: an agent uses them unless its user overrides them."""

    prompts: PromptSet | None = None
    """In the file: the name of a prompt set in the same folder."""
    sampling: Sampling | None = None

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """Reads a folder's settings file; None if there is none.

        Raises:
            ConfigError: it can't be read, or a key is wrong.
            PromptSetError: the prompt set that it names is invalid.
        """
        file = folder / FILE
        try:
            fields = tomllib.loads(file.read_text(encoding="utf-8-sig"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:  # ValueError: not UTF-8, or not TOML
            raise ConfigError(f"{str(file)!r} cannot be read: {error}; correct it") from error
        name = fields.get("prompts")
        if name is not None:
            if not isinstance(name, str) or Path(name).name != name:
                raise ConfigError(
                    f"{str(file)!r}, prompts = {name!r}: give the name of a prompt set in the same folder"
                )
            fields["prompts"] = PromptSet.load(folder / name)
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise ConfigError(
                f"{str(file)!r}: {describe_problem(error, cls.model_fields)}"
            ) from error

    def reading(self, window: int | None = None) -> dict[str, Any]:
        """Returns the settings given, without the prompt set, and without sizes that can't fit the user's `window`."""
        sizes = (self.chunk_tokens or 0) + 2 * (self.memory_tokens or 0)
        too_large = isinstance(window, int) and sizes >= window
        exclusions = {"prompts", "chunk_tokens", "memory_tokens"} if too_large else {"prompts"}
        fields = {name: getattr(self, name) for name in self.model_fields_set - exclusions}
        return {name: value for name, value in fields.items() if value is not None}


def policy_of(model: object) -> Policy:
    """Returns a model's reading settings; empty if it has none, as with servers."""
    policy = getattr(model, "policy", None)
    return policy if isinstance(policy, Policy) else Policy()
