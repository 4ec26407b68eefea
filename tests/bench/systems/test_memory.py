"""The memory agent as a system: its gates, what it keeps, what it predicts."""

import pytest
from tests.bench.systems.benches import haystack, sample, scripted, setting

from memagent import ChatRequest, Completion, Limits, RunStore, ScriptedModel, Usage, UsageLimit
from memagent.errors import ModelError, RunMismatch, ServerFailed
from memagent.models.base import Wrapper
from memagent_bench.systems.base import Status
from memagent_bench.systems.registry import open_system

AGENTS = ("memory", "memory-gate")


class Killed(BaseException):
    """What nobody catches."""


class Dies(Wrapper):
    """A model whose process dies after so many calls."""

    def __init__(self, inner: ScriptedModel, after: int) -> None:
        super().__init__(inner)
        self.left = after

    async def complete(self, request: ChatRequest) -> Completion:
        if not self.left:
            raise Killed
        self.left -= 1
        return await self.inner.complete(request)


@pytest.mark.parametrize("name", AGENTS)
async def test_the_prediction_is_exact_in_calls_and_a_bound_in_tokens(
    store: RunStore, name: str
) -> None:
    model = scripted()
    outcome = await open_system(name, setting(model, store)).answer(sample(haystack()), "r1")
    assert outcome.chunks is not None
    assert outcome.chunks > 5
    assert outcome.predicted_calls == outcome.usage.calls == len(model.requests)
    assert outcome.usage.calls == outcome.chunks + 1
    used = outcome.usage.prompt_tokens + outcome.usage.completion_tokens
    assert used <= (outcome.predicted_tokens or 0)
    assert (outcome.run_id, outcome.shown, outcome.status) == ("r1", 1.0, Status.ANSWERED)


async def test_the_gate_is_offered_by_memory_gate_alone(store: RunStore) -> None:
    offered = {}
    for name in AGENTS:
        model = scripted()
        # What the setting says of gates is for the system to say.
        await open_system(name, setting(model, store, gate="both")).answer(sample(haystack()), name)
        text = model.requests[0].messages[0].content
        offered[name] = ("[keep]" in text, "[done]" in text)
    assert offered == {"memory": (False, False), "memory-gate": (True, False)}


@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.parametrize("after", [0, 1, 4])
async def test_a_killed_sample_goes_on_in_its_middle(
    store: RunStore, name: str, after: int
) -> None:
    first, second = scripted(), scripted()
    with pytest.raises(Killed):
        await open_system(name, setting(Dies(first, after), store)).answer(sample(haystack()), "r1")
    assert len(first.requests) == after
    outcome = await open_system(name, setting(second, store)).answer(sample(haystack()), "r1")
    assert not {r.seed for r in first.requests} & {r.seed for r in second.requests}
    assert len(first.requests) + len(second.requests) == outcome.predicted_calls
    assert outcome.usage.calls == outcome.predicted_calls
    assert outcome.usage.repeated == 1  # the call in flight
    whole = await open_system(name, setting(scripted(), store)).answer(sample(haystack()), "r2")
    assert whole.usage == outcome.usage.model_copy(update={"repeated": 0})


async def test_a_finished_sample_is_not_asked_again(store: RunStore) -> None:
    before = await open_system("memory", setting(scripted(), store)).answer(sample(haystack()), "r")
    model = scripted()
    again = await open_system("memory", setting(model, store)).answer(sample(haystack()), "r")
    assert (again, model.requests) == (before, [])


async def test_a_run_id_of_another_system_is_refused(store: RunStore) -> None:
    await open_system("memory", setting(scripted(), store)).answer(sample(haystack()), "r")
    with pytest.raises(RunMismatch):
        await open_system("memory-gate", setting(scripted(), store)).answer(sample(haystack()), "r")


async def test_a_limit_stops_it_and_it_goes_on_later(store: RunStore) -> None:
    limited = UsageLimit(scripted(), Limits(calls=3))
    outcome = await open_system("memory", setting(limited, store)).answer(sample(haystack()), "r")
    assert (outcome.status, outcome.answer, outcome.usage.calls) == (Status.STOPPED, None, 3)
    assert "calls=3" in outcome.detail
    assert 0.2 < outcome.shown < 0.8
    outcome = await open_system("memory", setting(scripted(), store)).answer(
        sample(haystack()), "r"
    )
    assert (outcome.status, outcome.usage.calls) == (Status.ANSWERED, outcome.predicted_calls)


async def test_a_failed_call_is_raised(store: RunStore) -> None:
    model = ScriptedModel(["One.", ServerFailed("gone")], window=4096)
    with pytest.raises(ModelError) as failed:
        await open_system("memory", setting(model, store)).answer(sample(haystack()), "r")
    assert failed.value.run_id == "r"


async def test_extractive_reads_four_bytes_for_a_token_and_calls_no_model(store: RunStore) -> None:
    model = scripted()
    shared = setting(model, store, window=2048, chunk_tokens=1000, memory_tokens=200)
    outcome = await open_system("extractive", shared).answer(sample(haystack()), "r")
    assert model.requests == []
    assert "7405812" in (outcome.answer or "")
    text = haystack()
    assert outcome.chunks in (len(text) // 4000 + 1, len(text) // 4000 + 2)
    assert (outcome.usage, outcome.predicted_calls) == (Usage(), 0), "as regex and bm25 have it"


async def test_extractive_takes_the_published_sizes(store: RunStore) -> None:
    shared = setting(scripted(), store, window=8192, chunk_tokens=5000, memory_tokens=1024)
    outcome = await open_system("extractive", shared).answer(sample(haystack()), "r")
    assert "7405812" in (outcome.answer or "")
