from collections import Counter

from memagent_train.order import DataOrder, StepSampler


def test_every_pass_has_every_index_once() -> None:
    order = DataOrder(size=10, per_step=4, seed=7)
    stream = [index for step in range(5) for index in order.batch(step)]
    assert sorted(stream[:10]) == sorted(stream[10:]) == list(range(10))
    assert stream[:10] != stream[10:]


def test_the_order_is_a_function_of_seed_and_step() -> None:
    assert DataOrder(50, 4, 7).batch(11) == DataOrder(50, 4, 7).batch(11)
    assert DataOrder(50, 4, 7).batch(11) != DataOrder(50, 4, 8).batch(11)
    assert DataOrder(50, 4, 7).draw_further(3) == DataOrder(50, 4, 7).draw_further(3)
    assert DataOrder(50, 4, 7).draw_further(3) != DataOrder(50, 4, 7).draw_further(4)


def test_data_smaller_than_a_batch_comes_several_times() -> None:
    assert Counter(DataOrder(size=2, per_step=5, seed=0).batch(0)).keys() == {0, 1}
    assert DataOrder(size=1, per_step=3, seed=0).batch(9) == [0, 0, 0]


def test_further_indices_are_first_those_of_no_group_of_the_step() -> None:
    order = DataOrder(size=10, per_step=4, seed=7)
    further = order.draw_further(1)
    assert sorted(further) == list(range(10))
    assert set(further[-4:]) == set(order.batch(1))


def test_a_loader_gets_a_steps_indices_for_each_of_its_micro_batches() -> None:
    order = DataOrder(size=10, per_step=2, seed=7)
    sampler = StepSampler(order, steps=2, repeats=3)
    assert list(sampler) == order.batch(0) * 3 + order.batch(1) * 3
    assert len(sampler) == 12
