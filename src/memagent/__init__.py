"""memagent: a model with a small window reads documents of any length through a fixed-size memory.

from memagent import MemoryAgent

MemoryAgent("vllm:Qwen/Qwen3-4B").ask(Path("war_and_peace.txt"), "When does Natasha marry?").answer
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memagent.documents import open_document
    from memagent.memory.agent import MemoryAgent, RunStream
    from memagent.messages import ChatRequest, Completion, Message, Sampling, ToolCall, Usage
    from memagent.models.base import ChatModel
    from memagent.models.limit import ConcurrencyLimit, Limits, UsageLimit
    from memagent.models.record import Recorder
    from memagent.models.retry import Retry
    from memagent.models.scripted import ScriptedModel
    from memagent.models.spec import open_model
    from memagent.prompts import PromptSet
    from memagent.run.result import Estimate, Result, SessionResult
    from memagent.runstore import RunStore
    from memagent.session.agent import Session, SessionStream, ToolAgent
    from memagent.session.context.buffer import SummaryBuffer
    from memagent.tools import Tool, ToolContext, tool
    from memagent.trajectory import Conversation, StopReason, Trajectory

__all__ = [
    "ChatModel",
    "ChatRequest",
    "Completion",
    "ConcurrencyLimit",
    "Conversation",
    "Estimate",
    "Limits",
    "MemoryAgent",
    "Message",
    "PromptSet",
    "Recorder",
    "Result",
    "Retry",
    "RunStore",
    "RunStream",
    "Sampling",
    "ScriptedModel",
    "Session",
    "SessionResult",
    "SessionStream",
    "StopReason",
    "SummaryBuffer",
    "Tool",
    "ToolAgent",
    "ToolCall",
    "ToolContext",
    "Trajectory",
    "Usage",
    "UsageLimit",
    "open_document",
    "open_model",
    "tool",
]
# Loaded on first use, so `import memagent` stays fast.
_HOMES = {
    "memory.agent": ("MemoryAgent", "RunStream"),
    "run.result": ("Estimate", "Result", "SessionResult"),
    "session.agent": ("Session", "SessionStream", "ToolAgent"),
    "documents": ("open_document",),
    "messages": ("ChatRequest", "Completion", "Message", "Sampling", "ToolCall", "Usage"),
    "models.base": ("ChatModel",),
    "models.limit": ("ConcurrencyLimit", "Limits", "UsageLimit"),
    "models.record": ("Recorder",),
    "models.retry": ("Retry",),
    "models.scripted": ("ScriptedModel",),
    "models.spec": ("open_model",),
    "prompts": ("PromptSet",),
    "runstore": ("RunStore",),
    "session.context.buffer": ("SummaryBuffer",),
    "tools": ("Tool", "ToolContext", "tool"),
    "trajectory": ("Conversation", "StopReason", "Trajectory"),
}
_HOME = {name: f"memagent.{module}" for module, names in _HOMES.items() for name in names}
__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = globals()[name] = getattr(import_module(_HOME[name]), name)
        return value
    raise AttributeError(f"module 'memagent' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
