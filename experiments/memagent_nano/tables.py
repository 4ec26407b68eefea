"""Markdown tables of the measurements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import mean
from typing import TypeVar

from memagent.tasks.statistics import estimate
from memagent.texts import show_length
from memagent_bench.significance import non_inferiority
from memagent_nano.direct import DIRECT
from memagent_nano.kept import KINDS
from memagent_nano.measure import FEW, LONGER, TRAINED
from memagent_nano.results import CellResult, Results
from memagent_nano.sizes import Size
from memagent_nano.stages import GATED, TRUNK, TRUNK_END
from memagent_nano.survival import SYSTEM, Forecast, Hazard, Point

T = TypeVar("T")
ABOUT = {
    TRUNK_END: "trunk",
    "shown": "a",
    "unshown": "b",
    "shown-grpo": "c",
    "unshown-grpo": "c",
    "shown-more": "d",
    "unshown-more": "d",
    "shown-long": "d",
    "shown-dense": "d",
    GATED: "d",
    "shown-right": "e",
    "unshown-right": "e",
    "shown-toss": "f",
    "unshown-toss": "f",
    DIRECT: "g",
}
"""The arms, in the order of the tables -> their letter in `course.arms`."""
PAIRS = (
    *(
        (f"{start}-grpo", f"{start}{other}")
        for start in ("unshown", "shown")
        for other in ("", "-more", "-right", "-toss")
    ),
    ("shown-more", "shown"),
    ("shown-long", "shown-more"),
    ("shown-dense", "shown-long"),
    (GATED, "shown-dense"),
    ("unshown-grpo", TRUNK_END),
    ("unshown-grpo", "shown"),
    *((arm, DIRECT) for arm in ("unshown-grpo", "shown", "shown-grpo", "shown-more")),
)
"""Pairs of arms that are compared."""
MARGIN = 0.05
"""Margin of non-inferiority: the loss that a longer document may cost."""


def make_tables(results: Results, size: Size) -> dict[str, str]:
    """Returns all tables of a course by name, in reading order.

    The table of competing notes is missing if documents with few notes weren't measured.
    """
    tables = {
        "gates": gates(results),
        "arms": arms(results, size),
        "differences": differences(results, size),
        "held out": list_held_out(results, size),
        "kept": list_kept(results),
    }
    few = any(entry.cell.endswith(f"-{FEW[0]}notes") for entry in results.measured)
    return tables | ({"competing notes": compare_notes(results, size)} if few else {})


def compare_notes(results: Results, size: Size) -> str:
    """Returns right answers at the longest length, by the number of competing notes."""
    length = size.lengths[-1]
    longest = max(LONGER) * length
    columns = {"as long as in training, 8 notes": [f"{family}-{length}" for family in TRAINED]}
    for few in FEW:
        columns[f"{max(LONGER)} times that, {few} notes"] = [
            f"{family}-{longest}-{few}notes" for family in TRAINED
        ]
    columns["128 notes"] = [f"{family}-{longest}" for family in TRAINED]
    return _table(results, columns)


def arms(results: Results, size: Size) -> str:
    """Returns means over seeds of the share of right answers, with the lowest and the highest seed."""
    length = size.lengths[-1]
    columns: dict[str, list[str]] = {
        "drawn": [f"{family}-{length}-drawn" for family in TRAINED],
        **{family: [f"{family}-{length}"] for family in TRAINED},
        **_list_longer(length),
    }
    return _table(results, columns)


def differences(results: Results, size: Size) -> str:
    """Returns differences between arms, seed by seed, on the same samples: means, and all seeds.

    The common start of all seeds is one policy, which is compared with each.
    """
    length = size.lengths[-1]
    columns = {
        "as long as in training": [f"{family}-{length}" for family in TRAINED],
        **_list_longer(length),
    }
    lines = [_row(("", "seeds", *columns)), _row(["---"] * (2 + len(columns)))]
    every = [cell for cells in columns.values() for cell in cells]
    for arm, other in PAIRS:
        with_arm, with_other = (_seeds(results, stage, every) for stage in (arm, other))
        if other in TRUNK and len(with_other) == 1:
            (trunk,) = with_other.values()
            with_other = dict.fromkeys(with_arm, trunk)
        seeds = sorted(with_arm.keys() & with_other.keys())
        if not seeds:
            continue
        shares: list[str] = []
        for cells in columns.values():
            gaps = [_mean(with_arm[seed], cells) - _mean(with_other[seed], cells) for seed in seeds]
            of_each = f" ({', '.join(f'{gap:+.2f}' for gap in gaps)})" if len(gaps) > 1 else ""
            shares.append(f"{mean(gaps):+.2f}{of_each}")
        named = ", ".join(map(str, seeds))
        lines.append(_row((f"`{arm}` less `{other}`", named, *shares)))
    return "\n".join(lines)


def list_held_out(results: Results, size: Size) -> str:
    """Returns the same for what training never shows."""
    length = size.lengths[-1]
    columns = {
        f"new {new}": [f"{family}-{length}-{new}" for family in TRAINED]
        for new in ("names", "wording", "books")
    }
    columns |= {family: [f"{family}-{length}"] for family in ("count", "pair", "sign")}
    return _table(results, columns)


def gates(results: Results) -> str:
    """Returns the worst seed's share of exact replies to one chunk, leaving out policies shown to keep other notes."""
    kinds = ("copy", "change", "answer", "read-copy", "read-change", "read-answer")
    lines = [_row(("policy", *kinds)), _row(["---"] * (1 + len(kinds)))]
    for stage, seeds in _by_stage(results.gates):
        if stage.startswith("unshown"):
            continue
        shares = [
            [figures[kind]["share"] for figures in seeds if kind in figures] for kind in kinds
        ]
        worst = [f"{min(of_kind):.3f}" if of_kind else "" for of_kind in shares]
        lines.append(_row((f"`{stage}`", *worst)))
    return "\n".join(lines)


def list_kept(results: Results) -> str:
    """Returns the share of notes kept if there are more than an expert keeps, and of wrong entries."""
    lines = [_row(("policy", "seeds", *KINDS)), _row(["---"] * (2 + len(KINDS)))]
    for stage, seeds in _by_stage(results.kept):
        shares = [
            _spread([figures[kind]["share"] for figures in seeds if figures[kind]["n"]])
            for kind in KINDS
        ]
        lines.append(_row((f"`{stage}`", str(len(seeds)), *shares)))
    return "\n".join(lines)


def hazards(found: Sequence[Hazard]) -> str:
    """Returns the hazards per chunk: by length, and for all lengths from the shortest to the longest."""
    lines = [
        _row(("task", "lengths", "losses", "steps", "hazard", "5% takes", "right but for losses")),
        _row(["---"] * 7),
    ]
    for fit in found:
        lengths = " to ".join(
            show_length(length) for length in sorted({fit.lengths[0], fit.lengths[-1]})
        )
        hazard = f"{_format_rate(fit.rate)} [{_format_rate(fit.low)}, {_format_rate(fit.high)}]"
        cells = (
            str(fit.losses),
            f"{fit.steps:,}",
            hazard,
            _format_rate(fit.bearable),
            f"{fit.sound:.2f}",
        )
        lines.append(_row((_title(fit.system, fit.task), lengths, *cells)))
    return "\n".join(lines)


def _title(system: str, task: str) -> str:
    return task if system == SYSTEM else f"{task}, {system}"


def _format_rate(rate: float) -> str:
    return f"{rate:.1e}" if rate else "0"


def forecasts(said: Sequence[Forecast], measured: Sequence[Point]) -> str:
    """Returns forecasts and measurements by task and length, with the difference to the shortest length."""
    points = {(point.system, point.task, point.length): point for point in measured}
    wanted = {(SYSTEM, forecast.task, forecast.length): forecast for forecast in said}
    head = ("task", "length", "chunks", "said", "measured", "n", "less the shortest", "")
    lines = [_row(head), _row(["---"] * len(head))]
    for key in sorted(points.keys() | wanted.keys()):
        system, task, length = key
        forecast, point = wanted.get(key), points.get(key)
        lines.append(
            _row(
                (
                    _title(system, task),
                    show_length(length),
                    f"{(point or wanted[key]).chunks:,.0f}",
                    f"{forecast.mean:.2f} [{forecast.low:.2f}, {forecast.high:.2f}]"
                    if forecast
                    else "",
                    *_format_point(point),
                )
            )
        )
    return "\n".join(lines)


def _format_point(point: Point | None) -> tuple[str, str, str, str]:
    """Formats share, samples, difference (and its n, if some weren't asked at both), whether it is at most `MARGIN`."""
    if point is None:
        return "", "", "", ""
    share, less, verdict = f"{point.mean:.2f} [{point.low:.2f}, {point.high:.2f}]", "", ""
    if (gap := point.less) is not None:
        count = "" if gap.n == point.n else f" (n={gap.n})"
        less = f"{gap.mean:+.2f} [{gap.low:+.2f}, {gap.high:+.2f}]{count}"
        verdict = non_inferiority(gap, MARGIN).value
    return share, str(point.n), less, verdict


def _list_longer(length: int) -> dict[str, list[str]]:
    """Returns the columns of longer documents."""
    return {
        f"{times} times that": [f"{family}-{times * length}" for family in TRAINED]
        for times in LONGER
    }


def _table(results: Results, columns: dict[str, list[str]]) -> str:
    lines = [
        _row(("arm", "seeds", *columns)),
        _row(["---"] * (2 + len(columns))),
    ]
    for stage, about in ABOUT.items():
        seeds = _seeds(results, stage, [cell for cells in columns.values() for cell in cells])
        if seeds:
            shares = [_share(seeds, cells) for cells in columns.values()]
            lines.append(_row((f"({about}) `{stage}`", str(len(seeds)), *shares)))
    return "\n".join(lines)


def _seeds(results: Results, stage: str, cells: Sequence[str]) -> dict[int, dict[str, CellResult]]:
    """Returns the seeds of a stage that have all of the cells; seed -> cell -> measurement."""
    seeds: dict[int, dict[str, CellResult]] = {}
    for entry in results.measured:
        if entry.stage == stage:
            seeds.setdefault(entry.seed, {})[entry.cell] = entry
    return {seed: entries for seed, entries in sorted(seeds.items()) if entries.keys() >= {*cells}}


def _share(seeds: Mapping[int, Mapping[str, CellResult]], cells: Sequence[str]) -> str:
    """Returns the mean of the seeds, each the mean of its cells; for one seed, with the interval of its samples."""
    if len(seeds) > 1:
        return _spread([_mean(entries, cells) for entries in seeds.values()])
    (entries,) = seeds.values()
    share = estimate([entries[cell].rewards for cell in cells])
    return f"{share.mean:.2f} [{share.low:.2f}, {share.high:.2f}]"


def _mean(entries: Mapping[str, CellResult], cells: Sequence[str]) -> float:
    return mean(entries[cell].mean for cell in cells)


def _spread(shares: Sequence[float]) -> str:
    """Formats the mean, with the lowest and the highest if there are several; empty for none."""
    if not shares:
        return ""
    return f"{mean(shares):.2f}" + (
        f" ({min(shares):.2f}-{max(shares):.2f})" if len(shares) > 1 else ""
    )


def _by_stage(entries: Mapping[str, T]) -> Iterator[tuple[str, list[T]]]:
    """Yields stages in the order of the tables, with the entries of their seeds."""
    for stage in ABOUT:
        of_stage = [entry for name, entry in entries.items() if name.split("/")[1] == stage]
        if of_stage:
            yield stage, of_stage


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
