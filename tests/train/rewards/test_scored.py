"""Scores as rewards: by name, of each task, and Eq. 7 with its cap."""

import pytest
from tests.train.rewards.made import sample

from memagent.errors import ConfigError
from memagent.tasks import SCORERS, Sample
from memagent_train.rewards.scored import VALUES_WORDS, ScoreReward, check_scorer, score_answer


@pytest.mark.parametrize("name", SCORERS)
async def test_every_score_of_the_benchmarks_is_a_reward(name: str) -> None:
    reward = ScoreReward(name, None)
    for answer in ("12", "There are 12.", "13", "", "1,2"):
        verdict = await reward.judge(answer, sample("12"))
        assert verdict.reward == SCORERS[name](answer, ("12",))


async def test_equation_6() -> None:
    reward = ScoreReward("equivalent", None)
    said = sample("1,000", "a thousand")
    found = [
        (await reward.judge(a, said)).reward
        for a in ("1000.0", "A thousand.", "100", "1000 or 2000")
    ]
    assert found == [1.0, 1.0, 0.0, 0.0]


async def test_equation_7_is_recall_with_precision_beside_it() -> None:
    verdict = await ScoreReward("values", None).judge(
        "red, green and blue; pink", sample("Red", "blue", "grey")
    )
    assert verdict.reward == pytest.approx(2 / 3)
    assert verdict.scores == {
        "recall": verdict.reward,
        "precision": 2 / 4,
        "answer_words": 5.0,
        "over_cap": 0.0,
    }


@pytest.mark.parametrize(("cap", "most"), [(None, VALUES_WORDS), (5, 5)])
async def test_listing_everything_does_not_pay(cap: int | None, most: int) -> None:
    reward = ScoreReward("values", cap)
    dump = ["7", *(str(number) for number in range(100, 99 + most))]
    at_cap = await reward.judge(", ".join(dump), sample("7"))
    over = await reward.judge(", ".join([*dump, "8"]), sample("7"))
    assert (at_cap.reward, at_cap.scores["over_cap"]) == (1.0, 0.0)
    assert (over.reward, over.scores["recall"], over.scores["over_cap"]) == (0.0, 1.0, 1.0)
    assert over.scores["precision"] == pytest.approx(1 / (most + 1))


def test_other_scores_have_a_cap_where_one_is_set() -> None:
    long = "12 " * 100
    assert score_answer("sub_exact_match", long, sample()).reward == 1.0
    assert score_answer("sub_exact_match", long, sample(), cap=99).reward == 0.0
    assert score_answer("sub_exact_match", long, sample(), cap=100).reward == 1.0


async def test_no_answer_gets_nothing() -> None:
    for name in (*SCORERS, "values"):
        assert (await ScoreReward(name, None).judge(None, sample())).reward == 0.0


async def test_each_task_has_its_own_score() -> None:
    reward = ScoreReward("task", None)
    answer = "from 5 to 12"
    assert (await reward.judge(answer, sample("12", scorer="number_match"))).reward == 1.0
    assert (await reward.judge(answer, sample("12", scorer="exact_match"))).reward == 0.0
    assert "recall" in (await reward.judge(answer, sample("12", scorer="values"))).scores


async def test_a_sample_that_does_not_say_its_score_is_refused() -> None:
    plain = Sample.model_validate(
        {k: v for k, v in sample() if k in Sample.model_fields}, strict=True
    )
    for given in (plain, sample(scorer="")):
        with pytest.raises(ConfigError, match="name one in the reward"):
            await ScoreReward("task", None).judge("12", given)


def test_scores_that_there_are_not_are_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'exact_match'"):
        check_scorer("exactmatch")
    with pytest.raises(ConfigError, match="known: values, string_match_all"):
        ScoreReward("zzz", None)
    check_scorer("values")
    with pytest.raises(ConfigError, match="no score 'mine'"):
        score_answer("mine", "12", sample())
