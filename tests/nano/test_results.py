import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memagent.errors import ConfigError
from memagent_nano.command import app
from memagent_nano.course import arms as stages_of
from memagent_nano.kept import KINDS
from memagent_nano.measure import answers, cells
from memagent_nano.results import CellResult, Curve, Results, gather, merge, read, write
from memagent_nano.sizes import PICO
from memagent_nano.stages import GATE, KEPT, MEASURED, POLICY, TRUNK_END, Place
from memagent_nano.tables import ABOUT, arms, differences, make_tables
from memagent_train.runs import metrics

OWN = PICO.lengths[-1]
ONCE = f"once-{OWN}"


def lay(place: Place, stage: str, rewards: Sequence[float | None], means: list[float]) -> None:
    run = place.run(stage)
    run.mkdir(parents=True)
    for step, mean in enumerate(means):
        metrics.append(run / "metrics.jsonl", step, {"evaluation": {"448": {"mean": mean}}})
        metrics.append(run / "metrics.jsonl", step + 1, {"loss": 1.0, "seconds": 1800.0})
    for part in (POLICY, MEASURED):
        (place.of(stage) / part).mkdir()
    (place.policy(stage) / "config.json").write_text("{}")
    (place.of(stage) / GATE).write_text('{"copy": {"share": 1.0}}')
    (place.of(stage) / KEPT).write_text(
        json.dumps({kind: {"share": 0.5, "n": 9} for kind in KINDS})
    )
    text = "".join(json.dumps({"reward": reward}) + "\n" for reward in rewards)
    for cell in cells(PICO):
        answers(place, stage, cell).write_text(text)


def test_what_is_there_is_gathered_and_comes_back_from_a_file(tmp_path: Path) -> None:
    places = [Place(tmp_path, PICO, seed) for seed in (0, 1, 2)]
    lay(places[0], "shown-grpo", [1.0, 0.0, None], [0.25, 0.5])
    lay(places[1], "shown", [1.0, 1.0], [])
    lay(places[2], "shown", [1.0, 1.0], [])
    answers(places[2], "shown", next(cells(PICO))).unlink()  # measuring goes on
    lay(places[2], "unshown-grpo", [1.0, 1.0], [0.5])
    (places[2].policy("unshown-grpo") / "config.json").unlink()  # training does
    results = gather(places)
    once = [one for one in results.measured if one.cell == ONCE]
    assert once == [
        CellResult(0, "shown-grpo", ONCE, (1.0, 0.0, 0.0)),
        CellResult(1, "shown", ONCE, (1.0, 1.0)),
    ]
    assert [one.mean for one in once] == [1 / 3, 1.0]
    assert len(results.measured) == 2 * len([*cells(PICO)])
    assert results.curves == (Curve(0, "shown-grpo", (0, 1), (0.25, 0.5)),)
    assert results.gates["seed-1/shown"] == {"copy": {"share": 1.0}}
    assert results.hours == {"seed-0/shown-grpo": 1.0}
    file = tmp_path / "kept" / "results.json"
    write(results, file)
    assert read(file) == results
    assert sum('"cell"' in line for line in file.read_text().splitlines()) == len(results.measured)


def test_the_trunk_is_one_policy_whatever_the_seeds(tmp_path: Path) -> None:
    places = [Place(tmp_path, PICO, seed) for seed in (3, 4)]
    lay(places[0], TRUNK_END, [1.0, 0.0], [])
    for place, rewards in zip(places, ([1.0, 1.0], [0.0, 1.0]), strict=True):
        lay(place, "unshown-grpo", rewards, [])
    found = gather(places)
    assert {one.seed for one in found.measured if one.stage == TRUNK_END} == {3}
    assert "| (trunk) `settle-2` | 1 | 0.50 [" in arms(found, PICO)
    row = "| `unshown-grpo` less `settle-2` | 3, 4 | +0.25 (+0.50, +0.00) |"
    assert row in differences(found, PICO)


def test_trunks_of_several_folders_are_each_compared_with_their_own_arms(tmp_path: Path) -> None:
    parts: list[Results] = []
    for seed, rewards in ((1, [1.0, 0.0]), (2, [0.0, 0.0])):
        place = Place(tmp_path / str(seed), PICO, seed)
        lay(place, TRUNK_END, rewards, [])
        lay(place, "unshown-grpo", [1.0, 1.0], [])
        parts.append(gather([place]))
    found = merge(parts)
    assert "| (trunk) `settle-2` | 2 | 0.25 (0.00-0.50)" in arms(found, PICO)
    row = "| `unshown-grpo` less `settle-2` | 1, 2 | +0.75 (+0.50, +1.00) |"
    assert row in differences(found, PICO)
    assert {name.split("/")[0] for name in found.gates} == {"trunk1", "trunk2", "seed-1", "seed-2"}


def test_few_notes_have_a_table_where_they_were_measured() -> None:
    scores = {"8notes": 1.0, "32notes": 0.5}
    measured = tuple(
        CellResult(0, "shown", cell.name, (scores.get(cell.name.rpartition("-")[2], 0.0),))
        for cell in cells(PICO)
    )
    table = make_tables(Results("pico", measured, (), {}, {}, {}), PICO)["competing notes"]
    head, _, row = table.splitlines()
    assert head.endswith("16 times that, 8 notes | 16 times that, 32 notes | 128 notes |")
    means = [cell.split(" [")[0] for cell in row.strip("| ").split(" | ")[2:]]
    assert means == ["0.00", "1.00", "0.50", "0.00"]
    known = tuple(one for one in measured if not one.cell.endswith("notes"))
    assert "competing notes" not in make_tables(Results("pico", known, (), {}, {}, {}), PICO)


def test_every_stage_that_is_compared_is_in_the_tables() -> None:
    without = {
        "new",
        "echo",
        "copy",
        "settle-1",
        "shown-right-1",
        "shown-right-2",
        "unshown-right-1",
        "unshown-right-2",
    }
    for size in ("pico", "nano"):
        assert {*stages_of(size)} - without <= ABOUT.keys()


def test_of_nothing_there_are_empty_results(tmp_path: Path) -> None:
    results = gather([Place(tmp_path, PICO, 0)])
    write(results, tmp_path / "results.json")
    assert read(tmp_path / "results.json") == results
    assert results.measured == ()


def test_results_of_several_folders_are_put_together() -> None:
    old = CellResult(0, "shown", ONCE, (0.0,))
    new, other = CellResult(0, "shown", ONCE, (1.0,)), CellResult(1, "shown", ONCE, (0.5,))
    gone = CellResult(0, "shown", "of another policy", (0.0,))
    curve = Curve(0, "shown-grpo", (0,), (0.5,))
    here = Results(
        "pico", (other, old, gone), (curve,), {"seed-0/shown": {"copy": {"share": 0.5}}}, {}, {}
    )
    there = Results(
        "pico", (new,), (), {"seed-0/shown": {"copy": {"share": 1.0}}}, {}, {"trunk/copy": 1.0}
    )
    whole = merge([here, there])
    assert whole.measured == (new, other)
    assert whole.curves == (curve,)
    assert whole.gates == {"seed-0/shown": {"copy": {"share": 1.0}}}
    assert whole.hours == {"trunk/copy": 1.0}
    with pytest.raises(ConfigError, match="results of nano and of pico are not put together"):
        merge([here, Results("nano", (), (), {}, {}, {})])


def test_a_report_can_be_of_what_was_kept(tmp_path: Path) -> None:
    found = tuple(
        CellResult(seed, "shown", cell.name, (1.0, 0.0)) for cell in cells(PICO) for seed in (0, 1)
    )
    kept = tmp_path / "kept.json"
    write(Results("pico", found, (), {}, {}, {}), kept)
    asked = ["report", "pico", "--out", str(tmp_path / "out"), "--known", str(kept)]
    told = CliRunner().invoke(app, asked)
    assert told.exit_code == 0, told.output
    assert "| (a) `shown` | 2 | 0.50 (0.50-0.50)" in told.output
    assert {*read(tmp_path / "out" / "results.json").measured} == {*found}
    kept.write_text("[]")
    told = CliRunner().invoke(app, asked)
    assert told.exit_code == 2
    assert "does not hold results" in (told.output + told.stderr).replace("\n", " ")
    kept.unlink()
    told = CliRunner().invoke(app, asked)
    assert told.exit_code == 2
    assert "No such file" in (told.output + told.stderr).replace("\n", " ")


def test_a_report_has_tables_and_curves(tmp_path: Path) -> None:
    for stage, of_seeds in (
        ("shown-grpo", ([1.0, 0.0], [1.0, 1.0])),
        ("shown", ([0.0, 0.0], [1.0, 0.0])),
        ("unshown-grpo", ([1.0, 0.0],)),
    ):
        for seed, rewards in enumerate(of_seeds):
            place = Place(tmp_path, PICO, seed)
            lay(place, stage, rewards, [0.25, 0.5])
    told = CliRunner().invoke(app, ["report", "pico", "--out", str(tmp_path), "--seeds", "0,1"])
    assert told.exit_code == 0, told.output
    row = "| (c) `shown-grpo` | 2 | " + " | ".join(["0.75 (0.50-1.00)"] * 6) + " |"
    assert row in told.output
    assert "| (c) `unshown-grpo` | 1 | 0.50 [" in told.output
    gaps = " | ".join(["+0.50 (+0.50, +0.50)"] * 3)
    assert f"| `shown-grpo` less `shown` | 0, 1 | {gaps} |" in told.output
    assert f"| `unshown-grpo` less `shown` | 0 | {' | '.join(['+0.50'] * 3)} |" in told.output
    assert len(read(tmp_path / "results.json").measured) == 5 * len([*cells(PICO)])
    assert (tmp_path / "learning.png").read_bytes().startswith(b"\x89PNG")


def test_there_is_no_report_of_nothing(tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["report", "pico", "--out", str(tmp_path)])
    assert told.exit_code == 2
    assert "nothing was measured" in told.output + told.stderr
