"""What a task hands out: samples, each a document, a question and the references of its answer."""

from __future__ import annotations

from typing import Protocol

from pydantic import Field

from memagent.messages import Leaf


class Evidence(Leaf):
    """Where a document says what an answer needs."""

    start: int = Field(ge=0)
    """First character in `Sample.context`."""
    end: int = Field(ge=0)
    """One past the last character."""
    supports: tuple[int, ...] = ()
    """Indexes of the references in `Sample.outputs` that cannot be known without this place."""
    notes: tuple[str, ...] = ()
    """Texts of which a memory that noted this place would hold one: the needle's value or a variable's name, as it
    stands in the document, or what follows from it, such as a counter's new value. Empty where none can be named."""


class Sample(Leaf):
    """One document, one question, and what a right answer holds."""

    task: str
    index: int = Field(ge=0)
    """Place in its task: the same task, seed and index give the same sample."""
    length: int = Field(gt=0)
    """Tokens asked for, named by the task's length tokenizer."""
    tokens: int = Field(gt=0)
    """Tokens that the one-shot prompt and the reply take, by the same tokenizer; at most `length`."""
    context: str = Field(repr=False)
    """The document, from a few thousand to millions of tokens."""
    question: str
    """What an agent is asked, apart from the document."""
    outputs: tuple[str, ...] = Field(min_length=1)
    """The references: several values of which all are wanted, or several forms of one answer (see the scorer)."""
    generate: int = Field(gt=0)
    """Tokens that the published protocol lets the reply have."""
    before: str = ""
    """Of the one-shot prompt: what stands before the document (instruction, example)."""
    after: str = ""
    """Of the one-shot prompt: what stands after it (the question)."""
    answer_prefix: str = ""
    """Of the one-shot prompt: how the reply begins."""
    evidence: tuple[Evidence, ...] = ()
    """In the order of the document; empty where it is spread over all of it (aggregation). A place comes several
    times where different references take different notes of it."""
    competing: tuple[int, ...] | None = None
    """First characters of sentences that look like evidence and are none, ascending: notes about others, needles of
    other keys. None where the task does not tell them apart."""

    @property
    def prompt(self) -> str:
        """The one-shot prompt of the published protocol (RULER's `input` and `answer_prefix`)."""
        return self.before + self.context + self.after + self.answer_prefix


class Task(Protocol):
    """A source of samples. Making one blocks (it may write millions of characters): loops do it in a thread."""

    @property
    def name(self) -> str:
        """Such as `niah_single_1`."""
        ...

    @property
    def scorer(self) -> str:
        """Name of the headline score in `memagent.tasks.SCORERS`."""
        ...

    @property
    def facts(self) -> dict[str, str | int | bool]:
        """What a record has to say of the data: haystack, wording, positions, length tokenizer, repetition."""
        ...

    def sample(self, index: int) -> Sample:
        """The sample at `index`; the same for the same task settings, in any order and process.

        Raises:
            ConfigError: the data at hand holds no such sample, or the length is too short for one.
        """
        ...
