from dataclasses import replace

from memagent_train.smoke.findings import Findings, Reward

LOW, HIGH = Reward(0.3, 0.25, 0.36), Reward(0.9, 0.86, 0.93)
GOOD = Findings(before=LOW, after=HIGH, control=LOW, longer_before=LOW, longer_after=HIGH)


def failed(findings: Findings) -> list[bool]:
    return [not holds for holds in findings.claims.values()]


def test_intervals_may_not_touch() -> None:
    assert HIGH.above(LOW)
    assert not LOW.above(HIGH)
    assert not Reward(0.4, 0.36, 0.44).above(LOW)
    assert Reward(0.4, 0.361, 0.44).above(LOW)


def test_all_claims_hold_where_only_rewards_helped() -> None:
    assert failed(GOOD) == [False, False, False]


def test_a_training_that_did_not_help_fails() -> None:
    assert failed(replace(GOOD, after=LOW)) == [True, False, True]


def test_a_control_that_helped_fails() -> None:
    assert failed(replace(GOOD, control=HIGH)) == [False, True, True]
    assert failed(replace(GOOD, control=Reward(0.6, 0.55, 0.65))) == [False, True, False]


def test_a_control_that_got_worse_is_no_failure() -> None:
    assert failed(replace(GOOD, control=Reward(0.0, 0.0, 0.02))) == [False, False, False]


def test_the_summary_is_one_line_with_all_intervals() -> None:
    assert GOOD.summary == (
        "held-out reward (95% interval): before GRPO 0.300 [0.250, 0.360], after GRPO 0.900 [0.860, 0.930], "
        "with random rewards 0.300 [0.250, 0.360]"
    )
