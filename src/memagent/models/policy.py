"""How a trained policy reads and works with tools: the settings in its folder."""

import tomllib
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, field_validator

from memagent.chunking import Cuts
from memagent.errors import ConfigError
from memagent.messages import Leaf, Sampling
from memagent.prompts import Gate, PromptSet
from memagent.prompts.session import SessionPrompts
from memagent.texts import describe_problem, repair_surrogates

Protocol = Literal["native", "text"]
"""How calls are sent: in the server's tool-call fields, or in the text of messages."""
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


class WorkingSettings(Leaf):
    """How a tool session works; shared by the agent and the trainer."""

    working_context: int | None = Field(default=None, gt=0)
    """W, tokens of prompt plus output per call; default the smaller of the model's window and 8192."""
    max_summaries: int = Field(default=7, ge=0)
    """S, the maximum number of summaries; a session that needs one more ends."""
    max_steps: int = Field(default=100, gt=0)
    """H, the maximum number of replies that call tools; a session that needs one more ends."""
    summary_tokens: int | None = Field(default=None, gt=0)
    """Maximum tokens of a summary; default an eighth of the working context."""
    reply_tokens: int | None = Field(default=None, gt=0)
    """Maximum tokens of a reply; default what the working context has left."""
    instructions: str = ""
    """Appended to the instructions in the system message."""

    @field_validator("instructions")
    @classmethod
    def _encodable(cls, text: str) -> str:
        if repair_surrogates(text) != text:
            raise ValueError("it contains a lone surrogate, which cannot be encoded; remove it")
        return text


class ToolPolicy(WorkingSettings):
    """The settings a policy was trained with as a tool agent."""

    protocol: Protocol = "native"
    prompts: SessionPrompts | None = None
    """In the file: the name of a file of session prompts in the same folder."""
    sampling: Sampling | None = None


class Policy(ReadingSettings):
    """The settings a policy was trained with: an agent uses them unless its user overrides them."""

    prompts: PromptSet | None = None
    """In the file: the name of a prompt set in the same folder."""
    sampling: Sampling | None = None
    tools: ToolPolicy = ToolPolicy()
    """The settings for tool sessions; the others are for reading."""

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """Reads a folder's settings file; None if there is none.

        Raises:
            ConfigError: it can't be read, or a key is wrong.
            PromptSetError: the prompt set that it names is invalid.
        """
        file = folder / FILE
        try:
            fields: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8-sig"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:  # ValueError: not UTF-8, or not TOML
            raise ConfigError(f"{str(file)!r} cannot be read: {error}; correct it") from error
        tools: dict[str, Any] | None = fields.get("tools")
        for section, prompts in ((fields, PromptSet), (tools, SessionPrompts)):
            name: object = section.get("prompts") if isinstance(section, dict) else None
            if section is None or name is None:
                continue
            if not isinstance(name, str) or Path(name).name != name:
                raise ConfigError(
                    f"{str(file)!r}, prompts = {name!r}: give the name of a prompt set in the same folder"
                )
            section["prompts"] = prompts.load(folder / name)
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            known = [*cls.model_fields, *(f"tools.{name}" for name in ToolPolicy.model_fields)]
            raise ConfigError(f"{str(file)!r}: {describe_problem(error, known)}") from error

    def reading(self, window: int | None = None) -> dict[str, Any]:
        """Returns the settings given, without the prompt set, and without sizes that can't fit the user's `window`."""
        sizes = (self.chunk_tokens or 0) + 2 * (self.memory_tokens or 0)
        too_large = isinstance(window, int) and sizes >= window
        sizes_left_out = {"chunk_tokens", "memory_tokens"} if too_large else set[str]()
        return self.model_dump(
            exclude={"prompts", "tools"} | sizes_left_out, exclude_unset=True, exclude_none=True
        )


def policy_of(model: object) -> Policy:
    """Returns a model's reading settings; empty if it has none, as with servers."""
    policy = getattr(model, "policy", None)
    return policy if isinstance(policy, Policy) else Policy()
