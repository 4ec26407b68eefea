"""What a task provides: samples, each with a document, a question and reference answers."""

from typing import Protocol

from pydantic import Field

from memagent.messages import Leaf


class Evidence(Leaf):
    """A place in the document with information that the answer needs."""

    start: int = Field(ge=0)
    """First character in `Sample.context`."""
    end: int = Field(ge=0)
    """One past the last character."""
    supports: tuple[int, ...] = ()
    """Indexes of the references in `Sample.outputs` that require this place."""
    notes: tuple[str, ...] = ()
    """Texts of which a memory that noted this place would contain one: the needle's value or a variable's name, as
    written in the document, or a consequence, such as a counter's new value. Empty if none can be named."""


class Sample(Leaf):
    """One document, one question, and the references for its answer."""

    task: str
    index: int = Field(ge=0)
    """Index within its task: the same task, seed and index give the same sample."""
    length: int = Field(gt=0)
    """Requested length, in tokens of the task's length tokenizer."""
    tokens: int = Field(gt=0)
    """Tokens of the one-shot prompt plus the reply, by the same tokenizer; at most `length`."""
    context: str = Field(repr=False)
    """The document, from a few thousand to millions of tokens."""
    question: str
    """The question for an agent, without the document."""
    outputs: tuple[str, ...] = Field(min_length=1)
    """The references: several required values, or several forms of one answer (see the scorer)."""
    generate: int = Field(gt=0)
    """The published protocol's token limit for the reply."""
    before: str = ""
    """The one-shot prompt before the document (instruction, example)."""
    after: str = ""
    """The one-shot prompt after the document (the question)."""
    answer_prefix: str = ""
    """The start of the reply in the one-shot prompt."""
    evidence: tuple[Evidence, ...] = ()
    """In document order; empty if it is spread over the whole document (aggregation). A place occurs several
    times if different references need different notes about it."""
    competing: tuple[int, ...] | None = None
    """First characters of sentences that look like evidence but aren't, ascending: notes about others, needles with
    other keys. None if the task doesn't distinguish them."""

    @property
    def prompt(self) -> str:
        """The one-shot prompt of the published protocol (RULER's `input` and `answer_prefix`)."""
        return self.before + self.context + self.after + self.answer_prefix


class Task(Protocol):
    """A source of samples. Making one blocks (it may generate millions of characters), so loops do it in a thread."""

    @property
    def name(self) -> str:
        """Name of the task, such as `niah_single_1`."""
        ...

    @property
    def scorer(self) -> str:
        """Name of the headline score in `memagent.tasks.SCORERS`."""
        ...

    @property
    def facts(self) -> dict[str, str | int | bool]:
        """Facts about the data for the record: haystack, wording, positions, length tokenizer, repetition."""
        ...

    def sample(self, index: int) -> Sample:
        """Makes the sample at `index`; the same for the same task settings, in any order and process.

        Raises:
            ConfigError: the data has no such sample, or the length is too short.
        """
        ...
