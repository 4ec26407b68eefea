"""What the tests of systems share: a sample with a needle, and a setting around a scripted model."""

from typing import Any

from memagent import ChatRequest, RunStore, ScriptedModel
from memagent.memory.plan import MemorySettings
from memagent.models.base import ChatModel
from memagent.models.scripted import Respond
from memagent.prompts import PromptSet
from memagent.tasks import Sample
from memagent.tokens import TokenCounter
from memagent_bench.systems.base import Setting

WINDOW = 4096
PEERS = ("langchain-refine", "llamaindex-refine")
"""Need frameworks that only `make test-extra` installs."""
PLAIN = PromptSet.load("plain")
NEEDLE = "The special magic number for upbeat-pizza is 7405812."
QUESTION = "What is the special magic number for upbeat-pizza?"
FILLER = "The grass is green. The sky is blue. There and back again. "


def haystack(sentences: int = 300, at: float = 0.5) -> str:
    """Filler with the needle somewhere in it."""
    before = int(sentences * at)
    return FILLER * before + NEEDLE + " " + FILLER * (sentences - before)


def sample(context: str, question: str = QUESTION, generate: int = 128) -> Sample:
    return Sample(
        task="niah",
        index=0,
        length=8192,
        tokens=8000,
        context=context,
        question=question,
        outputs=("7405812",),
        generate=generate,
    )


def talk(request: ChatRequest) -> str:
    """Notes for chunks, an answer for answers and refinements."""
    return "Seen: 7405812." if request.kind == "update" else "7405812"


def scripted(
    reply: Respond = talk,
    *,
    window: int = WINDOW,
    counter: TokenCounter | None = None,
) -> ScriptedModel:
    return ScriptedModel(reply, window=window, counter=counter)


def setting(model: ChatModel, store: RunStore, **settings: Any) -> Setting:
    return Setting(
        model=model,
        prompts=PLAIN,
        settings=MemorySettings(**settings),
        store=store,
    )
