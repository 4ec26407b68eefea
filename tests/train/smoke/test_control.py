import asyncio

from memagent_train.rewards.open import open_rewards
from memagent_train.rewards.settings import RewardSettings
from memagent_train.rollouts import Rollout, Status
from memagent_train.smoke.stages import RANDOM
from memagent_train.smoke.task import Relay

TRIES = 400


def test_right_and_wrong_answers_get_the_same_on_average() -> None:
    sample = Relay().sample(0)
    rewards = open_rewards(RewardSettings(use=RANDOM[0].removeprefix("reward.use=")))

    async def given(answer: str) -> list[float | None]:
        rollout = Rollout("g", "r", sample, (), answer, Status.UNSCORED)
        return [(await rewards.verify(rollout)).reward for _ in range(TRIES)]

    for answer in (sample.outputs[0], "none"):
        values = [value for value in asyncio.run(given(answer)) if value is not None]
        assert len(values) == TRIES
        assert set(values) == {0.0, 1.0}
        assert 0.35 < sum(values) / TRIES < 0.65  # six standard errors to either side
    asyncio.run(rewards.aclose())
