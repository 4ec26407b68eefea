"""What produces records: the code, the packages, the machine and the server, without secrets or host names."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

import memagent
from memagent.memory.plan import MemoryPlan
from memagent.models.base import ChatModel, Wrapper
from memagent.models.openai import OpenAIModel
from memagent.models.probe import server_version
from memagent.models.server import Server
from memagent.threads import in_thread
from memagent_bench.perf.measure import machine
from memagent_bench.record import Provenance

PACKAGES = (
    "memagent",
    "langchain-classic",
    "llama-index-core",
    "numpy",
    "openai",
    "pydantic",
    "tiktoken",
    "tokenizers",
    "torch",
    "transformers",
    "wonderwords",
)
"""What can change samples, prompts, counts or answers."""
GIT_SECONDS = 10


async def provenance(model: ChatModel, plan: MemoryPlan) -> Provenance:
    """What the records of this process say of their origin.

    Args:
        model: as it is called; servers behind it are asked for their kind and version.
        plan: of a nominal question: window, chunk and memory.

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
        packages=await in_thread(packages),
        python=platform.python_version(),
        machine=await in_thread(machine),
    )


async def server_of(model: ChatModel) -> str | None:
    """Kind, version and address of each server behind a model; None for one in this process.

    Raises:
        ModelError: a server cannot be reached.
    """
    return ", ".join([await _server(server) for server in servers_of(model)]) or None


def servers_of(model: ChatModel) -> list[Server]:
    """The servers behind a model; none for one in this process."""
    while isinstance(model, Wrapper):
        model = model.inner
    return model.servers if isinstance(model, OpenAIModel) else []


async def _server(server: Server) -> str:
    dialect = await server.dialect()
    version = await in_thread(server_version, server, dialect)
    return " ".join(filter(None, (dialect.name, version, "at", server.endpoint.base_url)))


def source_state(file: Path) -> tuple[str | None, bool | None]:
    """Commit of the git work tree that `file` belongs to, and whether its code has uncommitted changes.

    The code is the folder of `file`, and memagent's where it is in the same tree: results that lie elsewhere in the
    tree change nothing. Both are None where there is no such tree, no git, or where the file only lies in somebody
    else's: a virtual environment inside of another project.
    """
    folder = file.resolve().parent
    if _git(folder, "ls-files", "--error-unmatch", file.name) is None:
        return None, None
    commit, top = (
        _git(folder, "rev-parse", "HEAD"),
        _git(folder, "rev-parse", "--show-toplevel"),
    )
    core = Path(memagent.__file__).resolve().parent
    code = [folder, *([core] if top and core.is_relative_to(top) else [])]
    changes = _git(folder, "status", "--porcelain", "--", *map(str, code))
    return commit, None if changes is None else bool(changes)


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says, None where it fails."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            # Looking at a tree must not write to it: others may be at work there.
            env=os.environ | {"GIT_OPTIONAL_LOCKS": "0"},
            timeout=GIT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace").strip()


def packages() -> dict[str, str]:
    """Versions of what is installed of `PACKAGES`."""
    found: dict[str, str] = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
