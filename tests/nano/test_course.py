from dataclasses import replace

import pytest

from memagent.errors import ConfigError
from memagent_nano.course import LONG, TOSS, arms
from memagent_nano.measure import NEW, TRAINED, cells
from memagent_nano.sizes import SIZES
from memagent_nano.stages import DOCUMENTS, ROLLOUTS
from memagent_nano.task import FAMILIES


@pytest.mark.parametrize("name", SIZES)
def test_each_stage_stands_behind_the_one_that_it_begins_with(name: str) -> None:
    seen = {""}
    for stage in arms(name).values():
        assert stage.after in seen
        assert (stage.steps > 0) == (stage.command != "new")
        seen.add(stage.name)


def test_arms_differ_in_one_thing_from_what_they_are_compared_with() -> None:
    stages = arms("pico")
    for start in ("shown", "unshown"):
        rewarded, tossed = stages[f"{start}-grpo"], stages[f"{start}-toss"]
        assert (rewarded.after, rewarded.steps) == (tossed.after, tossed.steps)
        assert {*tossed.settings} - {*rewarded.settings} == {*TOSS}
        more, right = stages[f"{start}-more"], stages[f"{start}-right"]
        assert more.settings == right.settings
        rounds = [stages[f"{start}-right-1"], stages[f"{start}-right-2"], right]
        assert [one.after for one in rounds] == [start, *(one.name for one in rounds[:-1])]
        assert {one.lessons for one in rounds} == {ROLLOUTS}
        assert [one.first for one in rounds] == [0, DOCUMENTS, 2 * DOCUMENTS]
    long, more = stages[LONG], stages["shown-more"]
    assert replace(long, name=more.name, lessons=more.lessons) == more
    shown, unshown = stages["shown"], stages["unshown"]
    assert (shown.after, shown.steps, shown.settings) == (
        unshown.after, unshown.steps, unshown.settings,
    )  # fmt: skip


def test_only_a_size_whose_documents_fit_has_a_policy_without_memory() -> None:
    assert "direct" in arms("pico")
    assert "direct" not in arms("nano")


def test_an_unknown_size_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'mega'.*pico, nano"):
        arms("mega")


@pytest.mark.parametrize("name", SIZES)
def test_cells_have_files_of_their_own(name: str) -> None:
    names = [cell.name for cell in cells(SIZES[name])]
    assert len({*names}) == len(names)
    for cell in cells(SIZES[name]):
        every = cell.length // cell.notes if cell.notes else SIZES[name].every
        assert cell.length // every == (cell.notes or cell.length // SIZES[name].every)
        assert (f"every = {every}" in cell.source(SIZES[name])) == bool(cell.notes)
    assert set(TRAINED) == set(FAMILIES)
    assert not set(TRAINED) & set(NEW)
