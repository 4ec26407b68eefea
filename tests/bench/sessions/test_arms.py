"""Which ways to play a command line names."""

from memagent_bench.sessions.arms import ABOUT, Arm, arms


def test_each_system_has_the_settings_that_mean_something_to_it() -> None:
    made = arms(list(ABOUT), working_contexts=(1024, 2048), summaries=(7, 9), kept=3)
    assert [arm.label for arm in made] == [
        "full",
        "drop-oldest W=1024",
        "drop-oldest W=2048",
        "mask W=1024 K=3",
        "mask W=2048 K=3",
        "summary W=1024 S=7",
        "summary W=1024 S=9",
        "summary W=2048 S=7",
        "summary W=2048 S=9",
    ]
    assert {arm.kept for arm in made if arm.system == "mask"} == {3}
    assert {arm.kept for arm in made if arm.system != "mask"} == {None}


def test_a_loop_at_a_server_has_the_servers_window() -> None:
    made = arms(["langchain", "buffer"], working_contexts=(1024, 2048), summaries=(7, 9), kept=3)
    assert [arm.label for arm in made] == [
        *("buffer W=1024", "buffer W=2048", "langchain W=1024", "langchain W=2048")
    ]


def test_equal_arms_are_one() -> None:
    (one,) = arms(["mask"], working_contexts=(1024,), summaries=(7,), kept=3)
    same = Arm(system="mask", working_context=1024, kept=3)
    assert (one, hash(one)) == (same, hash(same))
