"""Runs for the page to show: of a document, of tools, of hostile texts, and of 4 million tokens."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from memagent import (
    ChatRequest,
    Limits,
    MemoryAgent,
    RunStore,
    ScriptedModel,
    ToolAgent,
    ToolCall,
    tool,
)
from memagent.events import Answered, ChunkRead, MemoryUpdated, RunStarted
from memagent.messages import Usage
from memagent.prompts import PromptSet

TOWNS = ("Kiel", "Lübeck", "Bremen", "Emden", "Husum", "Norden")
FACT = "The clerk of Emden counted 41 ships."
QUESTION = "Who counted 41 ships?"
HOSTILE = (
    "</script><script>document.title = 'owned'</script>",
    "<img src=x onerror=\"document.title = 'owned'\">",
    "{{data}} {{script}} ]]> <!-- -->",
    "turned \u202eaway\u202c, \u2066isolated, zero\u200bwidth, tag \U000e0041",
    "NUL \x00, escape \x1b[31m, lone \udc80 surrogate",
)


def text(lines: int = 400) -> str:
    """A report of some 20 chunks in a window of 2048 tokens, with one line about Emden's clerk."""
    rows = [
        f"In {TOWNS[n % 5]} the clerk counted {n % 37} ships in week {n}." for n in range(lines)
    ]
    rows[lines // 3] = FACT
    return "\n".join(rows)


def note(request: ChatRequest) -> str:
    """A model that notes the week of every other chunk, finds the fact, and loses it later."""
    if request.kind != "update":
        return "The clerk of Emden."
    memory, chunk = request.parts["memory"], request.parts["chunk"]
    kept = [line for line in memory.splitlines() if line.startswith("- ")]
    week = chunk.split("week ")[1].split(".")[0]
    if FACT in chunk:
        kept.append(f"- {FACT}")
    elif int(week) % 2:
        return memory
    kept.append(f"- Up to week {week} nothing else was found.")
    return "\n".join(kept[-4:])


def read_again(store: RunStore) -> str:
    """A run whose memory has a fact only after its chunk was read again."""
    replies = ["one", PromptSet.load("plain").unsettled, "two", "Two."]
    model = ScriptedModel(replies, window=4096)
    agent = MemoryAgent(model, store=store, reread=1, degenerate="take")
    return agent.ask("Who is two? Two.", "Who is two?", run_id="again").run_id


def keep(request: ChatRequest) -> str:
    """A model that notes the fact, and keeps it."""
    if request.kind != "update":
        return "The clerk of Emden."
    if FACT in request.parts["chunk"]:
        return FACT
    return request.parts["memory"] if FACT in request.parts["memory"] else "Nothing yet."


def read(
    store: RunStore,
    run_id: str = "read",
    respond: Callable[[ChatRequest], str] = note,
    chunks: int | None = None,
) -> str:
    """A run that reads a document, finished, or stopped after some chunks; returns its id."""
    limits = None if chunks is None else Limits(calls=chunks)
    agent = MemoryAgent(ScriptedModel(respond, window=2048), limits=limits, store=store)
    agent.ask(text(), QUESTION, run_id=run_id)
    return run_id


def ask_several(store: RunStore) -> str:
    """A run of two questions, each with a word of its own in its memory."""

    def respond(request: ChatRequest) -> str:
        return "a zebra" if "zebra" in request.parts["question"] else "a kiwi"

    agent = MemoryAgent(ScriptedModel(respond, window=2048), seed=7, store=store)
    agent.ask_many(text(60), ["Where is the kiwi?", "Where is the zebra?"], run_id="several")
    return "several"


def hostile(store: RunStore) -> str:
    """A run in which everything that can come from outside is hostile."""
    document = "\n".join(f"{line} Line {n}." for n in range(60) for line in HOSTILE[:4])
    bad = "\n".join(HOSTILE)
    agent = MemoryAgent(
        ScriptedModel(lambda request: f"{request.kind} {bad}", window=4096), store=store
    )
    question = bad.replace("\udc80", "")  # refused in a question
    agent.ask(document, f"Who? {question}", run_id="hostile")
    return "hostile"


@tool(idempotent=True)
def look(town: str) -> str:
    """Looks up a town's harbour."""
    if town == "Norden":
        raise ValueError("Norden has no harbour </script>")
    return f"# {town}\n" + "\n".join(f"week {n}: {n * len(town) % 41} ships" for n in range(70))


def ask_towns(request: ChatRequest) -> str | tuple[ToolCall, ...]:
    """A model that looks up each town, two at first, and answers after the last."""
    if request.kind == "summary":
        shown = "".join(message.content for message in request.messages)
        seen = [town for town in TOWNS if f"# {town}" in shown or f"{town}:" in shown]
        return "<summary>" + "\n".join(f"{t}: at most 40 ships." for t in seen) + "</summary>"
    said = "".join(
        call.arguments for message in request.messages for call in message.tool_calls
    ) + "".join(m.content for m in request.messages if m.role != "tool")
    left = [town for town in TOWNS if town not in said]
    if not left:
        return "No harbour had more than 40 ships in a week."
    wanted = left[:2] if len(left) == len(TOWNS) else left[:1]
    return tuple(
        ToolCall(id=f"look{town[:2]}", name="look", arguments=f'{{"town": "{town}"}}')
        for town in wanted
    )


def work(store: RunStore, run_id: str = "work") -> str:
    """A finished tool session with summaries and a failed call."""
    model = ScriptedModel(ask_towns, window=6000)
    with ToolAgent(model, [look], max_steps=20, store=store) as agent:
        result = agent.run("Which harbour had the most ships in a week?", run_id=run_id)
    assert result.summaries > 0, result
    return run_id


def huge(store: RunStore, chunks: int = 840) -> str:
    """A run of 4 million tokens, 5,000 a chunk, whose memory of 1,000 tokens changes with each one."""
    like = store.get(read(store, "like"))
    run_id, draw = "huge", random.Random(7)
    words = [
        "".join(draw.choices("abcdefghijklmnoprstuvwz", k=draw.randint(2, 10))) for _ in range(9000)
    ]

    def sentences(number: int) -> Iterator[str]:
        for _ in range(number):
            yield " ".join(draw.choices(words, k=draw.randint(6, 18))).capitalize() + "."

    store.create(run_id, like.binding, like.settings, like.source)
    started = RunStarted(
        run_id=run_id, model="scripted", document="huge", questions=(QUESTION,), counter="bytes",
        window=8192, chunk_tokens=5000, memory_tokens=1024,
    )  # fmt: skip
    store.log(run_id, [started])
    memory = list(sentences(60))
    usage, at = Usage(calls=1, prompt_tokens=6200, completion_tokens=1000), 0
    for n in range(chunks):
        chunk = " ".join(sentences(270))
        span = ChunkRead(
            chunk=n,
            start=at,
            end=at + len(chunk),
            tokens=5000,
            last=n == chunks - 1,
            place=f"p. {n}",
        )
        at += len(chunk)
        store.commit(run_id, f"chunk-{n}", {"mark": "", "text": chunk}, events=[span])
        for _ in range(8):
            del memory[draw.randrange(len(memory))]
            memory.insert(draw.randrange(len(memory)), next(sentences(1)))
        said = " ".join(memory)
        event = MemoryUpdated(chunk=n, memory=said, tokens=1000, usage=usage)
        store.commit(run_id, f"update-{n}/q0", {}, usage, [event])
    answered = Answered(answer="Nobody.", form_found=True, truncated=False, usage=usage)
    store.commit(run_id, "answer/q0", {}, usage, [answered])
    store.set_status(run_id, at_work=False)
    return run_id
