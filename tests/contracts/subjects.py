"""The models that the contract is checked with."""

import importlib.util
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from memagent import ScriptedModel
from memagent.messages import ChatRequest, Completion, FinishReason
from memagent.models.base import ChatModel
from memagent.models.limit import ConcurrencyLimit
from memagent.models.retry import Retry
from memagent.tokens import TokenizerFile
from memagent_engines.extractive import ExtractiveModel

TOKENIZER = Path(__file__).parents[1] / "data" / "tokenizer"


@dataclass
class Subject:
    """A kind of model, and what is known of it."""

    name: str
    make: Callable[..., ChatModel]
    """Makes one; options are those of `OpenAIModel`."""
    window: int
    requests: Callable[[], int]
    """Requests that reached the engine so far."""
    engine: bool = False
    thinks: bool = False
    """Its template writes more where reasoning is switched off."""
    secret: str = ""
    tokenizers: tuple[str | None, ...] = (None,)
    """Tokenizers to count with."""
    talk: str = "Where was the old prince?"
    """What it replies to with twelve tokens or more."""
    reading: dict[str, Any] = field(default_factory=dict)
    """Settings of an agent that it can follow, where they are not the usual ones."""


def extractive() -> Subject:
    def make(**_: Any) -> ChatModel:
        return ExtractiveModel(window=1500)

    return Subject("extractive", make, 1500, lambda: 0)


def scripted() -> Subject:
    """A scripted model with a real tokenizer and template, under the usual wrappers."""
    counter = TokenizerFile(TOKENIZER)
    made: list[ScriptedModel] = []

    def reply(request: ChatRequest) -> Completion:
        words = "He was in the village"[: request.max_tokens]
        used = counter.count(words)
        text = words if used <= request.max_tokens else words[:1]
        usage = {
            "calls": 1,
            "prompt_tokens": counter.count_messages(request.messages),
            "completion_tokens": counter.count(text),
        }
        return Completion.model_validate(
            {"text": text, "usage": usage, "finish_reason": FinishReason.STOP}
        )

    def make(**_: Any) -> ChatModel:
        made.append(ScriptedModel(reply, window=1500, counter=counter))
        return ConcurrencyLimit(Retry(made[-1]), 64)

    return Subject("scripted", make, 1500, lambda: sum(len(m.requests) for m in made))


@cache
def _weights() -> tempfile.TemporaryDirectory[str]:
    """A tiny model's folder, until the process ends."""
    from tests.models.transformers.folders import model_folder

    folder = tempfile.TemporaryDirectory(prefix="memagent-test-")
    model_folder(Path(folder.name), window=1500)
    return folder


@cache
def _drawn() -> list[object]:
    """Grows with each reply that any weights in this process are asked for."""
    from memagent_engines.transformers.padded import PaddedSampler

    drawn, sample = list[object](), PaddedSampler.sample

    async def counted(sampler: PaddedSampler, *args: Any, **options: Any) -> Any:
        drawn.append(None)
        return await sample(sampler, *args, **options)

    setattr(PaddedSampler, sample.__name__, counted)
    return drawn


def transformers() -> Subject:
    """Random weights in this process."""
    from memagent_engines.transformers.model import TransformersModel

    drawn = _drawn()

    def make(**_: Any) -> ChatModel:
        return TransformersModel(_weights().name)

    return Subject("transformers", make, 1500, lambda: len(drawn))


def in_process() -> Subject:
    """The tiny model in an engine in this process; it runs until the process ends."""
    from tests.models.in_process.engine import ENGINE, WINDOW, keep_running, open_tiny

    drawn = keep_running()

    def make(tokens: bool = False, **_: Any) -> ChatModel:
        return open_tiny(tokens=tokens)

    return Subject(f"{ENGINE}-engine", make, WINDOW, lambda: len(drawn), thinks=True)


LOCAL = {"extractive": extractive, "scripted": scripted}
if importlib.util.find_spec("torch"):
    LOCAL["transformers"] = transformers
ENGINES = {f"{e}-engine": in_process for e in ("vllm", "sglang") if importlib.util.find_spec(e)}
LOCAL |= ENGINES
