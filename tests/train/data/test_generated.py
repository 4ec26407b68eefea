"""Tasks that make their samples, as sources."""

import sys
import textwrap
from pathlib import Path

import pytest
from tests.train.data.files import COUNTER, data, settings

from memagent.errors import ConfigError
from memagent.tasks import SCORERS
from memagent_train.data.generated import open_own, open_ruler, open_tracking
from memagent_train.data.settings import RulerSettings, TaskSettings, TrackingSettings

OWN = "tests.train.data.files"


def own(use: str, **more: object) -> TaskSettings:
    return TaskSettings.model_validate({"kind": "task", "use": f"{OWN}:{use}", **more})


def test_rulers_tasks_come_by_turns_at_their_lengths() -> None:
    settings = RulerSettings(
        kind="ruler", tasks=("niah_single_1", "vt", "fwe"), lengths=(1024, 2048), count=30
    )
    source = open_ruler(settings, COUNTER, 5)
    samples = [source.sample(item, 0) for item in range(len(source))]
    assert [sample.task for sample in samples[:4]] == [
        "niah_single_1",
        "vt",
        "fwe",
        "niah_single_1",
    ]
    assert {sample.length for sample in samples} == {1024, 2048}
    assert all(sample.tokens <= sample.length for sample in samples)
    assert {sample.scorer for sample in samples} <= set(SCORERS)
    assert len({sample.context for sample in samples}) == 30


def test_all_of_ruler_but_its_questions() -> None:
    source = open_ruler(RulerSettings(kind="ruler", lengths=(4096,), count=22), COUNTER, 0)
    assert len({source.sample(item, 0).task for item in range(22)}) == 11
    with pytest.raises(ConfigError, match="kind 'squad' or 'hotpotqa'"):
        open_ruler(RulerSettings(kind="ruler", tasks=("vt", "qa_1")), COUNTER, 0)


def test_each_round_has_new_samples_and_each_seed_others() -> None:
    settings = TrackingSettings(kind="tracking", tasks=("chain",), lengths=(2048,), count=3)
    source = open_tracking(settings, COUNTER, 5)
    first = [source.sample(item, round_).context for round_ in range(3) for item in range(3)]
    again = open_tracking(settings, COUNTER, 5)
    assert [again.sample(i, r).context for r in range(3) for i in range(3)] == first
    assert len(set(first)) == 9
    assert open_tracking(settings, COUNTER, 6).sample(0, 0).context not in first


def test_positions_are_drawn_for_each_sample() -> None:
    source = open_ruler(RulerSettings(kind="ruler", tasks=("cwe",), lengths=(4096,)), COUNTER, 0)
    words = [source.sample(item, 0).context.split() for item in range(2)]
    places = [[len(w) for w in found[:200]] for found in words]
    assert places[0] != places[1]


def test_a_length_can_be_asked_for() -> None:
    source = open_ruler(RulerSettings(kind="ruler", tasks=("vt",), lengths=(1024,)), COUNTER, 0)
    assert source.sample(0, 0, 4096).length == 4096


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"kind": "ruler", "tasks": ["vt"], "lengths": 300}, "too few for vt.*at least 768"),
        ({"kind": "tracking", "tasks": ["legder"]}, "did you mean 'ledger'"),
        ({"kind": "ruler", "essays": ["/no/such/file"]}, "no/such/file"),
        ({"kind": "task", "use": f"{OWN}:None_"}, "no function 'None_'"),
        ({"kind": "task", "use": f"{OWN}:NoTask"}, "lacks scorer, facts, sample"),
        ({"kind": "task", "use": f"{OWN}:Sums", "arguments": {"begin": 3}}, "begin"),
        ({"kind": "task", "use": f"{OWN}:Broken"}, "failed to make sample 0: ZeroDivisionError"),
        ({"kind": "task", "use": f"{OWN}:Odd"}, "returned 'a text'"),
    ],
)
def test_what_cannot_be_made_is_told_at_once(source: dict[str, object], said: str) -> None:
    with pytest.raises(Exception, match=said) as found:
        data(source)
    assert type(found.value).__module__.startswith("memagent")


def test_a_task_of_ones_own() -> None:
    source = open_own(own("Sums", arguments={"start": 100}, lengths="1k,2k", count=4), 0)
    samples = [source.sample(item, round_) for round_ in (0, 1) for item in range(len(source))]
    assert [sample.index for sample in samples] == list(range(8))
    assert samples[3].outputs == ("121",)
    assert {sample.length for sample in samples} == {1024, 2048}
    assert {sample.scorer for sample in samples} == {"number_match"}
    assert source.sample(0, 0, 9000).length == 9000


def test_a_task_with_an_end_begins_again() -> None:
    source = open_own(own("Ending", count=100), 0)
    assert len(source) == 5
    assert [source.sample(item, 1).index for item in range(5)] == list(range(5))


def test_a_sample_that_its_length_has_no_room_for_has_another_in_its_place() -> None:
    source = open_own(own("Picky", count=9), 0)
    found = [source.sample(item, 0).index for item in range(9)]
    assert [index for index in found if index < 9] == [0, 1, 3, 4, 6, 7]
    assert len(set(found)) == 9
    assert found == [source.sample(item, 0).index for item in range(9)]


def test_facts_notice_what_changes() -> None:
    def of(**more: object) -> str:
        return str(data({"kind": "task", "use": f"{OWN}:Sums", **more}).facts)

    facts = {of(), of(arguments={"start": 1}), of(count=7), of(lengths=800)}
    assert len(facts) == 4
    assert of() in facts


def test_the_examples_of_the_docstring_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    doc = TaskSettings.__doc__ or ""
    code = doc.partition("```python")[2].partition("```")[0]
    (tmp_path / "mytask.py").write_text(textwrap.dedent(code))
    monkeypatch.syspath_prepend(str(tmp_path))
    found = data({"kind": "task", "use": "mytask:Sums", "count": 4})
    sample = found.sample(0)
    assert f"Box 150 holds {sample.outputs[0]} nails." in sample.context
    assert settings({"kind": "task", "use": "mytask:Sums"}).source[0].kind == "task"
    del sys.modules["mytask"]  # pages have other modules of that name
