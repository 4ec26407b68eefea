"""The origin of session records: what produces them."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from memagent.models.base import ChatModel
from memagent.models.policy import Protocol
from memagent.prompts.session import SessionPrompts
from memagent.tasks.origin import machine, source_state, versions
from memagent.threads import in_thread
from memagent_bench.folder import Binding, digest_files
from memagent_bench.provenance import PACKAGES, server_of
from memagent_bench.sessions.record import Origin

Player: TypeAlias = Literal["expert", "model"]
BINDING = ("player", "model", "counter", "window", "protocol", "prompts")
"""Settings that change results, apart from a record's key."""


async def origin_of(
    model: ChatModel,
    player: Player,
    protocol: Protocol,
    prompts: SessionPrompts,
    suite: str | None = None,
) -> Origin:
    """Returns the origin of the records of this process.

    Raises:
        ModelError: a server cannot be reached.
    """
    commit, dirty = await in_thread(source_state, Path(__file__))
    return Origin(
        player=player,
        suite=suite,
        model=model.name,
        server=await server_of(model),
        counter=(await model.counter()).name,
        window=await model.window(),
        protocol=protocol,
        prompts=f"{prompts.name}:{prompts.hash}",
        commit=commit,
        dirty=dirty,
        packages=await in_thread(versions, PACKAGES),
        python=platform.python_version(),
        machine=await in_thread(machine),
    )


def binding_of(
    origin: Origin, files: Sequence[Path], extra_body: Mapping[str, object], weights: str
) -> Binding:
    """Returns what the records of one folder have in common. Blocks: reads data files.

    Args:
        origin: the origin of the records.
        files: the data files of the third-party suite.
        extra_body: extra fields of every request.
        weights: digest of the model's weights; empty if unknown.

    Raises:
        ConfigError: a file cannot be read.
    """
    suite = {"tasks": origin.suite, "data": digest_files(files)}
    return {
        "suite": "sessions",
        # Rarely used settings appear only in the folders that use them.
        **({} if origin.suite is None else suite),
        **({"extra_body": dict(extra_body)} if extra_body else {}),
        **({"weights": weights} if weights else {}),
        **origin.model_dump(mode="json", include=set(BINDING)),
    }
