"""What a memory agent does besides answering: summaries, rows, and branches of a run."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeVar, cast

from pydantic import BaseModel

from memagent.documents import Source
from memagent.errors import ConfigError
from memagent.memory.branch import BranchLoop
from memagent.memory.loop import RunStream
from memagent.memory.plan import MemorySettings
from memagent.prompts import PromptSet
from memagent.prompts.rows import RowForm, RowPrompts
from memagent.run.agent import Agent, OnEvent
from memagent.run.plan import check_text
from memagent.run.result import Result
from memagent.texts import quote
from memagent.threads import in_thread

if TYPE_CHECKING:
    from memagent.memory.agent import MemoryAgent
    from memagent.memory.extraction import Extraction
    from memagent.runstore import RunRecord

M = TypeVar("M", bound=BaseModel)
Style = Literal["summary", "minutes"]
STYLES: dict[Style, str] = {
    "summary": "Summarise the document: what it is about, what it says or what happens in it, and how it ends.",
    "minutes": (
        "Write the minutes: who took part, then topic by topic what was said in a sentence or two, what was decided, "
        "and who does what by when."
    ),
}
"""The question of each style."""


class Jobs(Agent[MemorySettings]):
    """Summaries, rows and branches, made with the reading loop."""

    _has_given_prompts: bool

    def summarize(
        self,
        document: Source,
        style: Style = "summary",
        *,
        run_id: str | None = None,
        on_event: OnEvent | None = None,
    ) -> Result:
        """Summarises a document, or writes its minutes: `ask` with another prompt set, `summary`."""
        return self._finish(self.summarize_stream(document, style, run_id=run_id), on_event)[0]

    async def asummarize(
        self, document: Source, style: Style = "summary", *, run_id: str | None = None
    ) -> Result:
        """Async version of `summarize`."""
        stream = await in_thread(self.summarize_stream, document, style, run_id=run_id)
        return (await stream.finish())[0]

    def summarize_stream(
        self, document: Source, style: Style = "summary", *, run_id: str | None = None
    ) -> RunStream:
        """`summarize` as an async iterator of events; `.result` is available at the end."""
        if style not in STYLES:
            raise ConfigError(f"style must be one of {', '.join(STYLES)}, got {quote(style)}")
        agent = self._reword(PromptSet.load("summary"))
        return agent.stream(document, STYLES[style], run_id=run_id)

    def extract(
        self,
        document: Source,
        schema: type[M],
        what: str,
        *,
        run_id: str | None = None,
        on_event: OnEvent | None = None,
    ) -> Extraction[M]:
        """Finds all rows of a type in a document: "how many" and "list all" without a memory that forgets.

        The model writes the new rows of each chunk; they are validated, and stored once each with their places. Needs
        at least one call per chunk, and no answer call.

        Args:
            document: as in `ask`.
            schema: a pydantic model, with descriptions that say what its fields mean.
            what: what a row is: "every invoice".
            run_id: as in `ask`. To resume an extraction, make the same call again.
            on_event: as in `ask`.

        Returns:
            The rows, what stayed invalid, and the usual facts about a run.

        Raises:
            ConfigError: `schema` isn't a pydantic model, or `what` isn't a text.
            BudgetError: the window has no room for the schema.
        """
        stream = self.extract_stream(document, schema, what, run_id=run_id)
        return cast("Extraction[M]", self._finish(stream, on_event)[0])

    async def aextract(
        self, document: Source, schema: type[M], what: str, *, run_id: str | None = None
    ) -> Extraction[M]:
        """Async version of `extract`."""
        stream = await in_thread(self.extract_stream, document, schema, what, run_id=run_id)
        return cast("Extraction[M]", (await stream.finish())[0])

    def extract_stream(
        self, document: Source, schema: type[BaseModel], what: str, *, run_id: str | None = None
    ) -> RunStream:
        """`extract` as an async iterator of events; `.result` is the `Extraction`."""
        from memagent.memory.extract import RowLoop  # its classes take a while to make

        form, prompts = RowForm(schema), RowPrompts.load()
        check_text("what to extract", what)
        return RunStream(RowLoop(self._reword(prompts), prompts, form, what, document), run_id)

    def branch(
        self,
        run_id: str,
        before: int,
        question: str | Sequence[str] | None = None,
        *,
        document: Source | None = None,
        new_id: str | None = None,
        on_event: OnEvent | None = None,
    ) -> Result | list[Result]:
        """Reads on from an earlier point of a run, as a new run: with another model, settings or wording.

        The new run begins with a copy of what the old one did before a chunk, which costs it nothing, and reads that
        chunk and all after it. The old run is unchanged.

        Args:
            run_id: the old run, finished or not.
            before: the first chunk to read, from 1 to the number of chunks that the old run read.
            question: new wording, in place of the old run's question; a list if that had several.
            document: the source, unless it was a file.
            new_id: name of the new run. If there is such a branch already, it is resumed, or its result returned.
            on_event: called with each event, those of the copied chunks first.

        Returns:
            One result, or a list if the old run was started by `ask_many`.

        Raises:
            RunNotFound: the store has no such run.
            RunMismatch: it doesn't answer questions, has another number of them, or the document has changed.
            ConfigError: it has not read that far.
            BudgetError: its memory exceeds this agent's.
            DocumentRequired: the source was not a file, and `document` is missing.
        """
        stream = self.branch_stream(run_id, before, question, document=document, new_id=new_id)
        return one_or_all(self._finish(stream, on_event))

    async def abranch(
        self,
        run_id: str,
        before: int,
        question: str | Sequence[str] | None = None,
        *,
        document: Source | None = None,
        new_id: str | None = None,
    ) -> Result | list[Result]:
        """Async version of `branch`."""
        arguments = (run_id, before, question)
        stream = await in_thread(self.branch_stream, *arguments, document=document, new_id=new_id)
        return one_or_all(await stream.finish())

    def branch_stream(
        self,
        run_id: str,
        before: int,
        question: str | Sequence[str] | None = None,
        *,
        document: Source | None = None,
        new_id: str | None = None,
    ) -> RunStream:
        """`branch` as an async iterator of events."""
        new_questions: Sequence[str] = (question,) if isinstance(question, str) else question or ()
        record, branch = self.store.get(run_id, new_id), {"run": run_id, "before": before}
        questions = tuple(new_questions or record.binding["questions"])
        agent = cast("MemoryAgent", self) if self._has_given_prompts else self._worded_as(record)
        return RunStream(BranchLoop(agent, questions, document, branch), new_id)

    def _worded_as(self, record: RunRecord) -> MemoryAgent:
        """Returns this agent, or for a summary that other prompts wrote a copy with those of summaries."""
        agent, prompts = cast("MemoryAgent", self), record.binding["prompts"]
        is_worded = prompts == f"{agent.prompts.name}:{agent.prompts.hash}"
        is_summary = prompts.startswith("summary:") and not is_worded
        return self._reword(PromptSet.load("summary")) if is_summary else agent

    def _reword(self, prompts: PromptSet) -> MemoryAgent:
        """Copies the agent with other wording, without rereading: its replies don't say if a question is settled."""
        agent = cast("MemoryAgent", self)
        assert agent.store is not None, "opened now, so that the copy shares it"
        clone = copy.copy(agent)
        clone.prompts, clone.settings = prompts, agent.settings.model_copy(update={"reread": 0})
        return clone


def one_or_all(results: list[Result]) -> Result | list[Result]:
    """Returns the result of a run with one question, or the list of results of one with several."""
    return results if len(results) > 1 else results[0]
