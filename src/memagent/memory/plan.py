"""What a reading resolves before its first call: settings, wording, and the division of the window."""

from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from memagent.budget import JOINT_SLACK, ContextBudget
from memagent.chunking import Chunker, ResumePoint, chunks
from memagent.chunking.fitting import within
from memagent.documents import Document
from memagent.errors import ConfigError
from memagent.memory.ranking import rank
from memagent.messages import CallKind, Message
from memagent.models.base import ChatModel
from memagent.models.policy import ReadingSettings
from memagent.prompts import Neutraliser, PromptSet
from memagent.prompts.promptset import WORDS_PER_TOKEN
from memagent.run.plan import Plan, Settings, check_text, choose_window
from memagent.run.result import Estimate
from memagent.tokens import TokenCounter


class MemorySettings(Settings, ReadingSettings):
    """A memory agent's settings."""

    read_ahead: Annotated[int, Field(gt=0)] | Literal["auto"] = 1
    """Chunks that are sent at once, each with the current memory; `auto` follows how often the memory changes."""

    @model_validator(mode="after")
    def _greedy(self) -> Self:
        if self.read_ahead != 1 and self.sampling.temperature > 0:
            raise ConfigError(
                f"read_ahead={self.read_ahead!r} needs greedy decoding, and the temperature is "
                f"{self.sampling.temperature}: pass sampling=Sampling(temperature=0), or --temperature 0"
            )
        return self


@dataclass(frozen=True)
class MemoryPlan(Plan):
    """Everything a reading needs to know."""

    settings: MemorySettings
    questions: tuple[str, ...]
    prompts: PromptSet
    budget: ContextBudget
    neutraliser: Neutraliser
    frames: dict[CallKind, int]
    """Tokens of each kind of prompt with empty fields."""
    question_tokens: tuple[int, ...]
    empty_memory_tokens: int
    branch: dict[str, Any] | None = None
    """The `run` that this one branched from, and the chunk `before` which it did."""

    @classmethod
    def make(
        cls,
        questions: tuple[str, ...],
        settings: MemorySettings,
        prompts: PromptSet,
        frame: int | None = None,
        *,
        model: ChatModel,
        counter: TokenCounter,
        window: int | None,
    ) -> Self:
        """Measures frames and questions, and divides the window that the model reports (None if it doesn't). Blocks.

        Raises:
            ConfigError: no question, or an empty one.
            BudgetError: the window is unknown, too small, or cannot be divided as asked.
        """
        if not questions:
            raise ConfigError("no question was given: give at least one")
        for place, question in enumerate(questions):
            check_text(f"question {place}" if questions[1:] else "the question", question)
        if settings.reread:
            rank((), "", 1)  # now, not after a long reading: this SQLite may be unable to search
        full_window = choose_window(model.name, settings.window, window)
        tags = dict(prompts.tags).values() if settings.trust == "neutral" else None
        neutraliser = Neutraliser(tags, counter.control_tokens)
        frames: dict[CallKind, int] = {"update": 0, "answer": 0}
        for kind in frames:
            messages = prompts.render(kind, question="", memory="", gate=settings.gate)
            frames[kind] = counter.count_messages(messages)
        question_tokens = tuple(map(counter.count, map(neutraliser.safe, questions)))
        empty_memory_tokens = counter.count(prompts.empty_memory)
        budget = ContextBudget.divide(
            full_window,
            frame=frame or max(frames.values()),  # a resumed run's, so chunks keep their sizes
            question=max(question_tokens),
            empty_memory=empty_memory_tokens,
            memory=settings.memory_tokens,
            chunk=settings.chunk_tokens,
        )
        return cls(
            model=model,
            counter=counter,
            window=budget.window,
            settings=settings,
            questions=questions,
            prompts=prompts,
            budget=budget,
            neutraliser=neutraliser,
            frames=frames,
            question_tokens=question_tokens,
            empty_memory_tokens=empty_memory_tokens,
        )

    def binding(self) -> dict[str, Any]:
        """See `Plan.binding`."""
        bound = {"cuts", "gate", "trust", "degenerate", "reread", "sampling", "seed"}
        settings = self.settings.model_dump(mode="json", include=bound)
        return {
            "questions": list(self.questions),
            "model": self.model.name,
            "prompts": f"{self.prompts.name}:{self.prompts.hash}",
            "counter": self.counter.name,
            "budget": self.budget.model_dump(mode="json"),
            **settings,
            **({} if self.branch is None else {"branch": self.branch}),
        }

    def chunker(self, resume: ResumePoint | None = None) -> Chunker:
        """Makes a chunker that cuts the document as this plan says."""
        return Chunker(
            self.counter,
            self.budget.chunk,
            cuts=self.settings.cuts,
            neutralise=self.neutraliser,
            resume=resume,
        )

    def render(
        self, kind: CallKind, question: int, memory: str, chunk: str = "", note: str = ""
    ) -> tuple[Message, ...]:
        """Renders a call's messages. Neutralises the question and appends `note`; the rest is neutralised already."""
        return self.prompts.render(
            kind,
            question=self.neutraliser.safe(self.questions[question]) + note,
            memory=memory or self.prompts.empty_memory,
            chunk=chunk,
            gate=self.settings.gate,
            memory_words=max(1, int(self.budget.memory * WORDS_PER_TOKEN)),
        )

    def bound(self, kind: CallKind, question: int, memory: int, chunk: int = 0) -> int:
        """Returns an upper bound on a prompt's tokens, given those of its memory (0 before the first) and chunk."""
        field = memory or self.empty_memory_tokens
        return self.frames[kind] + self.question_tokens[question] + field + chunk + JOINT_SLACK

    def parts(self, question: int, memory: str, chunk: str | None = None) -> dict[str, str]:
        """Returns the texts that make up a prompt, for models that read only those."""
        prompts = self.prompts
        parts = {
            "question": self.questions[question],
            "memory": memory,
            "empty_memory": prompts.empty_memory,
            "answer_form": prompts.answer_form,
        }
        if chunk is not None:
            parts["chunk"] = chunk
            if self.settings.gate in ("update", "both"):
                parts["keep"] = prompts.keep
        return parts

    def bound_memory(self, text: str, *, cut_off: bool) -> tuple[str, int, int]:
        """Returns a memory, neutralised and cut at a sentence end to its budget; its tokens; those before. Blocks."""
        safe = self.neutraliser.safe(text)
        return within(safe, self.budget.memory, self.counter, cut_off=cut_off)

    async def estimate(self, document: Document, ahead: int = 1) -> Estimate:
        """Cuts the document, and bounds what reading it costs with up to `ahead` chunks sent at once."""
        count = tokens = 0
        async with aclosing(chunks(document, self.chunker(), run=self.counting)) as stream:
            async for chunk in stream:
                count += 1
                tokens += chunk.tokens
        question_count = len(self.questions)
        memories = self.empty_memory_tokens + (count - 1) * self.budget.memory
        updates = count * (self.frames["update"] + JOINT_SLACK) + memories + tokens
        answer = self.frames["answer"] + JOINT_SLACK + self.budget.memory
        # At worst each chunk changes the memory, so that each round takes only one chunk.
        update_calls = sum(min(ahead, count - chunk) for chunk in range(count))
        prompts = question_count * (updates + answer) + sum(self.question_tokens) * (count + 1)
        rereads = min(self.settings.reread, count) + 1 if self.settings.reread else 0
        return Estimate(
            chunks=count,
            document_tokens=tokens,
            calls_min=question_count * (2 if self.settings.gate in ("exit", "both") else count + 1),
            calls_max=question_count * (update_calls + 1 + rereads),
            prompt_tokens=prompts * ahead + question_count * rereads * self.budget.window,
            completion_tokens=question_count * (update_calls + 1 + rereads) * self.budget.output,
            window=self.budget.window,
            counter=self.counter.name,
        )
