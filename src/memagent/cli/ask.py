"""`memagent ask`, `memagent estimate` and `memagent resume`."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

import typer

from memagent.cli import options as opt
from memagent.cli.exits import Outcome, report_errors
from memagent.cli.options import Display
from memagent.cli.progress import Tally
from memagent.cli.runs import is_session
from memagent.cli.session import drive
from memagent.cli.setup import (
    Ask,
    RunLimits,
    ServerOptions,
    agent_again,
    chosen_store,
    existing_store,
    expected_chars,
    open_again,
    open_source,
)
from memagent.cli.show import report
from memagent.cli.watch import watch
from memagent.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from memagent.documents import Document
    from memagent.memory.agent import MemoryAgent, RunStream
    from memagent.memory.extraction import Extraction
    from memagent.runstore import RunStore

NOT_ESTIMATED = ("seed", "store", "durable", "run_id", *RunLimits.__annotations__)
"""Options of `ask` that don't affect the calls."""


def ask(given: Ask) -> None:
    """Read a document once and answer one or more questions about it.

    Every step is saved, so an interrupted run can be resumed with [b]memagent resume ID[/].

    API keys come from MEMAGENT_API_KEY or OPENAI_API_KEY.
    """
    with report_errors(given.outcome()) as outcome:
        questions = given.list_questions()
        document = open_source(given.doc, encoding=given.encoding, errors=given.errors)
        outcome.store = store = chosen_store(given.store, durable=given.durable)
        agent = given.agent(store)
        stream = agent.stream(document, questions, run_id=given.run_id)
        run(agent, stream, document, store, outcome)


def run(
    agent: MemoryAgent,
    stream: RunStream,
    document: Document | None,
    store: RunStore,
    outcome: Outcome,
    *,
    changes_only: bool = False,
) -> None:
    """Runs `stream` to its end and shows the result. Exits with code 6 if an answer is missing."""
    inode = _inode(store)
    if outcome.store is not None:
        outcome.run_id = stream.run_id
    chars = None if document is None else expected_chars(document)
    tally = Tally(chars=chars, replayed=store.last_seq(stream.run_id))
    watch(agent, stream, tally, outcome.display, changes_only=changes_only)
    record = store.get(stream.run_id)
    if record.binding["agent"] == "extract":
        outcome.rows = cast("Extraction[Any]", stream.result)
        if outcome.out is not None:
            outcome.rows.write(outcome.out)
    code = report(store, record, tally, outcome, tally.elapsed)
    if _inode(store) != inode:
        raise StoreError(
            f"the run store {str(store.path)!r} was deleted or replaced during the run: run {stream.run_id!r} is lost"
        )
    if code:
        raise typer.Exit(code)


def _inode(store: RunStore) -> int | None:
    try:
        return None if store.path is None else store.path.stat().st_ino
    except FileNotFoundError:
        return None


def estimate(given: Ask) -> None:
    """Estimate the cost of a reading: the number of calls, and bounds on tokens. No model is called.

    A server is only asked for its window and tokenizer. Retries cost extra.
    """
    with report_errors(given.outcome()) as outcome:
        questions = given.list_questions()
        document = open_source(given.doc, encoding=given.encoding, errors=given.errors)
        with closing(given.agent(None)) as agent:
            cost = drive(agent.aestimate(document, questions))
        if outcome.display is Display.JSON:
            outcome.tell(asdict(cost))
            return
        if outcome.display is Display.NONE:
            print(cost.calls_max)
            return
        calls = f"{cost.calls_max:,}"
        if cost.calls_min != cost.calls_max:
            reason = "calls sent ahead may be in vain"
            if agent.settings.gate in ("exit", "both"):
                reason = "the exit gate may end the reading early"
            reason = "chunks may be read again" if agent.settings.reread else reason
            calls = f"{cost.calls_min:,} to {calls} ({reason})"
        outcome.paper.table(
            [
                ("calls", calls),
                ("chunks", f"{cost.chunks:,}"),
                ("document", f"{cost.document_tokens:,} tokens"),
                ("prompt", f"at most {cost.prompt_tokens:,} tokens in all calls"),
                ("completion", f"at most {cost.completion_tokens:,} tokens in all calls"),
                ("window", f"{cost.window:,} tokens"),
                ("counted by", cost.counter),
            ]
        )


@dataclass(frozen=True, kw_only=True)
class Resume(ServerOptions, RunLimits):
    """The options of `resume`."""

    run_id: opt.RunArgument
    document: opt.DocumentAgain = None
    store: opt.Store = None
    durable: opt.Durable = False


def resume(given: Resume) -> None:
    """Resume an interrupted or stopped run; on a finished one, print the stored answer.

    Finished calls are not sent again. A tool session can only be resumed by the program that has its tools.
    """
    with report_errors(given.outcome(run_id=given.run_id)) as outcome:
        outcome.store = store = existing_store(given.store, durable=given.durable)
        record = store.get(given.run_id)
        if record.status == "finished":
            report(store, record, Tally.of(store, record), outcome)
            return
        if is_session(record):
            argument = "" if given.store is None else f", store={str(given.store)!r}"
            raise ConfigError(
                f"run {record.id!r} is a tool session, and only the program that started it has its tools: resume it "
                f"from Python, with ToolAgent(model, tools{argument}).resume({record.id!r}) and the same settings"
            )
        if record.binding["agent"] == "extract":
            raise ConfigError(
                f"run {record.id!r} is an extraction: repeat `memagent extract` with --run-id {record.id}, or "
                f"agent.extract(..., run_id={record.id!r}), to resume it"
            )
        agent = agent_again(record, store, limits=given.limits(), **given.server())
        from memagent.memory.state import is_read

        needs_document = given.document or not is_read(store, record)
        document = open_again(record, given.document) if needs_document else None
        run(agent, agent.resume_stream(record.id, document), document, store, outcome)
