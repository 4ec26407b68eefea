"""Long histories through the endpoint: a loop that knows nothing of memagent works on."""

import asyncio
import json
import math
import re
from typing import Any

import pytest
from openai import APIError, AsyncOpenAI, BadRequestError, OpenAI, PermissionDeniedError
from tests.integrations.book import SYSTEM, TASK, Book, Player, count
from tests.integrations.in_openai import TOOL
from tests.models.chat_server import CHATML_TOOLS, Handler, chat, send, slow
from tests.serve.conftest import MODEL, Serve
from tests.serve.engine import WINDOW, Engine, read_or_echo, refuse

from memagent import Limits, Sampling

START = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TASK}]


@pytest.fixture
def engine(engine: Engine) -> Engine:
    """With a template that knows tools."""
    engine.be_vllm(WINDOW, template=CHATML_TOOLS)
    return engine


class Loop:
    """Sends its whole history each time, as agents do."""

    def __init__(self, client: OpenAI, book: Book, *, streams: bool = False) -> None:
        self.client, self.book, self.streams = client, book, streams
        self.history: list[Any] = list(START)
        self.reported: list[Any] = []
        self.paid = 0

    def step(self) -> str | None:
        """One reply; the answer if it is the last."""
        given: Any = {"model": MODEL, "messages": self.history, "tools": [TOOL], "max_tokens": 100}
        if self.streams:
            options: Any = {"include_usage": True}
            with self.client.chat.completions.stream(**given, stream_options=options) as events:
                reply: Any = events.get_final_completion()
        else:
            reply = self.client.chat.completions.create(**given)
        self.paid += reply.usage.total_tokens
        self.reported.append(getattr(reply, "memagent", None))
        said = reply.choices[0].message
        self.history.append(said.model_dump(exclude_none=True, mode="json", exclude={"parsed"}))
        for call in said.tool_calls or ():
            text = self.book.text(json.loads(call.function.arguments)["page"])
            self.history.append({"role": "tool", "tool_call_id": call.id, "content": text})
        return None if said.tool_calls else said.content

    def play(self) -> str:
        while (answer := self.step()) is None:
            pass
        return answer


@pytest.mark.timeout(300)
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_a_loop_that_knows_nothing_of_it(engine: Engine, client: OpenAI, streams: bool) -> None:
    engine.default = player = Player(book := Book(150), WINDOW)
    loop = Loop(client, book, streams=streams)
    assert loop.play() == book.answer
    assert player.refused == []
    assert sorted(book.read) == list(range(1, 151))  # none twice
    assert player.acts > 90
    assert player.longest > 0.6 * WINDOW
    assert (player.streamed > 90) is streams
    # What was summarised once isn't summarised again: the state of the last turn is found.
    assert 3 < player.summaries < player.acts / 4
    if not streams:  # the client's helper drops fields that it doesn't know
        assert [r["summaries"] for r in loop.reported if r][-1] == player.summaries
        assert loop.reported[0] is None  # it fits at first


def test_what_was_paid_includes_the_summaries(engine: Engine, client: OpenAI) -> None:
    engine.default = player = Player(book := Book(60), WINDOW)
    loop = Loop(client, book)
    loop.play()
    prompts = [count(body) for body in engine.bodies]
    assert player.summaries > 0
    assert loop.paid == sum(prompts) + 20 * len(prompts)


def test_results_larger_than_the_window(engine: Engine, client: OpenAI) -> None:
    engine.default = player = Player(book := Book(20, huge=(3, 4, 10)), WINDOW)
    assert Loop(client, book).play() == book.answer
    assert player.refused == []


def test_a_clipped_result_is_counted_and_not_said_to_be_kept(
    engine: Engine, client: OpenAI
) -> None:
    engine.default = summarise
    function = {"name": "look", "arguments": "{}"}
    call = {"id": "c1", "type": "function", "function": function}
    given: Any = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "A row of it.\n" * 2000},
    ]
    reply: Any = client.chat.completions.create(model=MODEL, messages=given)
    assert reply.memagent["clipped"] == 1
    said = engine.bodies[-1]["messages"][-1]["content"]
    assert re.search(r"\[characters \d+ to \d+ are left out here\]", said)
    shorter: Any = client.chat.completions.create(model=MODEL, messages=long_talk())
    assert shorter.memagent["clipped"] == 0


def test_an_edited_history_starts_afresh(engine: Engine, client: OpenAI) -> None:
    engine.default = player = Player(book := Book(80), WINDOW)
    loop = Loop(client, book)
    while not player.summaries:
        loop.step()
    fork = list(loop.history)
    assert loop.play() == book.answer
    # Regenerated from there, with another wording of an earlier message.
    fork[2] = {**fork[2], "content": "Let us see. " + (fork[2].get("content") or "")}
    loop.history = fork
    assert loop.play() == book.answer
    assert player.refused == []


@pytest.mark.parametrize(
    ("prompts", "again"),
    [
        (("2026-12-09T09:59:58.5, 9.12.2026", "2026-12-10T10:00:01, 10.12.2026"), False),
        (("Keep items above 100 euros.", "Keep items above 5 euros."), True),
        (("Keep 1-20 above 3.50.", "Keep 5-20 above 4.50."), True),
        (("Release 1.2.3 at 10.0.0.7:8080.", "Release 1.2.4 at 10.0.0.8:8080."), True),
        (("List the names.", "List the dates."), True),
        (("\u4e01", "\u4e02"), True),
    ],
    ids=["clock", "number", "numbers", "versions", "task", "task in Chinese"],
)
def test_a_clock_in_the_system_message_costs_no_summaries_again(
    engine: Engine, client: OpenAI, prompts: tuple[str, str], again: bool
) -> None:
    engine.default = summarise
    sent: list[int] = []
    for prompt in prompts:
        given: Any = [{"role": "system", "content": prompt}, *long_talk()]
        client.chat.completions.create(model=MODEL, messages=given)
        assert engine.bodies[-1]["messages"][0]["content"].startswith(prompt)
        sent.append(len(summaries_of(engine)))
    assert sent[0] > 0
    assert (sent[1] > sent[0]) is again


def test_other_fields_survive(engine: Engine, client: OpenAI) -> None:
    engine.default = summarise
    reply: Any = client.chat.completions.create(
        model=MODEL, messages=long_talk(), user="u1", extra_body={"x_unknown": {"a": 1.5}}
    )
    assert engine.bodies[-1]["x_unknown"] == {"a": 1.5}
    assert engine.bodies[-1]["user"] == "u1"
    assert reply.memagent["summaries"] > 0
    assert reply.choices[0].message.content.endswith("And now?")


@pytest.mark.parametrize(
    "odd", [chat("ok \ud83d"), chat("ok", score=-math.inf)], ids=["half a character", "infinity"]
)
def test_answers_need_not_be_strict_json(engine: Engine, client: OpenAI, odd: Any) -> None:
    def behave(handler: Handler) -> None:
        (summarise if handler.body.get("max_tokens") else send(200, odd))(handler)

    engine.default = behave
    reply: Any = client.chat.completions.create(model=MODEL, messages=long_talk())
    assert reply.choices[0].message.content.startswith("ok")
    assert reply.memagent["summaries"] > 0


def summarise(handler: Handler) -> None:
    """Writes summaries where they are asked for."""
    if handler.body.get("max_tokens"):
        send(200, chat("<summary>They talked.</summary>") | {"usage": None})(handler)
        return
    read_or_echo(handler)


@pytest.mark.parametrize("content", ["Hi", [{"type": "text", "text": t} for t in ("It.", "Hi?")]])
def test_a_system_message_larger_than_the_window(
    engine: Engine, client: OpenAI, content: Any
) -> None:
    system = {"role": "system", "content": "Be kind. " * 2000}
    given: Any = [system, {"role": "user", "content": content}]
    with pytest.raises(BadRequestError, match="the system messages alone exceed") as caught:
        client.chat.completions.create(model=MODEL, messages=given)
    assert caught.value.code == "context_length_exceeded"
    assert caught.value.param == "messages[0].content"
    assert engine.bodies == []


def long_talk() -> Any:
    turns: list[Any] = []
    for n in range(60):
        asked, said = f"Question {n}: {'what of it? ' * 8}", f"Answer {n}. {'Nothing of it. ' * 8}"
        turns += [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]
    return [*turns, {"role": "user", "content": "And now?"}]


def summaries_of(engine: Engine) -> list[str]:
    """The prompts for summaries that the engine got."""
    return [json.dumps(b["messages"]) for b in engine.bodies if b.get("max_tokens")]


@pytest.mark.parametrize("drops", [True, False])
def test_summaries_of_a_request_that_ended_early_are_kept(
    engine: Engine, url: str, client: OpenAI, drops: bool
) -> None:
    engine.default = summarise
    engine.replies = [summarise, summarise, slow(20) if drops else refuse(400, "broken")]

    async def give_up() -> None:
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as hasty:
            work = hasty.chat.completions.create(model=MODEL, messages=long_talk())
            asked = asyncio.create_task(work)
            await asyncio.to_thread(engine.waiting.wait, 20)
            asked.cancel()
            await asyncio.wait([asked])
        await asyncio.to_thread(engine.left.wait, 20)

    if drops:
        asyncio.run(give_up())
    else:
        with pytest.raises(APIError):
            client.chat.completions.create(model=MODEL, messages=long_talk())
    assert len(summaries_of(engine)) == 3
    reply: Any = client.chat.completions.create(model=MODEL, messages=long_talk())
    sent = summaries_of(engine)
    assert len(sent) > 5
    assert len(set(sent)) == len(sent) - 1  # the one that failed was sent again, no other
    assert reply.memagent["summaries"] == len(sent) - 1


def test_the_same_request_twice_at_once_is_summarised_once(engine: Engine, url: str) -> None:
    engine.default = summarise

    async def both() -> None:
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            chat = client.chat.completions
            await asyncio.gather(
                *(chat.create(model=MODEL, messages=long_talk()) for _ in range(2))
            )

    asyncio.run(both())
    assert len(set(sent := summaries_of(engine))) == len(sent)


def test_a_history_that_fits_since_the_window_grew_passes_whole(
    serve: Serve, engine: Engine
) -> None:
    engine.default = summarise
    for window, shortened in ((WINDOW, True), (16 * WINDOW, False)):
        engine.be_vllm(window, template=CHATML_TOOLS)
        with OpenAI(base_url=serve(), api_key="none", max_retries=0) as client:
            reply: Any = client.chat.completions.create(model=MODEL, messages=long_talk())
        assert hasattr(reply, "memagent") is shortened
        assert (len(engine.bodies[-1]["messages"]) < len(long_talk())) is shortened


def test_a_history_is_shortened_anew_since_the_window_shrank(serve: Serve, engine: Engine) -> None:
    def at_length(handler: Handler) -> None:
        words = "They talked of it. " * min(handler.body.get("max_tokens", 0) // 6, 180)
        send(200, chat(f"<summary>{words}</summary>") | {"usage": None})(handler)

    engine.default = at_length
    for window in (4 * WINDOW, WINDOW):
        engine.be_vllm(window, template=CHATML_TOOLS)
        with OpenAI(base_url=serve(), api_key="none", max_retries=0) as client:
            given: Any = [*long_talk()[:-1], *long_talk()[:-1], *long_talk()]
            reply: Any = client.chat.completions.create(model=MODEL, messages=given)
        assert reply.memagent["summaries"] > 0


def test_short_messages_are_not_counted_one_by_one(engine: Engine, client: OpenAI) -> None:
    engine.be_vllm(4096, template=CHATML_TOOLS)
    engine.default = summarise
    given: Any = [{"role": "system", "content": "Be kind to everybody who asks. " * 110}]
    for n in range(30):
        given += [{"role": "user", "content": f"Question {n}: {'what of it? ' * 40}"}]
        given += [{"role": "assistant", "content": f"Answer {n}. {'Nothing of it. ' * 8}"}]
    client.chat.completions.create(
        model=MODEL, messages=[*given, {"role": "user", "content": "And now?"}]
    )
    pairs = [body for body in engine.of("/tokenize") if len(body.get("messages", ())) == 2]
    assert sum(body["messages"][1]["content"].startswith("Question") for body in pairs) < 5


def test_sampling_reaches_the_summaries(serve: Serve, engine: Engine) -> None:
    engine.default = player = Player(book := Book(60), WINDOW)
    reading = {"sampling": Sampling(temperature=0.0, top_p=0.5)}
    with OpenAI(base_url=serve(reading=reading), api_key="none", max_retries=0) as client:
        Loop(client, book).play()
    own = [(body["temperature"], body["top_p"]) for body in engine.bodies if "temperature" in body]
    assert own == [(0.0, 0.5)] * player.summaries


def test_limits_hold_for_summaries_too(serve: Serve, engine: Engine) -> None:
    engine.default = summarise
    url = serve(reading={"limits": Limits(calls=1)})
    with OpenAI(base_url=url, api_key="none", max_retries=2) as client:
        given: Any = [*START, *long_talk()]
        with pytest.raises(PermissionDeniedError, match="limit calls=1 is reached"):
            client.chat.completions.create(model=MODEL, messages=given)
    assert len(engine.bodies) == 1


def test_histories_can_be_refused(serve: Serve, engine: Engine) -> None:
    engine.default = Player(book := Book(80), WINDOW)
    with (
        OpenAI(base_url=serve(overflow="refuse"), api_key="none", max_retries=0) as client,
        pytest.raises(BadRequestError) as caught,
    ):
        Loop(client, book).play()
    assert caught.value.code == "context_length_exceeded"
