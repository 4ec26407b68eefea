"""What a reading needs to know before its first call: settings, and the plan they resolve to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal, ParamSpec, Self, TypeVar, cast

from pydantic import Field, ValidationError

from memagent.budget import DEFAULT_WINDOW, JOINT_SLACK, ContextBudget
from memagent.chunking import Chunker, Cuts, ResumePoint, chunks
from memagent.documents import Document
from memagent.errors import ConfigError, WindowUnknown
from memagent.messages import CallKind, Leaf, Message, Sampling
from memagent.models.policy import Policy
from memagent.models.retry import patiently
from memagent.prompts import Gate, Neutraliser, PromptSet
from memagent.prompts.promptset import WORDS_PER_TOKEN
from memagent.run.result import Estimate
from memagent.threads import in_thread
from memagent.tokens import TokenCounter

P = ParamSpec("P")
T = TypeVar("T")


class Settings(Leaf):
    """An agent's settings as plain data: kept with each run, so that the same agent can be made again."""

    window: int | None = Field(default=None, gt=0)
    chunk_tokens: int | None = Field(default=None, gt=0)
    memory_tokens: int | None = Field(default=None, gt=0)
    cuts: Cuts = "sentence"
    overlap: int = Field(default=0, ge=0)
    gate: Gate = "off"
    trust: Literal["neutral", "exact"] = "neutral"
    sampling: Sampling = Sampling()
    seed: int = 0

    @classmethod
    def chosen(cls, policy: Policy, **given: Any) -> Self:
        """What was given, else what the model's policy wants, else the defaults.

        Args:
            policy: of the model.
            given: fields; None where nothing was given.

        Raises:
            ConfigError: a setting has a bad value.
        """
        fields = {name: value for name, value in given.items() if value is not None}
        try:
            return cls.model_validate(policy.reading() | fields)
        except ValidationError as error:
            first = error.errors()[0]
            raise ConfigError(
                f"{first['loc'][-1]}={first.get('input')!r}: {first['msg']}"
            ) from error


@dataclass(frozen=True)
class Plan:
    """Everything that a reading needs to know, resolved before the first call."""

    questions: tuple[str, ...]
    settings: Settings
    prompts: PromptSet
    model: str
    """The model's name."""
    counter: TokenCounter
    budget: ContextBudget
    neutraliser: Neutraliser
    frames: dict[CallKind, int]
    """Tokens of each kind of prompt with empty fields."""
    question_tokens: tuple[int, ...]
    empty_memory_tokens: int

    @classmethod
    def make(
        cls,
        questions: tuple[str, ...],
        settings: Settings,
        prompts: PromptSet,
        *,
        model: str,
        counter: TokenCounter,
        window: int | None,
    ) -> Plan:
        """Measures frames and questions, and divides the window. Blocks: the counter may be a server.

        Args:
            questions: at least one, none empty.
            settings: the agent's.
            prompts: the wording.
            model: the model's name.
            counter: counts tokens.
            window: what the model says of its window, None where it says nothing.

        Raises:
            ConfigError: no question, or an empty one.
            BudgetError: the window is unknown, too small, or cannot be divided as asked.
        """
        if not questions:
            raise ConfigError("there is no question: give at least one")
        for place, question in enumerate(questions):
            if not isinstance(cast("object", question), str) or not question.strip():
                raise ConfigError(
                    f"question {place} is {question!r}: give a text that is not empty"
                )
        for question in questions:
            if not question.isascii() and any("\ud800" <= char <= "\udfff" for char in question):
                raise ConfigError(
                    f"the question {question!r} holds half a surrogate pair: it is no text"
                )
        if settings.window is None and window is None:
            raise WindowUnknown(
                f"the model {model!r} does not say how large its window is: give it (window=, --window)"
            )
        if settings.window is not None and window is not None and settings.window > window:
            raise ConfigError(
                f"window={settings.window!r} is over the {window} tokens that {model!r} reports"
            )
        whole = settings.window or min(window or DEFAULT_WINDOW, DEFAULT_WINDOW)
        tags = prompts.tags if settings.trust == "neutral" else None
        neutraliser = Neutraliser(tags, counter.control_tokens)
        frames: dict[CallKind, int] = {
            kind: counter.count_messages(
                prompts.render(kind, question="", memory="", gate=settings.gate)
            )
            for kind in ("update", "answer")
        }
        question_tokens = tuple(counter.count(neutraliser.safe(question)) for question in questions)
        empty_memory_tokens = counter.count(prompts.empty_memory)
        budget = ContextBudget.divide(
            whole,
            frame=max(frames.values()),
            question=max(question_tokens),
            empty_memory=empty_memory_tokens,
            memory=settings.memory_tokens,
            chunk=settings.chunk_tokens,
        )
        return cls(
            questions=questions,
            settings=settings,
            prompts=prompts,
            model=model,
            counter=counter,
            budget=budget,
            neutraliser=neutraliser,
            frames=frames,
            question_tokens=question_tokens,
            empty_memory_tokens=empty_memory_tokens,
        )

    def binding(self) -> dict[str, Any]:
        """What a run is bound to, besides its document: all that shapes its prompts and replies."""
        settings = self.settings.model_dump(
            mode="json", include={"cuts", "overlap", "gate", "trust", "sampling", "seed"}
        )
        return {
            "agent": "memory",
            "questions": list(self.questions),
            "model": self.model,
            "prompts": f"{self.prompts.name}:{self.prompts.hash}",
            "counter": self.counter.name,
            "budget": self.budget.model_dump(mode="json"),
            **settings,
        }

    def chunker(self, resume: ResumePoint | None = None) -> Chunker:
        """Cuts the document as this plan says."""
        return Chunker(
            self.counter,
            self.budget.chunk,
            cuts=self.settings.cuts,
            overlap=self.settings.overlap,
            neutralise=self.neutraliser,
            resume=resume,
        )

    def render(
        self, kind: CallKind, question: str, memory: str, chunk: str = ""
    ) -> tuple[Message, ...]:
        """The messages of a call. Chunk and memory are safe already; the question is made so here."""
        return self.prompts.render(
            kind,
            question=self.neutraliser.safe(question),
            memory=memory or self.prompts.empty_memory,
            chunk=chunk,
            gate=self.settings.gate,
            memory_words=max(1, int(self.budget.memory * WORDS_PER_TOKEN)),
        )

    async def counting(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs work that counts tokens in a thread. Where a server counts and is away, it is waited for.

        Raises:
            ModelError: the server cannot be asked.
        """
        return await patiently(lambda: in_thread(work, *args, **kwargs), name=self.model)

    async def estimate(self, document: Document) -> Estimate:
        """Cuts the document, and bounds what reading it costs."""
        count = tokens = 0
        async with aclosing(chunks(document, self.chunker(), run=self.counting)) as stream:
            async for chunk in stream:
                count += 1
                tokens += chunk.tokens
        asked = len(self.questions)
        memories = self.empty_memory_tokens + (count - 1) * self.budget.memory
        updates = count * (self.frames["update"] + JOINT_SLACK) + memories + tokens
        answer = self.frames["answer"] + JOINT_SLACK + self.budget.memory
        calls = asked * (count + 1)
        return Estimate(
            chunks=count,
            document_tokens=tokens,
            calls_min=2 * asked if self.settings.gate in ("exit", "both") else calls,
            calls_max=calls,
            prompt_tokens=asked * (updates + answer) + sum(self.question_tokens) * (count + 1),
            completion_tokens=calls * self.budget.output,
            window=self.budget.window,
            counter=self.counter.name,
        )
