"""Memories that say nothing: found, asked for again, reported; and the others left alone."""

from collections.abc import Iterator

import pytest

from memagent import ChatRequest, MemoryAgent, RunStore, Sampling, ScriptedModel
from memagent.events import MemoryDegenerate, Retried
from memagent.memory.degenerate import has_collapsed, repetition

NOTES = """Suspects so far:
- Anna, seen at the harbour on Monday with a lamp
- Boris, who owes the innkeeper 300 roubles
- Clara, whose glove was found near the well
The body was found at dawn by the miller."""
LOOP = "The special number is not given.\n" * 12


@pytest.mark.parametrize(
    ("text", "piece"),
    [
        (LOOP, "The special number is not given."),
        (LOOP[:-9], "special number"),  # cut off in the middle by the token limit
        ("Notes: " + "the prince and " * 10, "the prince and"),
        ("7" * 90, "7"),
        ("A.\nIt is so.\nIt is so.\nIt is so.\nB.\nIt is so.\nIt is so.", "It is so."),
    ],
)
def test_a_piece_over_and_over_is_found(text: str, piece: str) -> None:
    assert piece in (repetition(text) or "")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "none",
        NOTES,
        "Heading\n" + "-" * 200,
        "He said no, no, no, no.",
        "| 1 | a |\n| 2 | a |\n| 3 | a |\n| 4 | a |",
        "\n".join(f"Alice: {n} coins" for n in range(40)),
    ],
)
def test_ordinary_memories_are_left_alone(text: str) -> None:
    assert repetition(text) is None


def test_a_memory_collapses_where_the_chunk_is_no_reason() -> None:
    chunk = "The rain fell on the fields, and nobody spoke at supper."
    assert has_collapsed(NOTES, "No relevant information.", chunk)
    assert has_collapsed(NOTES, "ok", chunk)
    assert not has_collapsed(NOTES, NOTES + "\nIt rained.", chunk)
    assert not has_collapsed(
        NOTES, "The murderer is Boris.", "At last Boris confessed: he was the murderer."
    )
    assert not has_collapsed("none", "nothing", chunk)
    assert not has_collapsed("", NOTES, chunk)


@pytest.mark.parametrize(
    ("old", "chunk", "new", "nothing"),
    [
        (
            "嫌疑人有张三。李四也在现场。王五有动机。赵六没有不在场证明。孙七欠死者钱。周八和死者吵过架。吴九拿着刀。",
            "审判结束时，法官宣布李四就是凶手，其他人都是无辜的。没有人感到意外，也没有人再提起那把刀。",
            "凶手是李四。",
            "没有相关信息。",
        ),
        (
            "容疑者は田中と鈴木。佐藤には動機があった。高橋は現場にいた。伊藤は被害者に借金があった。渡辺は包丁を持っていた。",
            "裁判の最後に、犯人は鈴木だと裁判官が告げた。ほかの人はみな無罪だった。誰も驚かなかった。",
            "犯人は鈴木。",
            "関連情報なし。",
        ),
    ],
)
def test_signs_without_blanks_are_looked_at_as_words(
    old: str, chunk: str, new: str, nothing: str
) -> None:
    assert not has_collapsed(old, new, chunk)
    assert has_collapsed(old, nothing, chunk)


@pytest.fixture
def store() -> Iterator[RunStore]:
    store = RunStore(None)
    yield store
    store.close()


TEXT = "".join(f"Sentence {n} about the harbour and the well. " for n in range(60))


def reader(replies: dict[int, list[str]], store: RunStore, **settings: object) -> MemoryAgent:
    """The replies to the update of each chunk, attempt by attempt; the last is repeated."""
    seen = dict[int, int]()

    def reply(request: ChatRequest) -> str:
        if request.kind == "answer":
            return "Boris."
        chunk = len({r.parts["chunk"] for r in model.requests if r.kind == "update"}) - 1
        attempt = seen[chunk] = seen.get(chunk, -1) + 1
        said = replies.get(chunk, [NOTES])
        return said[min(attempt, len(said) - 1)]

    model = ScriptedModel(reply, window=4096)
    agent = MemoryAgent(model, chunk_tokens=900, store=store, **settings)  # type: ignore[arg-type]
    agent.requests = model.requests  # type: ignore[attr-defined]
    return agent


def test_a_degenerate_memory_is_asked_for_again(store: RunStore) -> None:
    agent = reader({1: [LOOP, NOTES]}, store)
    result = agent.ask(TEXT, "Who?", run_id="r")
    assert result.memory == NOTES
    events = list(store.events("r"))
    (again,) = [event for event in events if isinstance(event, Retried)]
    assert (again.chunk, "over and over" in again.reason) == (1, True)
    assert not any(isinstance(event, MemoryDegenerate) for event in events)
    assert result.usage.retries == 1


@pytest.mark.parametrize("said", [[LOOP], [LOOP, LOOP, ""], [LOOP, "", ""]])
@pytest.mark.parametrize(("choice", "kept"), [("retry", False), ("keep", True)])
def test_what_stays_degenerate_is_taken_or_left(
    store: RunStore, choice: str, kept: bool, said: list[str]
) -> None:
    last = len(TEXT) // 900
    agent = reader(dict.fromkeys(range(1, last + 2), said), store, degenerate=choice)
    result = agent.ask(TEXT, "Who?", run_id="r")
    assert result.memory == (NOTES if kept else LOOP.strip())
    found = [event for event in store.events("r") if isinstance(event, MemoryDegenerate)]
    assert [event.kept for event in found] == [kept] * len(found)
    assert found
    # A run that is read again from the store is the same run.
    again = reader({}, store, degenerate=choice).ask(TEXT, "Who?", run_id="r")
    assert again.memory == result.memory


def test_take_asks_once(store: RunStore) -> None:
    agent = reader({0: [LOOP]}, store, degenerate="take")
    result = agent.ask(TEXT, "Who?", run_id="r")
    assert result.usage.retries == 0
    assert not any(isinstance(event, (Retried, MemoryDegenerate)) for event in store.events("r"))


@pytest.mark.parametrize(("choice", "calls"), [("retry", 2), ("keep", 2), ("take", 1)])
def test_an_answer_over_and_over_is_asked_for_again(
    choice: str, calls: int, store: RunStore
) -> None:
    said = [LOOP, "Boris."]

    def reply(request: ChatRequest) -> str:
        return said.pop(0) if request.kind == "answer" else NOTES

    model = ScriptedModel(reply, window=4096)
    agent = MemoryAgent(model, degenerate=choice, store=store)  # type: ignore[arg-type]
    result = agent.ask(TEXT[:900], "Who?", run_id="r")
    assert result.answer == (LOOP.strip() if choice == "take" else "Boris.")
    again = [event for event in store.events("r") if isinstance(event, Retried)]
    assert [(event.chunk, "over and over" in event.reason) for event in again] == [(None, True)] * (
        calls - 1
    )


def test_an_answer_that_stays_so_is_taken(store: RunStore) -> None:
    model = ScriptedModel(lambda r: LOOP if r.kind == "answer" else NOTES, window=4096)
    result = MemoryAgent(model, store=store).ask(TEXT[:900], "Who?")
    assert (result.answer, result.usage.retries) == (LOOP.strip(), 2)


def test_a_greedy_reply_is_drawn_again_with_some_warmth(store: RunStore) -> None:
    agent = reader({0: [LOOP, NOTES]}, store, sampling=Sampling(temperature=0.0))
    agent.ask(TEXT, "Who?")
    heats = [request.sampling.temperature for request in agent.requests]  # type: ignore[attr-defined]
    assert heats[:3] == [0.0, 0.7, 0.0]
