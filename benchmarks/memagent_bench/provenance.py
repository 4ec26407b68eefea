"""What produces records: the code, the packages, the machine and the server, without secrets or host names."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path

from memagent.memory.plan import MemoryPlan
from memagent.models.base import ChatModel, innermost
from memagent.models.openai import OpenAIModel
from memagent.models.probe import server_version
from memagent.models.server import Server
from memagent.tasks.origin import machine, source_state, versions
from memagent.threads import in_thread
from memagent_bench.record import Provenance
from memagent_engines.in_process import OwnModel

PACKAGES = (
    "memagent",
    "deepagents",
    "langchain",
    "langchain-classic",
    "langchain-openai",
    "llama-index-core",
    "numpy",
    "openai",
    "openai-agents",
    "pydantic",
    "pydantic-ai-slim",
    "tiktoken",
    "tokenizers",
    "torch",
    "transformers",
    "wonderwords",
)
"""Packages that can change samples, prompts, counts or answers."""


async def provenance(model: ChatModel, plan: MemoryPlan) -> Provenance:
    """Returns the provenance of the records of this process.

    Args:
        model: the model as called; servers behind it are asked for their kind and version.
        plan: window, chunk and memory for a nominal question.

    Raises:
        ModelError: a server cannot be reached.
    """
    commit, dirty = await in_thread(source_state, Path(__file__))
    settings, budget = plan.settings, plan.budget
    return Provenance(
        model=model.name,
        server=await server_of(model),
        prompts=f"{plan.prompts.name}:{plan.prompts.hash}",
        chunker=f"{settings.cuts}:{budget.chunk}:{plan.counter.name}",
        window=budget.window,
        memory_tokens=budget.memory,
        sampling=settings.sampling,
        seed=settings.seed,
        commit=commit,
        dirty=dirty,
        packages=await in_thread(versions, PACKAGES),
        python=platform.python_version(),
        machine=await in_thread(machine),
    )


async def server_of(model: ChatModel) -> str | None:
    """Returns kind, version and address of each server behind a model; None for one in this process.

    Raises:
        ModelError: a server cannot be reached.
    """
    return ", ".join([await _server(server) for server in servers_of(model)]) or None


def servers_of(model: ChatModel) -> list[Server]:
    """Returns the servers behind a model; empty for one in this process."""
    return served.servers if (served := _find_server_model(model)) else []


def extra_body_of(model: ChatModel) -> Mapping[str, object]:
    """Returns the extra fields of every request of a model; empty for one in this process."""
    return served.extra_body if (served := _find_server_model(model)) else {}


def weights_of(model: ChatModel) -> str:
    """Returns a digest of the weights in a model's folder; empty if unknown. Blocks: reads them."""
    inner = innermost(model)
    return inner.weights_digest if isinstance(inner, OwnModel) else ""


def _find_server_model(model: ChatModel) -> OpenAIModel | None:
    inner = innermost(model)
    return inner if isinstance(inner, OpenAIModel) else None


async def _server(server: Server) -> str:
    dialect = await server.dialect()
    version = await in_thread(server_version, server, dialect)
    return " ".join(filter(None, (dialect.name, version, "at", server.endpoint.base_url)))
