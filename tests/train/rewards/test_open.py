"""The verifier: each rollout gets its reward, or the reason why there is none."""

import asyncio
import multiprocessing
from collections.abc import Mapping

import pytest
from tests.train.rewards.made import rollout, row, sample

from memagent.errors import ConfigError
from memagent.models.scripted import ScriptedModel
from memagent.tasks import Evidence, Sample
from memagent_train.rewards.open import Rewards, answer_in, open_rewards
from memagent_train.rewards.settings import RewardSettings
from memagent_train.rewards.verdict import Verdict
from memagent_train.rollouts import Status

MINE = "tests.train.rewards.mine"


class Fixed:
    """A reward that gives, or raises, what it is told."""

    def __init__(self, given: Verdict | BaseException) -> None:
        self.given = given

    async def judge(self, answer: str | None, sample: Sample) -> Verdict:
        if isinstance(self.given, BaseException):
            raise self.given
        return self.given

    async def aclose(self) -> None:
        pass


async def test_a_rollout_gets_its_reward() -> None:
    rewards = open_rewards(RewardSettings(use="equivalent"))
    before = rollout("12.0", scores={"of the agent": 3.0})
    after = await rewards.verify(before)
    assert (after.status, after.reward, after.error) == (Status.SCORED, 1.0, "")
    assert after.scores == {"of the agent": 3.0, "answer_words": 1.0}
    assert before.status is Status.UNSCORED
    await rewards.aclose()


async def test_an_agents_own_reward_replaces_the_tasks_and_no_other() -> None:
    played = rollout("a wrong answer", reward=0.5)
    task, other = RewardSettings(), RewardSettings(use="equivalent", beside=("exact_match",))
    after = await open_rewards(task).verify(played)
    assert (after.status, after.reward) == (Status.SCORED, 0.5)
    after = await open_rewards(other).verify(played)
    assert (after.status, after.reward) == (Status.SCORED, 0.0)


async def test_an_agents_own_reward_that_is_not_finite_is_none() -> None:
    after = await open_rewards(RewardSettings()).verify(rollout(reward=float("nan")))
    assert (after.status, after.reward) == (Status.UNSCORED, None)
    assert after.error == "the reward is nan, which is not finite"


async def test_no_answer_is_scored() -> None:
    rewards = open_rewards(RewardSettings(use="equivalent"))
    assert (await rewards.verify(rollout(None))).reward == 0.0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Verdict(None, {"a": 1.0}, "no reason"), "no reason"),
        (ConfigError("blank references"), "blank references"),
        (ZeroDivisionError("by zero"), "the reward failed: ZeroDivisionError: by zero"),
        (asyncio.CancelledError("of its own"), "the reward failed: CancelledError: of its own"),
    ],
)
async def test_nothing_is_raised(given: Verdict | BaseException, said: str) -> None:
    after = await Rewards(Fixed(given), RewardSettings()).verify(rollout())
    assert (after.status, after.reward, after.step_rewards) == (Status.UNSCORED, None, None)
    assert after.error.startswith(said)


async def test_half_a_character_in_what_is_said_is_replaced() -> None:
    """It can't be logged."""
    given = Verdict(None, {"b\udc00": 1.0}, "no \ud83d")
    after = await Rewards(Fixed(given), RewardSettings()).verify(rollout(scores={"a\udc00": 2.0}))
    assert after.scores == {"a\ufffd": 2.0, "b\ufffd": 1.0}
    assert after.error == "no \ufffd"


async def test_cancelling_goes_through() -> None:
    settings = RewardSettings(use=f"{MINE}:awaited", time_limit=60)
    rewards = await asyncio.to_thread(open_rewards, settings)
    verifying = asyncio.create_task(rewards.verify(rollout("hang")))
    await asyncio.sleep(0.05)
    verifying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await verifying


async def test_scores_beside_the_reward_are_logged_and_cost_nothing() -> None:
    settings = RewardSettings(use="sub_exact_match", beside=("exact_match", "f1", "number_match"))
    after = await open_rewards(settings).verify(
        rollout("It has 12", sample=sample("12 wheels", "12"))
    )
    assert after.reward == 1.0
    assert after.scores["exact_match"] == 0.0
    assert after.scores["f1"] == pytest.approx(1 / 2)
    odd = await open_rewards(settings).verify(rollout("red", sample=sample("red")))
    assert odd.reward == 1.0
    assert "number_match" not in odd.scores


async def test_gates_are_rewarded_where_asked_for() -> None:
    made = rollout(
        sample=sample(evidence=(Evidence(start=0, end=5),)),
        rows=(row(kind="update", span=(0, 5), kept=True), row(kind="answer")),
    )
    for wanted, found in ((True, (0.0, None)), (False, None)):
        rewards = open_rewards(RewardSettings(use="equivalent", gate_reward=wanted))
        assert (await rewards.verify(made)).step_rewards == found


@pytest.mark.parametrize(
    ("reply", "form", "answer"),
    [
        (None, "boxed", None),
        ("", "given", ""),
        ("", "boxed", None),
        (r"So \boxed{12}.", "given", r"So \boxed{12}."),
        (r"So \boxed{12}.", "boxed", "12"),
        ("So 12.", "boxed", None),
        ("Therefore, the answer is (12).", "sentence", "12"),
        ("12", "sentence", None),
    ],
)
def test_answers_are_taken_out_of_their_form(
    reply: str | None, form: str, answer: str | None
) -> None:
    assert answer_in(reply, form) == answer  # type: ignore[arg-type]


async def test_a_reply_without_its_form_is_no_answer() -> None:
    rewards = open_rewards(RewardSettings(use="sub_exact_match", answer_form="boxed"))
    assert (await rewards.verify(rollout("It is 12."))).reward == 0.0
    assert (await rewards.verify(rollout(r"It is \boxed{12}."))).reward == 1.0


async def test_a_function_of_ones_own() -> None:
    settings = RewardSettings(use=f"{MINE}:by_word", workers=1)
    rewards = await asyncio.to_thread(open_rewards, settings)
    mapping, none = await asyncio.gather(
        rewards.verify(rollout("mapping")), rewards.verify(rollout("none"))
    )
    assert (mapping.reward, mapping.scores) == (0.5, {"precision": 0.25})
    assert (none.status, none.error) == (Status.UNSCORED, "the reward function returned None")
    unknown = await rewards.verify(rollout("x", sample=sample(columns={"cannot": lambda: 0})))
    assert unknown.status is Status.UNSCORED
    assert "pickle" in unknown.error
    await rewards.aclose()
    await rewards.aclose()
    assert multiprocessing.active_children() == []
    assert "closed" in (await rewards.verify(rollout("mapping"))).error


async def test_an_async_function_of_ones_own() -> None:
    settings = RewardSettings(use=f"{MINE}:awaited", time_limit=0.1)
    rewards = await asyncio.to_thread(open_rewards, settings)
    assert (await rewards.verify(rollout("x"))).reward == 0.5
    assert "longer" in (await rewards.verify(rollout("hang"))).error


async def test_a_judge() -> None:
    model = ScriptedModel(["yes"], window=None)
    rewards = await asyncio.to_thread(open_rewards, RewardSettings(use="judge"), judge=model)
    assert (await rewards.verify(rollout())).reward == 1.0


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"use": "exactmatch"}, "known: task, values, judge"),
        ({"use": f"{MINE}:nothing"}, "nothing"),
        ({"use": "judge"}, "needs a model"),
        ({"use": "task", "beside": ("bleu",)}, "no score 'bleu'"),
    ],
)
def test_rewards_that_there_are_not_are_refused(fields: Mapping[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        open_rewards(RewardSettings.model_validate(fields))
