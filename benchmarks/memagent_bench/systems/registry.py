"""The systems by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Literal

from memagent.errors import ConfigError
from memagent.texts import name_extra
from memagent_bench.published import ONE_SHOT
from memagent_bench.suites import one_of, several_of
from memagent_bench.systems.asking import agent_of
from memagent_bench.systems.base import Setting, System
from memagent_bench.systems.direct import Direct, beginning, both_ends, ending
from memagent_bench.systems.map_reduce import MapReduce
from memagent_bench.systems.memory import Extractive, Memory
from memagent_bench.systems.one_shot import OneShot
from memagent_bench.systems.peers import Peer
from memagent_bench.systems.ranking import by_bm25, by_terms
from memagent_bench.systems.retrieval import Retrieval, RetrievalModel


@dataclass(frozen=True)
class SystemEntry:
    """A system of this package."""

    make: Callable[[str, Setting], System]
    """Makes the system from its name and the setting."""
    about: str
    """What it does, in one line."""
    asks: Literal["chunks", "once", "never"] = "chunks"
    """How often it calls the language model: at least once per chunk, once per sample, or never."""


def _memory(name: str, setting: Setting, gate: str) -> System:
    return Memory(name, setting, agent_of(setting, gate=gate))


def _peer(name: str, setting: Setting, class_name: str) -> System:
    """Opens a framework's loop: a class in the module named after the system."""
    try:
        module = import_module(f"memagent_bench.systems.{name.replace('-', '_')}")
    except ImportError as error:
        needed = name_extra(f"the system {name!r}", "peers")
        raise ConfigError(f"{needed}, or leave it out of --systems") from error
    return Peer(name, setting, getattr(module, class_name)())


SYSTEMS: dict[str, SystemEntry] = {
    "memory": SystemEntry(
        partial(_memory, gate="off"), "memagent: reads chunk after chunk into one memory"
    ),
    "memory-gate": SystemEntry(
        partial(_memory, gate="update"), "the same; may keep its memory unchanged for a few tokens"
    ),
    ONE_SHOT: SystemEntry(
        OneShot, "RULER's own prompt, question last, reply begun; asks once", "once"
    ),
    "direct": SystemEntry(partial(Direct, keep=both_ends), "the same as direct-middle", "once"),
    "direct-left": SystemEntry(
        partial(Direct, keep=ending), "asks once; drops the beginning of a long text", "once"
    ),
    "direct-right": SystemEntry(partial(Direct, keep=beginning), "the same; drops the end", "once"),
    "direct-middle": SystemEntry(
        partial(Direct, keep=both_ends), "the same; drops the middle", "once"
    ),
    "extractive": SystemEntry(
        Extractive, "memagent over sentences that match the question; no model", "never"
    ),
    "regex": SystemEntry(
        partial(Retrieval, rank=by_terms),
        "the sentences that contain the question's names; no model",
        "never",
    ),
    "bm25": SystemEntry(
        partial(Retrieval, rank=by_bm25),
        "the sentences that BM25 ranks first; no model",
        "never",
    ),
    "regex-model": SystemEntry(
        partial(RetrievalModel, rank=by_terms), "asks once, with the sentences of regex", "once"
    ),
    "bm25-model": SystemEntry(
        partial(RetrievalModel, rank=by_bm25), "asks once, with the sentences of bm25", "once"
    ),
    "map-reduce": SystemEntry(
        lambda _, setting: MapReduce(setting),
        "takes notes on each chunk separately, then on the notes",
    ),
    "langchain-refine": SystemEntry(
        partial(_peer, class_name="LangChainRefine"),
        "LangChain's refine chain with its own prompts",
    ),
    "llamaindex-refine": SystemEntry(
        partial(_peer, class_name="LlamaIndexRefine"), "LlamaIndex's Refine with its own prompts"
    ),
}
"""Systems by name. Left, right and middle are what is dropped."""
WITHOUT_MODEL = frozenset(name for name, system in SYSTEMS.items() if system.asks == "never")
"""Systems that call no language model."""


def choose_systems(text: str) -> list[str]:
    """Parses comma-separated systems, or `all` of this package.

    Raises:
        ConfigError: there is no such system, or the list is empty.
    """
    factories = [name for part in text.split(",") if ":" in (name := part.strip())]
    return several_of(text, (*SYSTEMS, *factories), "system")


def open_system(name: str, setting: Setting) -> System:
    """Opens the system of that name.

    Args:
        name: one of `SYSTEMS`, or `package.module:factory` for your own (see the package's docstring).
        setting: what all systems share.

    Raises:
        ConfigError: there is no such system, its package is not installed, or it isn't a system.
    """
    module, colon, factory = name.partition(":")
    if not colon:
        return SYSTEMS[one_of(name, SYSTEMS, "system")].make(name, setting)
    try:
        make: Any = getattr(import_module(module), factory)
        system: Any = make(setting)
    except Exception as error:  # anything that the user's code raises
        raise ConfigError(
            f"the system {name!r} cannot be made: {type(error).__name__}: {error}; give "
            f"package.module:factory, with its folder on PYTHONPATH, that takes the setting"
        ) from error
    if not (hasattr(system, "name") and callable(getattr(system, "answer", None))):
        raise ConfigError(
            f"{name!r} returned {system!r:.80}, which is not a system: it needs `name` and `async answer(sample, "
            f"run_id)`"
        )
    return system
