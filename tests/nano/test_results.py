import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from typer.testing import CliRunner

from memagent_nano.command import app
from memagent_nano.measure import cells
from memagent_nano.results import Curve, Measured, Results, gather, merge, read, write
from memagent_nano.sizes import PICO
from memagent_nano.stages import Place
from memagent_train.runs import metrics

OWN = PICO.lengths[-1]
ONCE = f"once-{OWN}"


def lay(place: Place, stage: str, rewards: Sequence[float | None], means: list[float]) -> None:
    run = place.run(stage)
    run.mkdir(parents=True)
    for step, mean in enumerate(means):
        metrics.append(run / "metrics.jsonl", step, {"evaluation": {"448": {"mean": mean}}})
        metrics.append(run / "metrics.jsonl", step + 1, {"loss": 1.0, "seconds": 1800.0})
    measured = place.folder / stage / "measured"
    measured.mkdir()
    lines = [json.dumps({"reward": reward}) for reward in rewards]
    (measured / f"{ONCE}.jsonl").write_text("\n".join(lines) + "\n")


def test_what_is_there_is_gathered_and_comes_back_from_a_file(tmp_path: Path) -> None:
    places = [Place(tmp_path, PICO, seed) for seed in (0, 1, 2)]
    lay(places[0], "shown-grpo", [1.0, 0.0, None], [0.25, 0.5])
    lay(places[1], "shown", [1.0, 1.0], [])
    (places[1].folder / "shown" / "gate.json").write_text('{"copy": {"share": 1.0}}')
    results = gather(places)
    assert results.measured == (
        Measured(0, "shown-grpo", ONCE, (1.0, 0.0, 0.0)),
        Measured(1, "shown", ONCE, (1.0, 1.0)),
    )
    assert [one.mean for one in results.measured] == [1 / 3, 1.0]
    assert results.curves == (Curve(0, "shown-grpo", (0, 1), (0.25, 0.5)),)
    assert results.gates == {"seed-1/shown": {"copy": {"share": 1.0}}}
    assert results.hours == {"seed-0/shown-grpo": 1.0}
    file = tmp_path / "kept" / "results.json"
    write(results, file)
    assert read(file) == results
    assert sum('"cell"' in line for line in file.read_text().splitlines()) == 2


def test_of_nothing_there_are_empty_results(tmp_path: Path) -> None:
    results = gather([Place(tmp_path, PICO, 0)])
    write(results, tmp_path / "results.json")
    assert read(tmp_path / "results.json") == results
    assert results.measured == ()


def test_results_of_several_folders_are_put_together() -> None:
    old = Measured(0, "shown", ONCE, (0.0,))
    new, other = Measured(0, "shown", ONCE, (1.0,)), Measured(1, "shown", ONCE, (0.5,))
    curve = Curve(0, "shown-grpo", (0,), (0.5,))
    here = Results((other, old), (curve,), {"seed-0/shown": {"copy": {"share": 0.5}}}, {}, {})
    there = Results((new,), (), {"seed-0/shown": {"copy": {"share": 1.0}}}, {}, {"trunk/copy": 1.0})
    whole = merge([here, there])
    assert whole.measured == (new, other)
    assert whole.curves == (curve,)
    assert whole.gates == {"seed-0/shown": {"copy": {"share": 1.0}}}
    assert whole.hours == {"trunk/copy": 1.0}


def test_a_report_can_be_of_what_was_kept(tmp_path: Path) -> None:
    found = tuple(
        Measured(seed, "shown", cell.name, (1.0, 0.0)) for cell in cells(PICO) for seed in (0, 1)
    )
    kept = tmp_path / "kept.json"
    write(Results(found, (), {}, {}, {}), kept)
    asked = ["report", "pico", "--out", str(tmp_path / "out"), "--known", str(kept)]
    told = CliRunner().invoke(app, asked)
    assert told.exit_code == 0, told.output
    assert (
        "| `shown` | (a) imitates an expert that keeps what is asked for | 2 | 0.50 (0.50-0.50)"
        in told.output
    )
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
            measured = place.folder / stage / "measured"
            for cell in cells(PICO):
                if cell.name != ONCE:
                    shutil.copy(measured / f"{ONCE}.jsonl", measured / f"{cell.name}.jsonl")
    told = CliRunner().invoke(app, ["report", "pico", "--out", str(tmp_path), "--seeds", "0,1"])
    assert told.exit_code == 0, told.output
    row = "| `shown-grpo` | (c) a, then GRPO | 2 | " + " | ".join(["0.75 (0.50-1.00)"] * 6) + " |"
    assert row in told.output
    assert "| `unshown-grpo` | (c) b, then GRPO | 1 | 0.50 [" in told.output
    gaps = " | ".join(["+0.50 (+0.50, +0.50)"] * 3)
    assert f"| `shown-grpo` less `shown` | {gaps} |" in told.output
    assert f"| `unshown-grpo` less `shown` | {' | '.join(['+0.50'] * 3)} |" in told.output
    assert len(read(tmp_path / "results.json").measured) == 5 * len([*cells(PICO)])
    assert (tmp_path / "learning.png").read_bytes().startswith(b"\x89PNG")


def test_there_is_no_report_of_nothing(tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["report", "pico", "--out", str(tmp_path)])
    assert told.exit_code == 2
    assert "nothing was measured" in told.output + told.stderr
