import asyncio
from typing import Any

import pytest

from memagent.errors import ConfigError, LimitReached, ServerBusy
from memagent.messages import ChatRequest, Completion, Message, Usage
from memagent.models.limit import ConcurrencyLimit, Limits, UsageLimit
from memagent.models.scripted import ScriptedModel

REQUEST = ChatRequest(messages=(Message(role="user", content="x"),), max_tokens=5)
REPLY = Completion(text="a", usage=Usage(calls=1, prompt_tokens=10, completion_tokens=5))


class Gate:
    """Replies when told to, and counts the calls that are inside."""

    def __init__(self) -> None:
        self.inside = self.most = 0
        self.open = asyncio.Event()

    async def __call__(self, request: ChatRequest) -> Completion:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await self.open.wait()
        await asyncio.sleep(0)
        self.inside -= 1
        return REPLY


async def calls(model: Any, n: int) -> list[Any]:
    return await asyncio.gather(
        *(model.complete(REQUEST) for _ in range(n)), return_exceptions=True
    )


async def test_at_most_n_at_once() -> None:
    gate = Gate()
    limited = ConcurrencyLimit(ScriptedModel(gate), 3)
    running = asyncio.create_task(calls(limited, 10))
    await asyncio.sleep(0.01)
    assert gate.inside == 3
    gate.open.set()
    assert await running == [REPLY] * 10
    assert gate.most == 3


async def test_failed_and_cancelled_calls_give_their_turn_back() -> None:
    limited = ConcurrencyLimit(ScriptedModel([ServerBusy("no"), "a"]), 1)
    with pytest.raises(ServerBusy):
        await limited.complete(REQUEST)
    assert (await limited.complete(REQUEST)).text == "a"
    stuck = ConcurrencyLimit(ScriptedModel(Gate()), 1)
    task = asyncio.create_task(stuck.complete(REQUEST))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    waiting = asyncio.create_task(stuck.complete(REQUEST))
    await asyncio.sleep(0.01)
    stuck_model = stuck.inner
    assert isinstance(stuck_model, ScriptedModel)
    assert len(stuck_model.requests) == 2
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


def test_concurrency_works_in_one_loop_after_another() -> None:
    limited = ConcurrencyLimit(ScriptedModel(lambda request: "a"), 1)
    for _ in range(3):
        assert [reply.text for reply in asyncio.run(calls(limited, 3))] == ["a"] * 3


@pytest.mark.parametrize("n", [0, -1, "3", None, 1.5])
def test_no_concurrency_at_all(n: Any) -> None:
    with pytest.raises(ConfigError, match="concurrency"):
        ConcurrencyLimit(ScriptedModel([]), n)


async def test_exactly_n_calls_also_at_once_and_also_failed_ones() -> None:
    gate = Gate()
    gate.open.set()
    model = ScriptedModel(gate)
    limited = UsageLimit(model, Limits(calls=4))
    results = await calls(limited, 10)
    assert results.count(REPLY) == 4
    assert len(model.requests) == 4
    assert sum(isinstance(result, LimitReached) for result in results) == 6
    failing = UsageLimit(ScriptedModel([ServerBusy("no")]), Limits(calls=1))
    with pytest.raises(ServerBusy):
        await failing.complete(REQUEST)
    with pytest.raises(LimitReached, match="limit calls=1 "):
        await failing.complete(REQUEST)


async def test_tokens_refuse_once_spent_has_reached_them() -> None:
    model = ScriptedModel([REPLY] * 9)
    limited = UsageLimit(model, Limits(tokens=30))
    assert (await calls(limited, 1))[0] is REPLY
    assert (await calls(limited, 1))[0] is REPLY
    with pytest.raises(LimitReached, match=r"limit tokens=30 .*\(30 spent\)"):
        await limited.complete(REQUEST)
    assert len(model.requests) == 2


async def test_thrown_away_tokens_count() -> None:
    reply = REPLY.model_copy(update={"usage": Usage(calls=1, retries=1, retry_tokens=100)})
    limited = UsageLimit(
        ScriptedModel([reply]), Limits(tokens=100, cost=9, prompt_price=1, completion_price=3)
    )
    await limited.complete(REQUEST)
    with pytest.raises(LimitReached, match="tokens=100"):
        await limited.complete(REQUEST)


async def test_thrown_away_tokens_cost_the_higher_price() -> None:
    reply = Completion(text="a", usage=Usage(calls=1, retries=1, retry_tokens=1_000_000))
    limits = Limits(cost=3, prompt_price=1, completion_price=3)
    limited = UsageLimit(ScriptedModel([reply]), limits)
    await limited.complete(REQUEST)
    with pytest.raises(LimitReached, match=r"\(3\.0"):
        await limited.complete(REQUEST)


async def test_cost() -> None:
    limits = Limits(cost=0.00004, prompt_price=1.0, completion_price=2.0)
    limited = UsageLimit(ScriptedModel([REPLY] * 9), limits)
    await limited.complete(REQUEST)
    await limited.complete(REQUEST)
    with pytest.raises(LimitReached, match=r"cost=4e-05 .*\(4e-05 spent"):
        await limited.complete(REQUEST)


async def test_seconds_run_from_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("memagent.models.limit.time.monotonic", lambda: now)
    limited = UsageLimit(ScriptedModel([REPLY] * 9), Limits(seconds=10))
    now = 5000.0
    await limited.complete(REQUEST)
    now = 5009.9
    await limited.complete(REQUEST)
    now = 5010.0
    with pytest.raises(LimitReached, match="seconds"):
        await limited.complete(REQUEST)


async def test_what_an_earlier_part_spent_counts() -> None:
    spent = Usage(calls=3, prompt_tokens=50)
    limited = UsageLimit(ScriptedModel([REPLY] * 9), Limits(calls=4), spent=spent)
    await limited.complete(REQUEST)
    with pytest.raises(LimitReached, match="calls"):
        await limited.complete(REQUEST)
    limited = UsageLimit(ScriptedModel([REPLY] * 9), Limits(tokens=60), spent=spent)
    await limited.complete(REQUEST)
    with pytest.raises(LimitReached, match=r"\(65 spent\)"):
        await limited.complete(REQUEST)


async def test_calls_that_led_to_nothing_count_after_a_resume_too() -> None:
    spent = Usage(calls=1, retries=2, repeated=1, discarded=1)
    limited = UsageLimit(ScriptedModel([REPLY] * 9), Limits(calls=6), spent=spent)
    await limited.complete(REQUEST)
    with pytest.raises(LimitReached, match="calls=6"):
        await limited.complete(REQUEST)


async def test_a_call_is_checked_when_its_turn_comes() -> None:
    model = ScriptedModel(lambda request: REPLY)
    limited = ConcurrencyLimit(UsageLimit(model, Limits(tokens=1)), 1)
    results = await calls(limited, 40)
    assert len(model.requests) == 1
    assert sum(isinstance(result, LimitReached) for result in results) == 39


async def test_turns_are_shared_around_several_models() -> None:
    gate = Gate()
    turns = ConcurrencyLimit(ScriptedModel(gate), 3)
    others = [turns.around(UsageLimit(ScriptedModel(gate), Limits(calls=2))) for _ in range(2)]
    running = [asyncio.create_task(calls(model, 4)) for model in (turns, *others)]
    await asyncio.sleep(0.01)
    assert gate.inside == 3
    gate.open.set()
    plain, *limited = [await task for task in running]
    assert gate.most == 3
    assert plain == [REPLY] * 4
    assert [results.count(REPLY) for results in limited] == [2, 2]
    assert turns.inner is not others[0].inner


async def test_no_limits_limit_nothing() -> None:
    limited = UsageLimit(ScriptedModel([REPLY] * 3), Limits())
    assert await calls(limited, 3) == [REPLY] * 3


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"cost": 1.0}, "prompt_price="),
        ({"cost": 1.0, "prompt_price": 1.0}, "completion_price="),
        ({"calls": -1}, "^calls must be greater than or equal to 0, got -1$"),
        ({"seconds": float("nan")}, "^seconds must be a finite number, got nan$"),
        ({"call": 1}, r"^there is no setting 'call'; did you mean 'calls'\?$"),
        ({"x": 1}, "^there is no setting 'x'; there are calls, tokens, seconds, cost, prompt_"),
        ({"calls": 1.5}, "^calls must be a valid integer, got 1.5$"),
        ({"calls": "many"}, "^calls must be a valid integer.*got 'many'$"),
    ],
)
def test_impossible_limits(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Limits(**fields)
