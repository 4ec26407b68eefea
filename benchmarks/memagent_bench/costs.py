"""The cost of a benchmark, computed before any call.

Memories and replies are assumed to have maximum length. A sample's text is assumed to have its nominal length in the
model's tokens, so calls are right up to one chunk per sample.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from memagent.budget import JOINT_SLACK
from memagent.memory.plan import MemoryPlan
from memagent.tokens import TokenCounter
from memagent_bench.grid import Job
from memagent_bench.perf.chunks import book
from memagent_bench.published import ONE_SHOT
from memagent_bench.systems.map_reduce import MapReduce, Sizes
from memagent_bench.systems.registry import SYSTEMS

SAMPLE_CHARS = 40_000
"""Characters of the shipped book: enough to convert between tokenizers."""


@dataclass(frozen=True)
class Cost:
    """The cost of some calls, without retries."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens."""
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
        )

    def times(self, n: int) -> Cost:
        """Returns the cost of `n` such samples."""
        return Cost(n * self.calls, n * self.prompt_tokens, n * self.completion_tokens)


@dataclass(frozen=True)
class Share:
    """The jobs of one system at one length."""

    system: str
    length: int
    samples: int
    each: Cost

    @property
    def cost(self) -> Cost:
        """Cost of all samples."""
        return self.each.times(self.samples)


@dataclass(frozen=True)
class Forecast:
    """Estimates the cost of samples."""

    plan: MemoryPlan
    """The plan for a nominal question."""
    ratio: float = 1.0
    """Approximate model tokens per length token."""

    def shares(self, jobs: Iterable[Job]) -> list[Share]:
        """Groups jobs by length, then by system in order. Blocks: counts some tokens."""
        samples = Counter((job.length, job.system) for job in jobs)
        return [
            Share(system, length, n, self.of(system, length))
            for (length, system), n in sorted(samples.items(), key=lambda share: share[0][0])
        ]

    def of(self, system: str, length: int) -> Cost:
        """Returns the cost of a sample of `length` tokens; an unknown system is assumed to read all of it."""
        tokens = round(length * self.ratio)
        budget, frames = self.plan.budget, self.plan.frames
        asks = SYSTEMS[system].asks if system in SYSTEMS else "chunks"
        if asks == "never":
            return Cost()
        if asks == "once":
            prompt = frames["answer"] + budget.question + JOINT_SLACK + tokens
            limit = prompt if system == ONE_SHOT else budget.window - budget.output
            return Cost(1, min(prompt, limit), budget.output)
        chunks = -(-tokens // budget.chunk)
        each = frames["update"] + budget.question + JOINT_SLACK
        if system == MapReduce.name:
            calls = Sizes.of(self.plan).bound_calls(chunks)
            prompts = chunks * each + tokens + (calls - chunks) * budget.prompt
        else:
            again = self.plan.settings.reread
            calls = chunks + 1 + (min(again, chunks) + 1 if again else 0)
            prompts = calls * (each + budget.memory) + tokens
        return Cost(calls, prompts, calls * budget.output)


def total(shares: Sequence[Share]) -> Cost:
    """Returns the total cost."""
    return sum((share.cost for share in shares), Cost())


def tokens_ratio(counter: TokenCounter, lengths: TokenCounter) -> float:
    """Returns the model's tokens per length token, on English prose. Blocks.

    Args:
        counter: the model's counter.
        lengths: the counter of the samples' lengths.
    """
    if counter.name == lengths.name:
        return 1.0
    text = book()[:SAMPLE_CHARS]
    return counter.count(text) / lengths.count(text)
