"""`MemoryAgent`: settings, and the ways to run the loop (`reading.py`) with them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

from pydantic import ValidationError

from memagent.agents.plan import Plan, Settings
from memagent.agents.reading import Reading
from memagent.agents.result import Estimate, Result
from memagent.chunking import Cuts
from memagent.documents import Source, open_document
from memagent.errors import ConfigError, DocumentError
from memagent.events import Event, RunStarted
from memagent.messages import Sampling
from memagent.models.base import ChatModel
from memagent.models.limit import ConcurrencyLimit, Limits, UsageLimit
from memagent.models.spec import open_model
from memagent.prompts import Gate, PromptSet
from memagent.runner import Journal, check_run_id, new_run_id, run_sync
from memagent.runstore import RunStore
from memagent.tokens import TokenCounter, load_counter
from memagent.trajectory import StopReason, Trajectory


class MemoryAgent:
    """Reads a document of any length through a fixed-size memory, and answers questions about it.

    Args:
        model: a spec (`vllm:NAME`, `sglang:NAME`, `openai:NAME`, `extractive`), any `ChatModel`, or None
            for `MEMAGENT_MODEL`.
        base_url: the server's address; default as `memagent.models.spec.open_model` finds it.
        api_key: the server's key; default from `MEMAGENT_API_KEY` or `OPENAI_API_KEY`.
        tokenizer: what counts tokens instead of the model's own counter: a tokenizer file or folder,
            `tiktoken:NAME`, `bytes`, or a `TokenCounter`.
        prompts: a shipped prompt set (`plain`, `boxed`), a TOML file, or a `PromptSet`.
        window: tokens of prompt plus output; default the smaller of the server's window and 8192.
        chunk_tokens: tokens of a chunk; default as `ContextBudget` divides the window.
        memory_tokens: tokens of the memory, and of one output; default likewise.
        cuts: `sentence` cuts at paragraph and sentence ends, `exact` at the last grapheme that fits.
        overlap: tokens of a chunk that the next one repeats.
        gate: `update` lets the model keep the memory in one token, `exit` lets it stop early, `both`, `off`.
        trust: `neutral` makes look-alikes of prompt fields and control tokens harmless; `exact` leaves field
            tags alone, for checkpoints trained on untouched text.
        sampling: temperature and top_p.
        seed: of the run; each call's seed is derived from it.
        limits: stop (resumably) at so many calls, tokens, seconds, or so much money.
        concurrency: most calls in flight at once (`ask_many`, several runs).
        store: where runs are kept: a file, a `RunStore`, or None for a temporary one (nothing can be resumed
            after the process ends); `"default"` is a file in the user's state folder.

    Raises:
        ConfigError: a setting has a bad value.
        NoModel: no model was named or found.
    """

    def __init__(
        self,
        model: str | ChatModel | None = None,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        tokenizer: str | Path | TokenCounter | None = None,
        prompts: str | Path | PromptSet = "plain",
        window: int | None = None,
        chunk_tokens: int | None = None,
        memory_tokens: int | None = None,
        cuts: Cuts = "sentence",
        overlap: int = 0,
        gate: Gate = "off",
        trust: Literal["neutral", "exact"] = "neutral",
        sampling: Sampling | None = None,
        seed: int = 0,
        limits: Limits | None = None,
        concurrency: int = 16,
        store: RunStore | str | Path | None = "default",
    ) -> None:
        self.prompts = PromptSet.load(prompts)
        try:
            self.settings = Settings(
                window=window,
                chunk_tokens=chunk_tokens,
                memory_tokens=memory_tokens,
                cuts=cuts,
                overlap=overlap,
                gate=gate,
                trust=trust,
                sampling=sampling or Sampling(),
                seed=seed,
            )
        except ValidationError as error:
            first = error.errors()[0]
            raise ConfigError(
                f"{first['loc'][0]}={first.get('input')!r}: {first['msg']}"
            ) from error
        self.model: ChatModel = ConcurrencyLimit(
            open_model(model, base_url=base_url, api_key=api_key), concurrency
        )
        if limits is not None:
            self.model = UsageLimit(self.model, limits)
        self._tokenizer = tokenizer
        self._base_url = base_url
        self._store = store
        self._opened: RunStore | None = None

    # --- asking

    def ask(self, document: Source, question: str, *, run_id: str | None = None) -> Result:
        """Reads the document once and answers.

        Args:
            document: text (`str`), a file (`Path`), bytes, an open file, an iterator, or a `Document`.
            question: what to find out.
            run_id: names the run. An existing run of the same question, document and settings is
                finished, or its result returned.

        Raises:
            MemagentError: see `memagent.errors`; `error.run_id` names the run that can be resumed.
        """
        return run_sync(self.aask(document, question, run_id=run_id))

    async def aask(self, document: Source, question: str, *, run_id: str | None = None) -> Result:
        """`ask`, awaited."""
        return (await self.stream(document, question, run_id=run_id).finish())[0]

    def stream(
        self, document: Source, question: str | Sequence[str], *, run_id: str | None = None
    ) -> RunStream:
        """Runs the reading as an async iterator of events; `.results` when it is through."""
        questions = (question,) if isinstance(question, str) else tuple(question)
        return RunStream(self, questions, document, run_id)

    def ask_many(
        self, document: Source, questions: Sequence[str], *, run_id: str | None = None
    ) -> list[Result]:
        """Answers several questions in one pass over the text, each with a memory of its own."""
        return run_sync(self.aask_many(document, questions, run_id=run_id))

    async def aask_many(
        self, document: Source, questions: Sequence[str], *, run_id: str | None = None
    ) -> list[Result]:
        """`ask_many`, awaited."""
        return await self.stream(document, tuple(questions), run_id=run_id).finish()

    def resume(self, run_id: str, document: Source | None = None) -> Result | list[Result]:
        """Finishes a run of this agent: committed calls are not sent again.

        Args:
            run_id: from `Result.run_id`, `error.run_id` or `memagent runs`.
            document: the source again, where it was no file.

        Returns:
            What the run was asked for: one result, or a list (`ask_many`).

        Raises:
            RunNotFound: the store has no such run.
            RunMismatch: this agent's settings, or the document, differ from the run's.
            DocumentRequired: the source was no file, and `document` is missing.
        """
        return run_sync(self.aresume(run_id, document))

    async def aresume(self, run_id: str, document: Source | None = None) -> Result | list[Result]:
        """`resume`, awaited."""
        stream = await asyncio.to_thread(self.resume_stream, run_id, document)
        results = await stream.finish()
        return results if len(results) > 1 else results[0]

    def resume_stream(self, run_id: str, document: Source | None = None) -> RunStream:
        """`resume` as an async iterator of events: the committed ones first."""
        record = self.store.get(run_id)
        if document is None and record.source["path"] is not None:
            document = open_document(Path(record.source["path"]), **record.source["options"])
        return RunStream(self, tuple(record.binding["questions"]), document, run_id)

    # --- before asking

    def estimate(self, document: Source, question: str | Sequence[str]) -> Estimate:
        """What a reading will cost: reads and cuts the document, and sends nothing to the model.

        Raises:
            DocumentError: also for an iterator, which could not be read again for the run itself.
        """
        return run_sync(self.aestimate(document, question))

    async def aestimate(self, document: Source, question: str | Sequence[str]) -> Estimate:
        """`estimate`, awaited."""
        questions = (question,) if isinstance(question, str) else tuple(question)
        source = await asyncio.to_thread(open_document, document)
        if not source.rereadable:
            raise DocumentError(
                f"{source.name} can be read once, and an estimate would use it up: give a path, text or bytes"
            )
        plan = await self.plan(questions)
        return await plan.estimate(source)

    # --- housekeeping

    @property
    def store(self) -> RunStore:
        """The run store, opened on first use."""
        if not isinstance(self._store, RunStore):
            path = RunStore.default_path() if self._store == "default" else self._store
            self._store = self._opened = RunStore(path)
        return self._store

    async def aclose(self) -> None:
        """Closes the model's connections, and the store if this agent opened it."""
        await self.model.aclose()
        if self._opened is not None:
            await asyncio.to_thread(self._opened.close)

    def close(self) -> None:
        """`aclose` for sync callers."""
        run_sync(self.aclose())

    async def plan(self, questions: tuple[str, ...]) -> Plan:
        """Asks the model for its window and counter, and divides the budget.

        Raises:
            BudgetError: see `ContextBudget.divide`.
            ModelError: the server had to be asked and did not answer.
        """
        if self._tokenizer is None:
            counter = await self.model.counter()
        else:
            counter = await asyncio.to_thread(load_counter, self._tokenizer)
        return await asyncio.to_thread(
            Plan.make,
            questions,
            self.settings,
            self.prompts,
            model=self.model.name,
            counter=counter,
            window=await self.model.window(),
        )

    def recipe(self) -> dict[str, Any]:
        """What `memagent resume` needs to make this agent again; never a secret."""
        tokenizer = self._tokenizer
        return {
            "model": self.model.name,
            "base_url": None if self._base_url is None else _public(self._base_url),
            "tokenizer": str(tokenizer) if isinstance(tokenizer, (str, Path)) else None,
            "prompts": self.prompts.source,
            **self.settings.model_dump(mode="json"),
        }


class RunStream:
    """One run as an async iterator of events; `results` when it is through.

    Leaving a loop early keeps the run open until the stream is closed: use `async with`, or `aclose`.
    """

    def __init__(
        self,
        agent: MemoryAgent,
        questions: tuple[str, ...],
        document: Source | None,
        run_id: str | None,
    ) -> None:
        self.run_id = new_run_id() if run_id is None else check_run_id(run_id)
        self._agent, self._questions, self._document = agent, questions, document
        self._events = self._run()
        self._results: list[Result] | None = None

    def __aiter__(self) -> AsyncGenerator[Event]:
        return self._events

    async def __aenter__(self) -> RunStream:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stops the run where it is; it stays resumable."""
        await self._events.aclose()

    @property
    def results(self) -> list[Result]:
        """One result a question, in their order.

        Raises:
            ConfigError: the events were not consumed to the end.
        """
        if self._results is None:
            raise ConfigError(
                f"run {self.run_id!r} is not through: consume its events to the end first"
            )
        return self._results

    @property
    def result(self) -> Result:
        """The first (with one question, the only) result."""
        return self.results[0]

    async def finish(self) -> list[Result]:
        """Consumes the remaining events."""
        async with self:
            async for _ in self:
                pass
        return self.results

    async def _run(self) -> AsyncGenerator[Event]:
        agent = self._agent
        document = None
        if self._document is not None:
            document = await asyncio.to_thread(open_document, self._document)
        plan = await agent.plan(self._questions)
        store = await asyncio.to_thread(lambda: agent.store)
        source: dict[str, Any] = {"name": "", "path": None}
        if document is not None:
            path = document.path if document.rereadable else None
            source = {"name": document.name, "path": path, "options": document.options}
        opened = Journal.open(
            store, self.run_id, binding=plan.binding(), settings=agent.recipe(), source=source
        )
        async with opened as journal:
            reading = Reading(plan, agent.model, document, journal)
            started = RunStarted(
                run_id=self.run_id,
                model=plan.model,
                document=source["name"],
                questions=plan.questions,
                counter=plan.counter.name,
                window=plan.budget.window,
                chunk_tokens=plan.budget.chunk,
                memory_tokens=plan.budget.memory,
            )
            async with aclosing(reading.events(started)) as events:
                async for event in events:
                    yield event
            self._results = await asyncio.to_thread(results_of, store, self.run_id, reading.stopped)


def results_of(
    store: RunStore, run_id: str, stopped: Mapping[int, tuple[StopReason, str]]
) -> list[Result]:
    """Reads a run's results back from the store. Blocks.

    Args:
        store: where the run is.
        run_id: the run.
        stopped: why questions without an answer have none.
    """
    questions: list[str] = store.get(run_id).binding["questions"]
    results: list[Result] = []
    for state in store.state(run_id, len(questions)):
        reason, detail = StopReason.SETTLED if state.settled else StopReason.ANSWERED, ""
        if state.answer is None:
            reason, detail = stopped[state.question]
        results.append(
            Result(
                question=questions[state.question],
                answer=state.answer,
                memory=state.memory,
                stop_reason=reason,
                usage=store.usage(run_id, state.question),
                chunks=state.next_chunk,
                run_id=run_id,
                trajectory=Trajectory(
                    store.conversations(run_id, state.question), state.answer, reason
                ),
                detail=detail,
            )
        )
    return results


def _public(url: str) -> str:
    """A server's address without user, password and query, where secrets may stand."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
