"""memagent's own loop: chunk after chunk through a memory, then the answer."""

from __future__ import annotations

from typing import Any

from memagent.memory.agent import MemoryAgent
from memagent.messages import Usage
from memagent.tasks import Sample
from memagent.threads import in_thread
from memagent_bench.systems.asking import agent_of
from memagent_bench.systems.base import Outcome, Setting, Status
from memagent_engines.extractive import WINDOW, ExtractiveModel

BYTES_PER_TOKEN = 4
"""Approximate bytes per token of English: the extractive model counts bytes, and gets as many as the tokens have."""


class Memory:
    """A `MemoryAgent`. Runs are stored: a killed one resumes after its last committed call.

    The prediction is `MemoryAgent.estimate`, made before the first call of each session. It cuts the document an extra
    time: 7 s for 3.9 million tokens on one core, beside 860 calls that take a server minutes.

    Args:
        name: name in `--systems`.
        setting: the benchmark's.
        agent: reads with these settings and commits to this store.
    """

    def __init__(self, name: str, setting: Setting, agent: MemoryAgent) -> None:
        self.name = name
        self._store, self._agent = setting.store, agent

    async def answer(self, sample: Sample, run_id: str) -> Outcome:
        """See `System.answer`."""
        estimate = await self._agent.aestimate(sample.context, sample.question)
        result = await self._agent.aask(sample.context, sample.question, run_id=run_id)
        last = await in_thread(self._store.latest, run_id, "chunk")
        return Outcome(
            answer=result.answer,
            status=Status.STOPPED if result.answer is None else Status.ANSWERED,
            detail=result.detail,
            usage=result.usage,
            run_id=run_id,
            chunks=result.chunks,
            predicted_calls=estimate.calls_max,
            predicted_tokens=estimate.prompt_tokens + estimate.completion_tokens,
            shown=0.0 if last is None else last[1]["mark"]["covered"] / len(sample.context),
        )


class Extractive(Memory):
    """The memory agent over sentences that match the question: no language model, no server.

    Chunk, memory and window are those of the setting, in bytes: four per token. It doesn't call the model, so its
    usage is empty and it costs nothing.

    Args:
        name: name in `--systems`.
        setting: the benchmark's.
    """

    def __init__(self, name: str, setting: Setting) -> None:
        settings = setting.settings
        fields = ("window", "chunk_tokens", "memory_tokens")
        sizes: dict[str, Any] = {
            name: value * BYTES_PER_TOKEN
            for name in fields
            if (value := getattr(settings, name)) is not None
        }
        sizes.setdefault("window", WINDOW * BYTES_PER_TOKEN)
        model = ExtractiveModel(window=sizes["window"])
        super().__init__(name, setting, agent_of(setting, model=model, gate="off", **sizes))

    async def answer(self, sample: Sample, run_id: str) -> Outcome:
        """See `System.answer`."""
        outcome = await super().answer(sample, run_id)
        nothing = {"usage": Usage(), "predicted_calls": 0, "predicted_tokens": 0}
        return outcome.model_copy(update=nothing)
