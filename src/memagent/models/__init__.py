"""Chat models: servers, embedded ones, and the wrappers that go around any of them."""

from memagent.models.base import ChatModel, Wrapper
from memagent.models.limit import ConcurrencyLimit, Limits, Metered, UsageLimit
from memagent.models.openai import OpenAIModel
from memagent.models.record import Recorder
from memagent.models.retry import Retry, RetryPolicy
from memagent.models.scripted import ScriptedModel
from memagent.models.spec import open_model

__all__ = [
    "ChatModel",
    "ConcurrencyLimit",
    "Limits",
    "Metered",
    "OpenAIModel",
    "Recorder",
    "Retry",
    "RetryPolicy",
    "ScriptedModel",
    "UsageLimit",
    "Wrapper",
    "open_model",
]
