"""`MemoryAgent`: settings, and the ways to run the loop (`loop.py`) with them."""

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, cast

from memagent.chunking import Cuts
from memagent.documents import Document, Source, open_document
from memagent.errors import ConfigError, DocumentError, EmptyDocument, RunUnfinished
from memagent.memory.ahead import Pace
from memagent.memory.branch import BranchLoop, check_origin
from memagent.memory.corpus import Mapped, read_all
from memagent.memory.jobs import Jobs, one_or_all
from memagent.memory.loop import MemoryLoop, RunStream
from memagent.memory.plan import MemoryPlan, MemorySettings
from memagent.memory.state import is_read, restore
from memagent.messages import Sampling
from memagent.models.base import ChatModel
from memagent.models.limit import Limits
from memagent.models.policy import Degenerate, policy_of
from memagent.prompts import Gate, PromptSet
from memagent.run.agent import OnEvent, anext_or_none
from memagent.run.result import Estimate, Result
from memagent.runstore import RunRecord, RunStore
from memagent.threads import in_thread, run_sync


class MemoryAgent(Jobs):
    """Reads a document of any length through a fixed-size memory, and answers questions about it.

    For a model that comes with settings (`memagent.models.policy`), those replace the defaults below.

    Args:
        model: a spec (`vllm:NAME`, `sglang:NAME`, `openai:NAME`, `transformers:FOLDER`, `smol`, `nano`, `extractive`),
            any `ChatModel`, or None for `MEMAGENT_MODEL`. For URLs, keys, timeouts and tokenizers use `open_model`.
        prompts: a shipped set (`plain`, `boxed`, `shared`, `small`, `summary`), a TOML file, or a `PromptSet`; default
            `plain`.
        window: tokens of prompt plus output; default the smaller of the server's window and 8192.
        chunk_tokens: tokens of a chunk; default as `ContextBudget` divides the window.
        memory_tokens: tokens of the memory, and of one output; default likewise.
        cuts: `sentence` (the default) cuts at paragraph and sentence ends, `exact` at the last grapheme that fits.
        gate: `update` lets the model keep the memory unchanged for a few tokens, `exit` lets it stop early, `both`,
            `off` (the default).
        trust: `neutral` (the default) neutralises look-alikes of prompt fields and control tokens; `exact` leaves
            field tags alone, for checkpoints trained on untouched text.
        degenerate: what to do with a new memory that repeats itself, or drops nearly all words of the old one for no
            reason in the chunk. `retry` (the default) asks again, up to twice, then accepts it; `keep` asks again, then
            keeps the old memory; `take` accepts it at once. Repetitive answers are retried too, except with `take`.
        read_ahead: chunks sent at once, each with the current memory (default 1). Replies that keep the memory are
            taken in order, up to the first that changes it; later ones are thrown away and their chunks sent again.
            The memory and the answer are those of reading in order, sooner and for more calls. `auto` follows how
            often the memory changes and how many calls the server answers at once. Needs a temperature of 0, and
            pays with the `update` gate.
        reread: for a question that the memory doesn't settle, recall what it lost and read up to this many chunks
            again, those that share most words with the question (default 0: off). Costs one more answer call.
        sampling: temperature and top_p.
        seed: seed of the run; each call's seed is derived from it.
        limits: stop a run (resumably) at a number of calls, tokens or seconds, or at a cost; a resumed run's
            earlier spending counts, except for seconds.
        concurrency: maximum calls in flight (`ask_many`, several runs).
        store: where runs are kept: a file, a `RunStore`, or None for a temporary one (its runs can't be resumed
            after the process ends); `"default"` is a file in the user's state folder.

    Raises:
        ConfigError: a setting has a bad value.
        NoModel: no model was named or found.
    """

    def __init__(
        self,
        model: str | ChatModel | None = None,
        *,
        prompts: str | Path | PromptSet | None = None,
        window: int | None = None,
        chunk_tokens: int | None = None,
        memory_tokens: int | None = None,
        cuts: Cuts | None = None,
        gate: Gate | None = None,
        trust: Literal["neutral", "exact"] | None = None,
        degenerate: Degenerate | None = None,
        read_ahead: int | Literal["auto"] | None = None,
        reread: int | None = None,
        sampling: Sampling | None = None,
        seed: int = 0,
        limits: Limits | None = None,
        concurrency: int = 16,
        store: RunStore | str | Path | None = "default",
    ) -> None:
        super().__init__(model, concurrency=concurrency, limits=limits, store=store)
        policy = policy_of(self.model)
        self.prompts = PromptSet.load((policy.prompts or "plain") if prompts is None else prompts)
        self._has_given_prompts = prompts is not None
        self.settings = MemorySettings.choose(
            policy.reading(window),
            window=window,
            chunk_tokens=chunk_tokens,
            memory_tokens=memory_tokens,
            cuts=cuts,
            gate=gate,
            trust=trust,
            degenerate=degenerate,
            read_ahead=read_ahead,
            reread=reread,
            sampling=sampling,
            seed=seed,
        )

    # --- asking

    def ask(
        self,
        document: Source,
        question: str,
        *,
        run_id: str | None = None,
        on_event: OnEvent | None = None,
    ) -> Result:
        """Reads the document once and answers.

        Args:
            document: text (`str`), a file (`Path`), bytes, an open file, an iterator, or a `Document`.
            question: what to find out.
            run_id: name of the run. An existing run of the same question, document and settings is
                resumed, or its result returned.
            on_event: called with each event, in this thread.

        Raises:
            MemagentError: see `memagent.errors`; `error.run_id` names the run that can be resumed.
        """
        stream = self.stream(document, _single(question), run_id=run_id)
        return self._finish(stream, on_event)[0]

    async def aask(self, document: Source, question: str, *, run_id: str | None = None) -> Result:
        """Async version of `ask`."""
        return (await self.stream(document, _single(question), run_id=run_id).finish())[0]

    def stream(
        self, document: Source, question: str | Sequence[str], *, run_id: str | None = None
    ) -> RunStream:
        """Runs the reading as an async iterator of events; `.results` is available at the end."""
        questions = (question,) if isinstance(question, str) else tuple(question)
        if cast("object", document) is None:
            open_document(document)  # raises: None is only for stored runs
        return RunStream(MemoryLoop(self, questions, document), run_id)

    def ask_many(
        self,
        document: Source,
        questions: Sequence[str],
        *,
        run_id: str | None = None,
        on_event: OnEvent | None = None,
    ) -> list[Result]:
        """Answers several questions in one pass over the text, each with a separate memory."""
        stream = self.stream(document, _several(questions), run_id=run_id)
        return self._finish(stream, on_event)

    async def aask_many(
        self, document: Source, questions: Sequence[str], *, run_id: str | None = None
    ) -> list[Result]:
        """Async version of `ask_many`."""
        return await self.stream(document, _several(questions), run_id=run_id).finish()

    def map(
        self,
        documents: Iterable[Source],
        question: str,
        *,
        concurrency: int = 8,
        run_id: str = "map",
    ) -> Iterator[Mapped]:
        """Asks one question about each of many documents, several at once; yields each result as it arrives.

        A document that cannot be read, or whose model call fails, yields an error and the others continue. Each
        document has its own run, named after its path and content, the question and the settings: a second call
        resumes runs that were interrupted, and sends nothing for those that are finished.

        Args:
            documents: each as in `ask`; consumed on demand.
            question: what to find out about each.
            concurrency: documents read at once; the agent's `concurrency` limits their calls in total.
            run_id: prefix of the run ids.

        Raises:
            ConfigError: a setting is wrong.
            MemagentError: an error that would affect every document: no such model, no access, a full store.
        """
        results = self.amap(documents, question, concurrency=concurrency, run_id=run_id)
        try:
            while (result := run_sync(anext_or_none(results))) is not None:
                yield result
        finally:
            run_sync(results.aclose(), release=True)

    def amap(
        self,
        documents: Iterable[Source],
        question: str,
        *,
        concurrency: int = 8,
        run_id: str = "map",
    ) -> AsyncGenerator[Mapped]:
        """`map` as an async iterator. Close it (`aclosing`) to stop early."""
        return read_all(self, documents, _single(question), concurrency, run_id)

    def resume(
        self, run_id: str, document: Source | None = None, *, on_event: OnEvent | None = None
    ) -> Result | list[Result]:
        """Resumes a run of this agent; committed calls are not sent again.

        Args:
            run_id: from `Result.run_id`, `error.run_id` or `memagent runs`.
            document: the source, unless it was a file.
            on_event: called with each event, in this thread.

        Returns:
            One result, or a list if the run was started by `ask_many`.

        Raises:
            RunNotFound: the store has no such run.
            RunMismatch: this agent's settings, or the document, differ from the run's.
            DocumentRequired: the source was not a file, and `document` is missing.
        """
        return one_or_all(self._finish(self.resume_stream(run_id, document), on_event))

    async def aresume(self, run_id: str, document: Source | None = None) -> Result | list[Result]:
        """Async version of `resume`."""
        stream = await in_thread(self.resume_stream, run_id, document)
        return one_or_all(await stream.finish())

    def resume_stream(self, run_id: str, document: Source | None = None) -> RunStream:
        """`resume` as an async iterator of events: the committed ones first."""
        record = self.store.get(run_id)
        if document is None and record.source["path"] and not is_read(self.store, record):
            document = open_document(Path(record.source["path"]), **record.source["options"])
        agent, questions = self._worded_as(record), tuple(record.binding["questions"])
        if (branch := record.binding.get("branch")) is not None:
            return RunStream(BranchLoop(agent, questions, document, branch), run_id)
        return RunStream(MemoryLoop(agent, questions, document), run_id)

    def memories(self, run_id: str) -> Document:
        """Returns a finished run's memories as a document, to ask new questions without reading the original again.

        They were written for the run's questions, so facts that only a new question needs may be missing.

        Raises:
            RunNotFound: the store has no such run.
            RunMismatch: it is a tool session or an extraction.
            RunUnfinished: it has no answer yet.
            EmptyDocument: nothing was noted.
        """
        record = self.store.get(run_id)
        check_origin(record)
        if not self.store.is_answered(run_id):
            raise RunUnfinished(
                f"run {run_id!r} isn't finished, and its memories may lack the end: resume it first"
            )
        questions = record.binding["questions"]
        states = filter(attrgetter("memory"), restore(self.store, run_id, len(questions)))
        notes = [f"Notes on: {questions[state.question]}\n{state.memory}" for state in states]
        if not notes:
            raise EmptyDocument(f"run {run_id!r} noted nothing: ask about its document instead")
        return open_document("\n\n".join(notes), name=f"memories of run {run_id}")

    # --- before asking

    def estimate(self, document: Source, question: str | Sequence[str]) -> Estimate:
        """Estimates what a reading will cost: reads and cuts the document, but sends nothing to the model.

        Raises:
            DocumentError: also for an iterator, which could not be read again for the run.
        """
        return run_sync(self.aestimate(document, question))

    async def aestimate(self, document: Source, question: str | Sequence[str]) -> Estimate:
        """Async version of `estimate`."""
        questions = (question,) if isinstance(question, str) else tuple(question)
        source = await in_thread(open_document, document)
        if not source.rereadable:
            raise DocumentError(
                f"{source.name} can be read only once, and an estimate would use it up: give a path, text or bytes"
            )
        plan = await self.plan(questions)
        pace = Pace(self.settings.read_ahead, self.concurrency)
        return await plan.estimate(source, pace.most(len(questions)))

    async def plan(self, questions: tuple[str, ...], known: RunRecord | None = None) -> MemoryPlan:
        """Asks the model for its window and counter, and divides the budget.

        Args:
            questions: the questions to ask.
            known: the run to resume, whose window and frame are reused.

        Raises:
            BudgetError: see `ContextBudget.divide`.
            ModelError: the server did not answer.
        """
        budget: dict[str, int] = {} if known is None else known.binding["budget"]
        arguments = (MemoryPlan.make, questions, self.settings, self.prompts, budget.get("frame"))
        return await self._resolve(*arguments, window="window", resumed=budget.get("window"))

    def recipe(self) -> dict[str, Any]:
        """See `Agent.recipe`."""
        settings = self.settings.model_dump(mode="json")
        return {**self.model.recipe, "prompts": self.prompts.source, **settings}

    def __repr__(self) -> str:
        return f"MemoryAgent({self.model.name!r}, prompts={self.prompts.name!r})"


def _single(question: str) -> str:
    if not isinstance(cast("object", question), str):
        raise ConfigError(
            f"question={question!r:.80} is not a string: give one question, or use ask_many for several"
        )
    return question


def _several(questions: Sequence[str]) -> tuple[str, ...]:
    if isinstance(questions, str):
        raise ConfigError(f"questions={questions!r} is one string: give a list, or use ask")
    return tuple(questions)
