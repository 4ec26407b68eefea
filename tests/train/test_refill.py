from collections.abc import Sequence

from tests.train.handmade import rollout

from memagent_train.advantages import Group, compare
from memagent_train.algorithm import AlgorithmSettings
from memagent_train.refill import roll_informative
from memagent_train.rollouts import Row

ROW = Row((2,), (3,), (1,), (-1.0,))


class Roller:
    """Rolls out groups with a signal for even indices, without one for odd ones."""

    def __init__(self, *, scored: bool = True) -> None:
        self.asked: list[list[int]] = []
        self.scored = scored

    def __call__(self, indices: Sequence[int]) -> list[Group]:
        self.asked.append(list(indices))
        return [self._group(index) for index in indices]

    def _group(self, index: int) -> Group:
        rewards = (1.0, index % 2) if self.scored else (None, None)
        rollouts = [rollout(str(index), n, (ROW,), reward) for n, reward in enumerate(rewards)]
        return compare(rollouts, AlgorithmSettings())


def names(groups: Sequence[Group]) -> list[int]:
    return [int(group.rollouts[0].group_id) for group in groups]


def test_as_many_others_are_rolled_out_as_were_dropped() -> None:
    roller = Roller()
    rolled = roll_informative([2, 3, 5], [7, 8, 9, 10, 12], roller, max_refills=5)
    assert roller.asked == [[2, 3, 5], [7, 8], [9], [10]]
    assert names(rolled.kept) == [2, 8, 10]
    assert names(rolled.dropped) == [3, 5, 7, 9]
    assert {group.advantages for group in rolled.dropped} == {(None, None)}
    assert {group.advantages for group in rolled.kept} == {(0.5, -0.5)}


def test_but_not_more_often_than_allowed() -> None:
    roller = Roller()
    rolled = roll_informative([1, 3], [5, 7, 8], roller, max_refills=1)
    assert roller.asked == [[1, 3], [5, 7]]
    assert rolled.kept == ()
    never = Roller()
    roll_informative([1, 3], [5, 7, 8], never, max_refills=0)
    assert never.asked == [[1, 3]]


def test_and_not_beyond_the_data() -> None:
    roller = Roller()
    rolled = roll_informative([1, 3], [5], roller, max_refills=9)
    assert roller.asked == [[1, 3], [5]]
    assert len(rolled.dropped) == 3


def test_and_not_where_nothing_can_be_scored() -> None:
    roller = Roller(scored=False)
    roll_informative([1, 3], [5, 7, 8], roller, max_refills=9)
    assert roller.asked == [[1, 3]]
