"""What a command line comes to: questions, display, store, and the agent."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memagent.cli.options import Cuts, Display, Gate
from memagent.cli.output import on_terminal
from memagent.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from memagent.agents.memory import MemoryAgent
    from memagent.runstore import RunStore


@dataclass(frozen=True)
class Setup:
    """What a new agent is made of."""

    model: str | None
    base_url: str | None
    tokenizer: str | None
    window: int | None
    chunk_tokens: int | None
    memory_tokens: int | None
    cuts: Cuts
    prompts: str
    gate: Gate
    seed: int

    def agent(self, store: RunStore | None) -> MemoryAgent:
        """Makes the agent.

        Raises:
            ConfigError: a setting is wrong, or no model is named.
        """
        from memagent.agents.memory import MemoryAgent

        return MemoryAgent(
            self.model,
            base_url=self.base_url,
            tokenizer=self.tokenizer,
            prompts=self.prompts,
            window=self.window,
            chunk_tokens=self.chunk_tokens,
            memory_tokens=self.memory_tokens,
            cuts=self.cuts.value,
            gate=self.gate.value,
            seed=self.seed,
            store=store,
        )


def agent_again(
    settings: dict[str, Any], store: RunStore, *, base_url: str | None, run_id: str
) -> MemoryAgent:
    """Makes the agent of a stored run again.

    Args:
        settings: `RunRecord.settings`.
        store: where the run is.
        base_url: the server, where it is another one now.
        run_id: the run, for messages.

    Raises:
        ConfigError: the model was an object of a Python program.
    """
    from memagent.agents.memory import MemoryAgent
    from memagent.messages import Sampling
    from memagent.models.spec import SCHEMES
    from memagent.prompts import PromptSet

    given = dict(settings)
    model: str = given.pop("model")
    if model.partition(":")[0] not in SCHEMES:
        raise ConfigError(
            f"run {run_id!r} was made with the model {model!r}, which only the program that made it knows: "
            f"resume it from Python, with MemoryAgent(that_model, ...).resume({run_id!r})"
        )
    prompts = PromptSet.parse(given.pop("prompts").encode(), name="the run's prompt set")
    kept_url: str | None = given.pop("base_url")
    sampling = Sampling.model_validate(given.pop("sampling"))
    return MemoryAgent(
        model,
        base_url=base_url or kept_url,
        prompts=prompts,
        sampling=sampling,
        store=store,
        **given,
    )


def chosen_questions(question: str | None, more: list[str] | None) -> tuple[str, ...]:
    """The questions in the order of the command line.

    Raises:
        ConfigError: there is none.
    """
    questions = (*([] if question is None else [question]), *(more or ()))
    if not questions:
        raise ConfigError(
            "no question: give it after the document (memagent ask DOC 'QUESTION'), or one or more times "
            "with -q (memagent ask DOC -q 'QUESTION' -q 'ANOTHER')"
        )
    return questions


def chosen_display(display: Display | None) -> Display:
    """`full` where standard output is a terminal, else `plain`; `full` elsewhere is `plain` too."""
    if display is not None and display is not Display.FULL:
        return display
    return Display.FULL if on_terminal(sys.stdout) else Display.PLAIN


def chosen_store(store: Path | None, *, durable: bool = False) -> RunStore:
    """The store to write to, made where it is missing."""
    from memagent.runstore import RunStore

    return RunStore(RunStore.default_path() if store is None else store, durable=durable)


def existing_store(store: Path | None) -> RunStore:
    """The store to read from.

    Raises:
        StoreError: `--store` names a file that does not exist.
    """
    if store is not None and not store.expanduser().exists():
        raise StoreError(f"there is no run store {str(store)!r}; check --store")
    return chosen_store(store)
