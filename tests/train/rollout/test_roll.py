"""Rollouts as a whole: agents as they are, on the policy, and what is left of them for training."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.models.transformers.policies import (
    PLAIN,
    WINDOW,
    forward_logprobs,
    policy,
    request,
    tokenizer,
)
from tests.train.rollout.policies import Echoes, Paid, sample

from memagent.errors import ConfigError, ModelError
from memagent.messages import ChatRequest, Message, Sampling
from memagent.models.base import ChatModel
from memagent.tasks import Sample
from memagent_engines.transformers.padded import PaddedSampler
from memagent_engines.transformers.sampler import Sampled
from memagent_train.agents import AgentFunction, AgentSettings, load_agent
from memagent_train.roles import role
from memagent_train.rollout.continuous import ContinuousSampler
from memagent_train.rollout.model import RolloutModel
from memagent_train.rollout.roll import RolloutRequest, roll
from memagent_train.rollout.sampler import MeteredSampler
from memagent_train.rollout.template import Template
from memagent_train.rollouts import Outcome, Rollout, Status

NAMES = tokenizer()
SMALL: dict[str, Any] = {"window": 640, "chunk_tokens": 150, "memory_tokens": 60}


def memory_agent(**fields: Any) -> AgentFunction:
    return load_agent(AgentSettings.model_validate({**SMALL, **fields}), store=None)


def requests(count: int = 4, group: int = 2, **fields: Any) -> list[RolloutRequest]:
    return [
        RolloutRequest(sample(n // group, **fields), f"group-{n // group}", f"rollout-{n}", n)
        for n in range(count)
    ]


def run(
    agent: AgentFunction,
    *,
    asked: list[RolloutRequest] | None = None,
    sampler: Any = None,
    verifier: Any = None,
    **options: Any,
) -> list[Rollout]:
    engine = Echoes() if sampler is None else sampler
    model = RolloutModel(engine, NAMES)

    async def rolled() -> list[Rollout]:
        rollouts = await roll(
            requests() if asked is None else asked,
            model=model,
            agent=agent,
            verifier=verifier or Paid(),
            **options,
        )
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return rollouts

    with engine.generating():
        return asyncio.run(rolled())


async def talk(model: ChatModel, said: list[str], **fields: Any) -> str:
    """One turn of a conversation, which goes on."""
    reply = await model.complete(request(*said, **fields))
    said.append(reply.text)
    return reply.text


async def three_turns(model: ChatModel, sample: Sample) -> str:
    """A user's own agent."""
    said = [sample.question]
    for after in ("Where?", "When?"):
        await talk(model, said)
        said.append(after)
    return await talk(model, said)


# --- agents run as they are


@pytest.mark.parametrize("gate", ["off", "both"])
@pytest.mark.parametrize("engine", [PaddedSampler, ContinuousSampler])
def test_the_memory_agent_runs_on_the_policy(engine: Any, gate: str) -> None:
    weights = policy()
    rollouts = run(memory_agent(gate=gate), sampler=engine(weights, NAMES))
    assert [one.rollout_id for one in rollouts] == [f"rollout-{n}" for n in range(4)]
    assert [one.group_id for one in rollouts] == ["group-0", "group-0", "group-1", "group-1"]
    for one in rollouts:
        assert one.status is Status.SCORED, one.error
        assert one.seconds > 0
        assert one.answer is not None
        assert [row.kind for row in one.rows[-1:]] == ["answer"]
        assert {row.kind for row in one.rows[:-1]} == {"update"}
        assert [row.final for row in one.rows] == [False] * (len(one.rows) - 1) + [True]
        for row in one.rows:
            assert set(row.loss_mask) == {1}
            plain = forward_logprobs(weights, row.prompt_ids, row.response_ids)
            assert row.logprobs == pytest.approx(plain, abs=1e-4)
    spans = [row.span for row in rollouts[0].rows if row.kept is not None]
    assert bool(spans) is (gate == "both")
    assert rollouts[0].rows != rollouts[1].rows, "those of a group differ"


@pytest.mark.parametrize("engine", [PaddedSampler, ContinuousSampler])
def test_a_users_own_function_runs_on_the_policy_and_is_one_row(engine: Any) -> None:
    weights = policy()
    for one in run(three_turns, sampler=engine(weights, NAMES)):
        (row,) = one.rows
        assert one.status is Status.SCORED
        assert set(row.loss_mask) == {0, 1}
        whole = [*row.prompt_ids, *row.response_ids]
        plain = forward_logprobs(weights, whole[: len(row.prompt_ids)], row.response_ids)
        together = zip(row.loss_mask, row.logprobs, plain, strict=True)
        for masked, ours, forward in together:
            assert ours == pytest.approx(forward, abs=1e-4) if masked else ours == 0.0


def test_the_same_seeds_give_the_same_rollouts() -> None:
    first, second = (
        run(memory_agent(), sampler=PaddedSampler(policy(), NAMES), concurrency=n) for n in (4, 1)
    )
    assert [[row.response_ids for row in one.rows] for one in first] == [
        [row.response_ids for row in one.rows] for one in second
    ]


def test_two_roles_at_once_have_a_mask_each() -> None:
    async def debate(model: ChatModel, sample: Sample) -> str:
        async def argue(name: str, *, train: bool) -> str:
            said, speaker = [sample.question], role(model, name, train=train)
            for _ in range(3):
                await talk(speaker, said)
                said.append(f"{name}, go on.")
            return said[-2]

        answers = await asyncio.gather(argue("pro", train=True), argue("con", train=False))
        return " ".join(answers)

    for one in run(debate):
        masks = {row.spans[0].role: row.loss_mask for row in one.rows}
        assert len(one.rows) == 2
        assert set(masks["pro"]) == {0, 1}
        assert set(masks["con"]) == {0}
        for row in one.rows:
            sampled = [logprob != 0 for logprob in row.logprobs]
            assert sum(sampled) > 3
            assert masks["pro"] != tuple(map(int, sampled)) or row.spans[0].role == "pro"
        assert one.rows[0].sampled + one.rows[1].sampled == sum(masks["pro"])


# --- nothing that was sampled is tokenised again


def test_rows_hold_what_was_sampled_to_the_id(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[str] = []
    encode = Template.encode

    def noted(self: Template, text: str) -> tuple[int, ...]:
        encoded.append(text)
        return encode(self, text)

    monkeypatch.setattr(Template, "encode", noted)
    replies: list[str] = []

    async def noting(model: ChatModel, sample: Sample) -> str:
        said = [sample.question]
        for _ in range(4):
            replies.append(await talk(model, said, max_tokens=12))
            said.append("And then?")
        return said[-2]

    # Letters one by one: the tokenizer would write every word of theirs with fewer tokens.
    letters = [encode(Template(NAMES), letter)[0] for letter in "theprincwdofbm"]
    sampler = Echoes(ids=letters)
    rollouts = run(noting, sampler=sampler, asked=requests(8))
    bare = Template(NAMES)
    assert all(
        encode(bare, reply) != drawn for reply, drawn in zip(replies, sampler.drawn, strict=True)
    )
    assert not [text for text in encoded for reply in replies if reply in text]
    sampled = [ids for one in rollouts for row in one.rows for ids in turns(row)]
    assert sorted(sampled) == sorted(sampler.drawn)
    assert all(len(one.rows) == 1 for one in rollouts)


def turns(row: Any) -> list[tuple[int, ...]]:
    """The runs of ids in a row that count."""
    found: list[tuple[int, ...]] = []
    before = 0
    for i, counts in zip(row.response_ids, row.loss_mask, strict=True):
        if counts and not before:
            found.append(())
        if counts:
            found[-1] += (i,)
        before = counts
    return found


def test_the_memory_agents_rows_hold_what_was_sampled_too() -> None:
    sampler = Echoes()
    rollouts = run(memory_agent(gate="both"), sampler=sampler)
    rows = [row for one in rollouts for row in one.rows]
    assert sorted(row.response_ids for row in rows) == sorted(sampler.drawn)
    assert sorted(row.prompt_ids for row in rows) == sorted(sampler.prompts)


# --- the window


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
@given(
    st.lists(
        st.one_of(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
            st.sampled_from(["<|im_end|>", "🙂🏽", "日本", "\n\n", "e\u0301", "The prince "]),
        ),
        min_size=1,
        max_size=30,
    ).map("".join)
)
def test_prompt_and_output_never_exceed_the_window(text: str) -> None:
    most: list[int] = []

    class Watching(Echoes):
        async def sample(self, prompt_ids: Any, *, max_tokens: int, **options: Any) -> Sampled:
            most.append(len(prompt_ids) + max_tokens)
            return await super().sample(prompt_ids, max_tokens=max_tokens, **options)

    asked = requests(2, context=text * 8 + "x")
    rollouts = run(memory_agent(gate="both"), asked=asked, sampler=Watching())
    assert {one.status for one in rollouts} == {Status.SCORED}, [one.error for one in rollouts]
    assert max(most) <= 640


# --- what goes wrong


async def good(model: ChatModel, sample: Sample) -> str:
    return await talk(model, [sample.question])


def some(wrong: Callable[[ChatModel, Sample], Any]) -> AgentFunction:
    """An agent that goes wrong for the samples of the first group."""

    async def agent(model: ChatModel, sample: Sample) -> Any:
        answer = await talk(model, [sample.question])
        return await wrong(model, sample) if sample.index == 0 else answer

    return agent


async def raises(model: ChatModel, sample: Sample) -> str:
    raise ZeroDivisionError("by zero")


async def returns(model: ChatModel, sample: Sample) -> Any:
    return 42


def outcome(*values: Any, said: bool = False, **named: Any) -> AgentFunction:
    async def agent(model: ChatModel, sample: Sample) -> Outcome:
        if said:
            await talk(model, [sample.question])
        return Outcome(*values, **named)

    return agent


async def raises_half_a_character(model: ChatModel, sample: Sample) -> str:
    raise OSError("cannot read \udcff")


async def cancels(model: ChatModel, sample: Sample) -> str:
    raise asyncio.CancelledError


async def times_out(model: ChatModel, sample: Sample) -> str:
    async with asyncio.timeout(0.01):
        await asyncio.sleep(5)
    return ""


async def overflows(model: ChatModel, sample: Sample) -> str:
    return await talk(model, [sample.question], max_tokens=WINDOW)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (raises, "ZeroDivisionError: by zero"),
        (returns, "the agent returned 42: return the answer as a text"),
        (outcome(42), "an Outcome with answer=42; give a text, or None"),
        (outcome("a", reward="1.0"), "reward='1.0'"),
        (outcome("a", scores={"steps": None}), "scores={'steps': None}; give numbers"),
        (outcome("a", scores={3: 1.0}), "scores={3: 1.0}; name them by texts"),
        (outcome("a", overlong=None), "overlong=None; give True or False"),
        (outcome("a", reward=10**400), "reward=1000"),
        (raises_half_a_character, "OSError: cannot read \ufffd"),
        (cancels, "CancelledError"),
        (times_out, "TimeoutError"),
        (overflows, "ContextOverflow: policy"),
    ],
)
def test_a_rollout_that_fails_is_recorded_and_its_siblings_go_on(wrong: Any, words: str) -> None:
    verifier = Paid()
    rollouts = run(some(wrong), verifier=verifier)
    assert [one.status for one in rollouts] == [Status.FAILED] * 2 + [Status.SCORED] * 2
    for one in rollouts[:2]:
        assert words in one.error
        assert (one.answer, one.reward) == (None, None)
        assert len(one.rows) == 1, "what was said before is there for the log"
    assert len(verifier.seen) == 2, "what failed is not verified"


def test_an_agent_that_uses_another_model_is_told_so() -> None:
    async def elsewhere(model: ChatModel, sample: Sample) -> str:
        return "an answer from nowhere"

    (one,) = run(elsewhere, asked=requests(1))
    assert one.status is Status.FAILED
    assert "made no call to its model" in one.error
    assert one.rows == ()


def test_an_error_of_the_sampler_fails_only_its_rollouts() -> None:
    class Breaking(Echoes):
        async def sample(self, prompt_ids: Any, **options: Any) -> Sampled:
            drawn = await super().sample(prompt_ids, **options)
            if len(self.prompts) % 3 == 0:
                raise ModelError("the engine broke")
            return drawn

    rollouts = run(good, asked=requests(9), sampler=Breaking())
    failed = [one for one in rollouts if one.status is Status.FAILED]
    assert len(failed) == 3
    assert all("the engine broke" in one.error for one in failed)


def test_no_answer_is_scored_and_a_limit_is_overlong() -> None:
    async def nothing(model: ChatModel, sample: Sample) -> None:
        await talk(model, [sample.question])

    (one,) = run(nothing, asked=requests(1))
    assert (one.status, one.answer, one.reward) == (Status.SCORED, None, 1.0)
    (one,) = run(memory_agent(max_calls=2), asked=requests(1))
    assert (one.status, one.answer, one.overlong) == (Status.SCORED, None, True)
    assert len(one.rows) == 2


def test_an_outcome_says_what_became_of_the_rollout() -> None:
    async def agent(model: ChatModel, sample: Sample) -> Outcome:
        await talk(model, [sample.question])
        return Outcome(None, reward=0.25, overlong=True, scores={"steps": 9.0})

    class Unpaid(Paid):
        async def verify(self, rollout: Rollout) -> Rollout:
            return rollout

    (one,) = run(agent, asked=requests(1), verifier=Unpaid())
    assert (one.status, one.answer, one.reward) == (Status.UNSCORED, None, 0.25)
    assert (one.overlong, one.scores) == (True, {"steps": 9.0})


def test_figures_of_an_outcome_may_be_numpys_and_must_be_usable() -> None:
    scores = {"steps": np.int64(9), "huge": 1e308, "none": math.nan}
    values = {"reward": np.float32(0.5), "scores": scores, "overlong": np.bool_(1)}
    (one,) = run(outcome("a", said=True, **values), asked=requests(1))
    assert (one.overlong, one.scores) == (True, {"steps": 9.0})
    assert (type(one.overlong), type(one.scores["steps"])) == (bool, float)


def test_half_a_character_in_an_answer_can_be_logged() -> None:
    (one,) = run(outcome("\ud800 blue", said=True), asked=requests(1))
    assert one.answer == "\ufffd blue"


@pytest.mark.parametrize("overlong", [False, True])
def test_an_outcome_has_the_last_word_on_what_is_overlong(overlong: bool) -> None:
    async def agent(model: ChatModel, sample: Sample) -> Outcome:
        answer = await talk(model, [sample.question], max_tokens=1)
        return Outcome(answer, overlong=overlong)

    (one,) = run(agent, asked=requests(1))
    assert one.rows[0].truncated
    assert one.overlong is overlong


def test_replies_that_cannot_be_used_are_the_policys_fault_and_are_scored() -> None:
    blank = Template(NAMES).encode("\n")[0]
    rollouts = run(memory_agent(), asked=requests(2), sampler=Echoes(ids=[blank]))
    for one in rollouts:
        assert (one.status, one.answer) == (Status.SCORED, None)
        assert len(one.rows) == 3, "a call that was made three times"
        assert one.rows[-1].final


@pytest.mark.parametrize("limit", [3, 30])
def test_an_answer_that_was_cut_off_is_overlong(limit: int) -> None:
    class Long(Echoes):
        async def sample(self, prompt_ids: Any, **options: Any) -> Sampled:
            drawn = await super().sample(prompt_ids, **{**options, "max_tokens": 3})
            ended = options["max_tokens"] > 3
            return replace(drawn, finish="stop" if ended else "length")

    async def agent(model: ChatModel, sample: Sample) -> str:
        return await talk(model, [sample.question], max_tokens=limit)

    (one,) = run(agent, asked=requests(1), sampler=Long())
    assert one.overlong is one.rows[0].truncated is (limit == 3)


@pytest.mark.parametrize("cut_off", [0, 1])
def test_an_earlier_turn_that_was_cut_off_makes_no_rollout_overlong(cut_off: int) -> None:
    class Turns(Echoes):
        async def sample(self, prompt_ids: Any, **options: Any) -> Sampled:
            drawn = await super().sample(prompt_ids, **options)
            return replace(drawn, finish="length" if len(self.drawn) - 1 == cut_off else "stop")

    async def agent(model: ChatModel, sample: Sample) -> str:
        said = [sample.question]
        await talk(model, said)
        said.append("And then?")
        return await talk(model, said)

    (one,) = run(agent, asked=requests(1), sampler=Turns())
    assert len(one.rows) == 1
    assert one.rows[0].truncated
    assert one.overlong is (cut_off == 1)


# --- concurrency


def test_no_more_calls_than_places_and_neither_tools_nor_verifying_take_any() -> None:
    calls: list[int] = []
    at_work: list[int] = [0]
    most: list[int] = []
    verifying: list[int] = [0]
    together: list[int] = []

    async def agent(model: ChatModel, sample: Sample) -> str:
        at_work[0] += 1
        most.append(at_work[0])
        together.append(verifying[0])
        await talk(model, [sample.question])
        await asyncio.sleep(0.1)  # a tool
        at_work[0] -= 1
        return "x"

    class Counting(Echoes):
        at_once = 0

        async def sample(self, *args: Any, **kwargs: Any) -> Any:
            self.at_once += 1
            calls.append(self.at_once)
            try:
                await asyncio.sleep(0.01)
                return await super().sample(*args, **kwargs)
            finally:
                self.at_once -= 1

    class Slow(Paid):
        async def verify(self, rollout: Rollout) -> Rollout:
            verifying[0] += 1
            await asyncio.sleep(0.1)
            verifying[0] -= 1
            return await super().verify(rollout)

    asked = requests(12)
    rollouts = run(agent, asked=asked, verifier=Slow(), concurrency=2, sampler=Counting())
    assert max(calls) == 2
    assert 2 < max(most) <= 8, "others were at work while tools ran"
    assert max(together) > 2, "agents were at work while others were verified"
    assert all(one.seconds >= 0.2 for one in rollouts)


def test_each_rollout_is_announced_as_it_ends() -> None:
    ended: list[str] = []

    async def agent(model: ChatModel, sample: Sample) -> str:
        await asyncio.sleep(0.05 * (3 - sample.index))
        return await talk(model, [sample.question])

    rollouts = run(
        agent,
        asked=requests(3, group=1),
        on_done=lambda one: ended.append(one.rollout_id),
    )
    assert ended == ["rollout-2", "rollout-1", "rollout-0"]
    assert [one.rollout_id for one in rollouts] == ["rollout-0", "rollout-1", "rollout-2"]


def test_an_error_of_the_caller_stops_all_and_is_raised_as_it_is() -> None:
    def full(one: Rollout) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        run(good, on_done=full)


async def test_cancelling_cancels_all_and_leaves_no_task() -> None:
    entered = asyncio.Semaphore(0)
    left: list[str] = []

    async def endless(model: ChatModel, sample: Sample) -> str:
        await talk(model, [sample.question])
        entered.release()
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(0.01)
            left.append(sample.question)
        return ""

    before = asyncio.all_tasks()
    rolling = asyncio.create_task(
        roll(
            requests(6),
            model=RolloutModel(Echoes(), NAMES),
            agent=endless,
            verifier=Paid(),
            concurrency=4,
        )
    )
    for _ in range(4):
        await entered.acquire()
    rolling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await rolling
    assert len(left) == 4
    assert asyncio.all_tasks() == before


def test_requests_that_cannot_be_rolled() -> None:
    with pytest.raises(ConfigError, match="concurrency must be at least 1, got 0"):
        run(good, concurrency=0)
    with pytest.raises(ConfigError, match="two rollouts have the id 'rollout-0'"):
        run(good, asked=[*requests(1), *requests(1)])
    assert run(good, asked=[]) == []


def test_the_engine_is_idle_for_a_share_of_the_time() -> None:
    sampler = MeteredSampler(policy(), NAMES)
    sampler.meter.read()
    run(memory_agent(), sampler=sampler, asked=requests(8))
    reading = sampler.meter.read()
    assert 0 < reading.idle_share < 1
    assert 0 < reading.in_flight_mean <= reading.in_flight_max <= 8
    assert reading.calls > 8


async def test_any_model_that_gives_ids_can_be_rolled() -> None:
    class Served:
        """A model that is no `RolloutModel`, as one behind a server."""

        def __init__(self) -> None:
            self.inner = RolloutModel(Echoes(), NAMES)
            self.name = "vllm:policy"

        async def complete(self, request: ChatRequest) -> Any:
            return await self.inner.complete(request)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    served: Any = Served()
    (one,) = await roll(requests(1), model=served, agent=three_turns, verifier=Paid())
    assert one.status is Status.SCORED
    assert len(one.rows) == 1


def test_sampling_is_the_training_settings_whatever_agents_ask_for() -> None:
    sampler = Echoes()

    async def cold(model: ChatModel, sample: Sample) -> str:
        message = (Message(role="user", content=sample.question),)
        asked = ChatRequest(
            messages=message, max_tokens=5, sampling=Sampling(temperature=0.1, top_p=0.2)
        )
        return (await model.complete(asked)).text

    run(cold, sampler=sampler)
    assert sampler.samplings == [PLAIN] * 4
