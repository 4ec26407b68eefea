"""The systems by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from memagent.errors import ConfigError
from memagent_bench.systems.asking import agent_of
from memagent_bench.systems.base import Setting, System
from memagent_bench.systems.direct import Direct, beginning, both_ends, ending
from memagent_bench.systems.map_reduce import MapReduce
from memagent_bench.systems.memory import Memory, extractive
from memagent_bench.systems.peers import Peer
from memagent_bench.systems.ranking import by_bm25, by_terms
from memagent_bench.systems.retrieval import Retrieval, RetrievalModel

WITHOUT_MODEL = frozenset({"extractive", "regex", "bm25"})
"""Systems that call no language model: reports say so."""


def _memory(gate: str, name: str, setting: Setting) -> System:
    return Memory(name, setting, agent_of(setting, gate=gate))


def _langchain(setting: Setting) -> System:
    try:
        from memagent_bench.systems.langchain_refine import LangChainRefine
    except ImportError as error:
        raise _missing("langchain-refine", "langchain-classic", error) from error
    return Peer("langchain-refine", setting, LangChainRefine())


def _llamaindex(setting: Setting) -> System:
    try:
        from memagent_bench.systems.llamaindex_refine import LlamaIndexRefine
    except ImportError as error:
        raise _missing("llamaindex-refine", "llama-index-core", error) from error
    return Peer("llamaindex-refine", setting, LlamaIndexRefine())


def _missing(name: str, package: str, error: ImportError) -> ConfigError:
    return ConfigError(
        f"the system {name!r} needs {package} ({error}): pip install 'memagent[peers]', or leave it out of --systems"
    )


SYSTEMS: dict[str, Callable[[Setting], System]] = {
    "memory": partial(_memory, "off", "memory"),
    "memory-gate": partial(_memory, "update", "memory-gate"),
    "direct": partial(Direct, "direct", keep=both_ends),
    "direct-left": partial(Direct, "direct-left", keep=ending),
    "direct-right": partial(Direct, "direct-right", keep=beginning),
    "direct-middle": partial(Direct, "direct-middle", keep=both_ends),
    "extractive": extractive,
    "regex": partial(Retrieval, "regex", rank=by_terms),
    "bm25": partial(Retrieval, "bm25", rank=by_bm25),
    "regex-model": partial(RetrievalModel, "regex-model", rank=by_terms),
    "bm25-model": partial(RetrievalModel, "bm25-model", rank=by_bm25),
    "map-reduce": MapReduce,
    "langchain-refine": _langchain,
    "llamaindex-refine": _llamaindex,
}
"""Left, right and middle are what is dropped; `direct` is `direct-middle`."""


def open_system(name: str, setting: Setting) -> System:
    """The system of that name.

    Args:
        name: one of `SYSTEMS`, or `package.module:factory` for one of your own (see the package's docstring).
        setting: what all systems share.

    Raises:
        ConfigError: there is none, its package is not installed, or it is no system.
    """
    if name in SYSTEMS:
        return SYSTEMS[name](setting)
    module, colon, factory = name.partition(":")
    if not (colon and module and factory):
        close = difflib.get_close_matches(name, SYSTEMS, n=1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        raise ConfigError(
            f"there is no system {name!r}; {meant}Known are {', '.join(SYSTEMS)}, and package.module:factory "
            f"for one of your own"
        )
    try:
        make: Any = getattr(import_module(module), factory)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"the system {name!r} cannot be loaded: {error}; is its folder on PYTHONPATH?"
        ) from error
    system: Any = make(setting)
    if not (hasattr(system, "name") and callable(getattr(system, "answer", None))):
        raise ConfigError(
            f"{name!r} gave {system!r:.80}, which is no system: it needs `name` and `async answer(sample, run_id)`"
        )
    return system
