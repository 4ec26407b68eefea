"""What a command line comes to: questions, display, store, and the agent."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memagent.cli.options import Cuts, Display, Gate, Trust
from memagent.errors import ConfigError, StoreError
from memagent.terminal import on_terminal

if TYPE_CHECKING:
    from memagent.memory.agent import MemoryAgent
    from memagent.models.limit import Limits
    from memagent.runstore import RunRecord, RunStore


@dataclass(frozen=True)
class Setup:
    """What a new agent is made of; None: nothing was said."""

    model: str | None
    base_url: str | None
    tokenizer: str | None
    window: int | None
    chunk_tokens: int | None
    memory_tokens: int | None
    cuts: Cuts | None
    overlap: int | None
    prompts: str | None
    gate: Gate | None
    trust: Trust | None
    temperature: float | None
    seed: int = 0
    max_calls: int | None = None

    def agent(self, store: RunStore | None) -> MemoryAgent:
        """Makes the agent.

        Raises:
            ConfigError: a setting is wrong, or no model is named.
        """
        from memagent.memory.agent import MemoryAgent
        from memagent.messages import Sampling

        heat = self.temperature
        if heat is not None and not math.isfinite(heat):
            raise ConfigError(f"--temperature {heat!r}: give a number from 0 on")
        return MemoryAgent(
            self.model,
            base_url=self.base_url,
            tokenizer=self.tokenizer,
            prompts=self.prompts,
            window=self.window,
            chunk_tokens=self.chunk_tokens,
            memory_tokens=self.memory_tokens,
            cuts=None if self.cuts is None else self.cuts.value,
            overlap=self.overlap,
            gate=None if self.gate is None else self.gate.value,
            trust=None if self.trust is None else self.trust.value,
            sampling=None if heat is None else Sampling(temperature=heat),
            seed=self.seed,
            limits=call_limit(self.max_calls),
            store=store,
        )


def call_limit(calls: int | None) -> Limits | None:
    """Limits for `--max-calls`."""
    if calls is None:
        return None
    from memagent.models.limit import Limits

    return Limits(calls=calls)


def agent_again(
    record: RunRecord, store: RunStore, *, base_url: str | None, max_calls: int | None = None
) -> MemoryAgent:
    """Makes the agent of a stored run again, with the budget that the run has.

    Args:
        record: the run.
        store: where it is.
        base_url: the server, where it is another one now.
        max_calls: most calls of the run, those of its earlier sessions among them.

    Raises:
        ConfigError: the model was an object of a Python program.
    """
    from memagent.memory.agent import MemoryAgent
    from memagent.messages import Sampling
    from memagent.models.spec import SCHEMES
    from memagent.prompts import PromptSet

    given: dict[str, Any] = dict(record.settings)
    model: str = given.pop("model")
    if model.partition(":")[0] not in SCHEMES:
        raise ConfigError(
            f"run {record.id!r} was made with the model {model!r}, which only the program that made it knows: "
            f"resume it from Python, with MemoryAgent(that_model, ...).resume({record.id!r})"
        )
    prompts = PromptSet.parse(given.pop("prompts").encode(), name="the run's prompt set")
    kept_url: str | None = given.pop("base_url")
    sampling = Sampling.model_validate(given.pop("sampling"))
    # Not as they were asked for: a server's window may have changed since, and the defaults with it.
    bound = record.binding["budget"]
    given |= {
        "window": bound["window"],
        "chunk_tokens": bound["chunk"],
        "memory_tokens": bound["memory"],
    }
    return MemoryAgent(
        model,
        base_url=base_url or kept_url,
        prompts=prompts,
        sampling=sampling,
        limits=call_limit(max_calls),
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
