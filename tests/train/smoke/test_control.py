import asyncio
from collections.abc import Sequence

from memagent_train.rewards.open import open_rewards
from memagent_train.rewards.settings import RewardSettings
from memagent_train.rollouts import Rollout, Status
from memagent_train.smoke.stages import RANDOM
from memagent_train.smoke.task import Relay

SAMPLES = 400


def test_right_and_wrong_answers_get_the_same_on_average() -> None:
    rewards = open_rewards(RewardSettings(use=RANDOM[0].removeprefix("reward.use=")))
    samples = [Relay().sample(index) for index in range(SAMPLES)]

    async def given(answers: Sequence[str | None]) -> list[float | None]:
        rollouts = [
            Rollout("g", "r", sample, (), answer, Status.UNSCORED)
            for sample, answer in zip(samples, answers, strict=True)
        ]
        return [(await rewards.verify(rollout)).reward for rollout in rollouts]

    right = [sample.outputs[0] for sample in samples]
    for answers in (right, ["none"] * SAMPLES, [None] * SAMPLES):
        values = asyncio.run(given(answers))
        assert {*values} == {0.0, 1.0}
        share = sum(value == 1.0 for value in values) / SAMPLES
        assert 0.4 < share < 0.6  # four standard errors to either side
        assert asyncio.run(given(answers)) == values
    asyncio.run(rewards.aclose())
