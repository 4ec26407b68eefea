"""`memagent ask` and `memagent estimate`."""

from __future__ import annotations

import dataclasses
import json

from memagent.cli import options as opt
from memagent.cli.exits import Outcome, reported
from memagent.cli.options import Display, Errors
from memagent.cli.reading import read_and_report
from memagent.cli.session import drive
from memagent.cli.setup import Setup, chosen_display, chosen_questions, chosen_store
from memagent.cli.source import open_source
from memagent.terminal import Paper


def ask(
    doc: opt.Doc,
    question: opt.Question = None,
    questions: opt.Questions = None,
    model: opt.Model = None,
    base_url: opt.BaseUrl = None,
    tokenizer: opt.Tokenizer = None,
    temperature: opt.Temperature = None,
    seed: opt.Seed = 0,
    window: opt.Window = None,
    chunk_tokens: opt.ChunkTokens = None,
    memory_tokens: opt.MemoryTokens = None,
    cuts: opt.CutsOption = None,
    overlap: opt.Overlap = None,
    prompts: opt.Prompts = None,
    gate: opt.GateOption = None,
    trust: opt.TrustOption = None,
    encoding: opt.Encoding = None,
    errors: opt.ErrorsOption = Errors.STRICT,
    store: opt.Store = None,
    durable: opt.Durable = False,
    run_id: opt.RunId = None,
    max_calls: opt.MaxCalls = None,
    display: opt.DisplayOption = None,
) -> None:
    """Read a document once, and answer one or more questions about it.

    Every step is kept, so an interrupted run goes on with [b]memagent resume ID[/].

    API keys come from MEMAGENT_API_KEY or OPENAI_API_KEY.
    """
    shown = chosen_display(display)
    outcome = Outcome(json=shown is Display.JSON, store_flag=store)
    with reported(outcome):
        asked = chosen_questions(question, questions)
        document = open_source(doc, encoding=encoding, errors=errors.value)
        outcome.store = opened = chosen_store(store, durable=durable)
        setup = Setup(
            model=model,
            base_url=base_url,
            tokenizer=tokenizer,
            window=window,
            chunk_tokens=chunk_tokens,
            memory_tokens=memory_tokens,
            cuts=cuts,
            overlap=overlap,
            prompts=prompts,
            gate=gate,
            trust=trust,
            temperature=temperature,
            seed=seed,
            max_calls=max_calls,
        )
        agent = setup.agent(opened)
        stream = agent.stream(document, asked, run_id=run_id)
        read_and_report(agent, stream, document, opened, shown, outcome)


def estimate(
    doc: opt.Doc,
    question: opt.Question = None,
    questions: opt.Questions = None,
    model: opt.Model = None,
    base_url: opt.BaseUrl = None,
    tokenizer: opt.Tokenizer = None,
    temperature: opt.Temperature = None,
    window: opt.Window = None,
    chunk_tokens: opt.ChunkTokens = None,
    memory_tokens: opt.MemoryTokens = None,
    cuts: opt.CutsOption = None,
    overlap: opt.Overlap = None,
    prompts: opt.Prompts = None,
    gate: opt.GateOption = None,
    trust: opt.TrustOption = None,
    encoding: opt.Encoding = None,
    errors: opt.ErrorsOption = Errors.STRICT,
    display: opt.DisplayOption = None,
) -> None:
    """Say what a reading would cost: calls and bounds on tokens. No model is called.

    A server is asked for its window and its tokenizer only. Retries come on top.
    """
    shown = chosen_display(display)
    with reported(Outcome(json=shown is Display.JSON)):
        asked = chosen_questions(question, questions)
        document = open_source(doc, encoding=encoding, errors=errors.value)
        setup = Setup(
            model=model,
            base_url=base_url,
            tokenizer=tokenizer,
            window=window,
            chunk_tokens=chunk_tokens,
            memory_tokens=memory_tokens,
            cuts=cuts,
            overlap=overlap,
            prompts=prompts,
            gate=gate,
            trust=trust,
            temperature=temperature,
        )
        agent = setup.agent(None)

        async def work():
            try:
                return await agent.aestimate(document, asked)
            finally:
                await agent.aclose()

        found = drive(work())
        if shown is Display.JSON:
            print(json.dumps(dataclasses.asdict(found)))
            return
        if shown is Display.NONE:
            print(found.calls_max)
            return
        calls = f"{found.calls_max:,}"
        if found.calls_min != found.calls_max:
            calls = f"{found.calls_min:,} to {calls} (the exit gate may end the reading early)"
        Paper(colour=shown is Display.FULL).table(
            [
                ("calls", calls),
                ("chunks", f"{found.chunks:,}"),
                ("document", f"{found.document_tokens:,} tokens"),
                ("prompt", f"at most {found.prompt_tokens:,} tokens in all calls"),
                ("completion", f"at most {found.completion_tokens:,} tokens in all calls"),
                ("window", f"{found.window:,} tokens"),
                ("counted by", found.counter),
            ]
        )
