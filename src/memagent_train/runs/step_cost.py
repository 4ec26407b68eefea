"""Estimates a training step roughly: rollouts, conversations, tokens and memory."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from memagent.budget import DEFAULT_WINDOW
from memagent.terminal import amount
from memagent_train.agents import MEMORY, TOOLS, AgentSettings
from memagent_train.algorithm import BatchSettings
from memagent_train.config.train import TrainConfig
from memagent_train.rollout.settings import IN_PROCESS, OWN_WEIGHTS
from memagent_train.runs.estimate import GIB, HALF, Load, Memory, kv_bytes, memory
from memagent_train.runs.shapes import Shape, shape_of
from memagent_train.sessions import SessionSettings

CHUNK_SHARE, MEMORY_SHARE = 5000 / 8192, 1024 / 8192
"""Shares of the window, as the published system divides it (arXiv 2507.02259) and `ContextBudget` by default."""
SHARES = ("gpu_memory_utilization", "mem_fraction_static")
"""Settings of vLLM and SGLang for the share of the device that the engine takes."""


@dataclass(frozen=True)
class StepCost:
    """The amounts of one step."""

    rollouts: int
    """Rollouts of all processes, without refills."""
    most_rollouts: int
    """Rollouts with as many refills as dynamic sampling may make."""
    conversations: tuple[int, int] | None
    """Conversations of all rollouts, at the shortest and the longest length; None if unknown. Excludes retries. A tool
    agent's are those of a policy that doesn't reason."""
    reasoning: tuple[int, int] | None
    """Most conversations of a tool agent whose policy reasons: in all rollouts, and per pass of one process."""
    tokens: tuple[int, int] | None
    """Maximum prompt and sampled tokens at those lengths."""
    updates: int
    rows: int | None
    """Most conversations per pass of one process; None if unknown."""
    window: int
    """Tokens of the longest conversation."""
    memory: Memory | None
    """Memory per device; None if the model's shape is unknown."""
    device_gib: float | None

    def lines(self) -> list[tuple[str, str]]:
        """Returns the amounts as text: name and value."""
        lines = [("rollouts per step", _span((self.rollouts, self.most_rollouts)))]
        unknown = "unknown: data or agent don't give their length"
        spans = {"conversations per step": self.conversations, "tokens per step": self.tokens}
        lines += [(name, unknown if span is None else _span(span)) for name, span in spans.items()]
        lines.append(("updates per step", str(self.updates)))
        rows = (
            "unknown" if self.rows is None else f"{self.rows:,} of at most {self.window:,} tokens"
        )
        lines.append(("conversations per pass", rows))
        if self.reasoning is not None:
            step, each = self.reasoning
            lines.append(("if replies reason", f"up to {step:,} per step, {each:,} per pass"))
        if self.memory is None:
            return [*lines, ("memory", "unknown: the model's shape is not known")]
        lines += [(f"memory: {name}", size) for name, size in self.memory.lines()]
        if self.device_gib is not None:
            fits = self.memory.peak / GIB <= self.device_gib
            lines.append(
                (f"fits {self.device_gib:g} GiB", "yes, by this estimate" if fits else "NO")
            )
        return lines


def step_cost(config: TrainConfig) -> StepCost:
    """Computes the amounts from the settings alone.

    Raises:
        ConfigError: a model folder's config.json can't be read.
    """
    batch, processes = config.batch, config.resources.processes
    rollouts = batch.groups * processes * batch.group_size
    refills = config.algorithm.max_refills if config.algorithm.dynamic_sampling else 0
    agent = config.agent
    agent_window = agent.window if agent.tools is None else agent.tools.working_context
    window = agent_window or min(config.rollout.window or DEFAULT_WINDOW, DEFAULT_WINDOW)
    lengths = _lengths(config)
    calls = [_calls(config, window, length) for length in lengths]
    conversations, reasoning = calls, None
    if agent.use == TOOLS:
        conversations, most = _of_sessions(agent)
        reasoning = rollouts * most, _rows(batch, window, most) or 1
    rows = _rows(batch, window, conversations[-1] if conversations else None)
    each = [_tokens(config, window, length, n) for length, n in zip(lengths, calls, strict=True)]
    return StepCost(
        rollouts=rollouts,
        most_rollouts=rollouts * (1 + refills),
        conversations=_ends([rollouts * count for count in conversations]),
        reasoning=reasoning,
        tokens=_ends([rollouts * count for count in each]),
        updates=batch.updates_per_step,
        rows=rows,
        window=window,
        memory=_memory(config, window, rows or 1),
        device_gib=config.resources.device_gib,
    )


def _lengths(config: TrainConfig) -> list[int]:
    """Returns the sorted lengths of training samples; none if a custom agent reads them, or the data is files."""
    if config.agent.use != MEMORY:
        return []
    named = [getattr(source, "lengths", ()) for source in config.data.source]
    return sorted({length for lengths in named for length in lengths}) if all(named) else []


def _calls(config: TrainConfig, window: int, length: int) -> int:
    """Returns the conversations of a memory agent: one per chunk plus the answer."""
    chunk = config.agent.chunk_tokens or int(window * CHUNK_SHARE)
    calls = math.ceil(length / chunk) + 1
    return min(calls, config.agent.max_calls or calls)


def _of_sessions(agent: AgentSettings) -> tuple[list[int], int]:
    """Returns a tool agent's fewest and most conversations (one per stage and per summary), and the most if it reasons.

    A summary is requested in a separate conversation if the last turn didn't fit its request. Reasoning doesn't stay
    in the context, so a call after a reply with reasoning opens a new conversation.
    """
    tools = agent.tools or SessionSettings()
    calls = tools.max_steps + tools.max_summaries
    calls = min(calls, agent.max_calls or calls)
    return [1, min(2 * tools.max_summaries + 1, calls)], calls


def _rows(batch: BatchSettings, window: int, each: int | None) -> int | None:
    """Returns the most conversations per pass if each rollout has `each`; None if nothing limits them."""
    limits: list[int] = []
    if each is not None:
        share = each * batch.groups * batch.group_size
        limits.append(math.ceil(share / (batch.updates * batch.micro_batches)))
    if batch.micro_batch_tokens is not None:
        limits.append(max(1, batch.micro_batch_tokens // window))
    return min(limits, default=None)


def _tokens(config: TrainConfig, window: int, length: int, calls: int) -> int:
    """Returns the tokens of one rollout: the document once, and in every call one memory read and one written."""
    size = config.agent.memory_tokens or int(window * MEMORY_SHARE)
    return length + 2 * calls * size


def _memory(config: TrainConfig, window: int, rows: int) -> Memory | None:
    shape = shape_of(config.model.path)
    if shape is None:
        return None
    lora, engine = config.lora, config.rollout
    on_gpu = config.resources.device != "cpu"
    precision = config.optimizer.precision
    load = Load(
        shape=shape,
        weight_bytes=4 if config.model.dtype == "float32" else 2,
        half=precision == "bf16" or (precision == "auto" and on_gpu),
        adapter_rank=None if lora is None else lora.rank,
        reference=config.algorithm.beta > 0 and lora is None,
        row_tokens=window,
        rows=rows,
        checkpointing=config.resources.gradient_checkpointing,
        conversations=0
        if engine.engine in OWN_WEIGHTS
        else min(engine.concurrency, engine.max_batch),
        devices=config.resources.processes,
        sharding=config.resources.sharding,
        engine=_engine_bytes(config, shape, window) if engine.engine in IN_PROCESS else 0,
    )
    return memory(load)


def _engine_bytes(config: TrainConfig, shape: Shape, window: int) -> float:
    """Returns the bytes that an engine beside the trainer keeps: its share of the device, else weights and cache."""
    rollout, device = config.rollout, config.resources.device_gib
    share = next((value for key, value in rollout.engine_settings.items() if key in SHARES), None)
    if device is not None and isinstance(share, int | float):
        return share * device * GIB
    return HALF * shape.parameters + rollout.concurrency * window * kv_bytes(shape)


def _ends(values: Sequence[int]) -> tuple[int, int] | None:
    return (values[0], values[-1]) if values else None


def _span(span: tuple[int, int]) -> str:
    low, high = span
    return amount(low) if low == high else f"{amount(low)} to {amount(high)}"
