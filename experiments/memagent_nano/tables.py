"""Tables of what was measured, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import mean
from typing import TypeVar

from memagent_bench.stats import estimate
from memagent_nano.kept import ASKED, MADE_UP, OTHER
from memagent_nano.results import Measured, Results
from memagent_nano.sizes import Size
from memagent_nano.survival import Forecast, Hazard, Point

T = TypeVar("T")
TRAINED = ("once", "last", "hop")
KINDS = (ASKED, OTHER, MADE_UP)
ABOUT = {
    "copy": "copying and format only (what all begin with)",
    "shown": "(a) imitates an expert that keeps what is asked for",
    "unshown": "(b) imitates an expert that keeps anything",
    "shown-grpo": "(c) a, then GRPO",
    "unshown-grpo": "(c) b, then GRPO",
    "shown-more": "(d) a, then as much more imitation",
    "unshown-more": "(d) b, then as much more imitation",
    "shown-long": "as that, in documents of up to eight chunks",
    "shown-right": "(e) a, then rejection sampling",
    "unshown-right": "(e) b, then rejection sampling",
    "shown-toss": "(f) a, then GRPO with random rewards",
    "unshown-toss": "(f) b, then GRPO with random rewards",
    "direct": "(g) no memory: all of the document in a long window",
}
"""The arms, in the order of the tables."""


def arms(results: Results, size: Size) -> str:
    """Means over seeds of the share of right answers, with the lowest and the highest seed."""
    own = size.lengths[-1]
    columns: dict[str, list[str]] = {
        "drawn": [f"{family}-{own}-drawn" for family in TRAINED],
        **{family: [f"{family}-{own}"] for family in TRAINED},
        "4 times as long": [f"{family}-{4 * own}" for family in TRAINED],
    }
    return _table(results, columns)


def held_out(results: Results, size: Size) -> str:
    """The same for what no training shows."""
    own = size.lengths[-1]
    columns = {
        f"new {new}": [f"{family}-{own}-{new}" for family in TRAINED]
        for new in ("names", "wording", "books")
    }
    columns |= {family: [f"{family}-{own}"] for family in ("count", "pair", "sign")}
    return _table(results, columns)


def gates(results: Results) -> str:
    """The share of exact replies to one chunk, of the worst seed."""
    kinds = ("copy", "change", "answer", "read-copy", "read-change", "read-answer")
    lines = [_row(("policy", *kinds)), _row(["---"] * (1 + len(kinds)))]
    for stage, found in _by_stage(results.gates):
        worst = [min((one[k]["share"] for one in found if k in one), default=0) for k in kinds]
        lines.append(_row((f"`{stage}`", *(f"{share:.3f}" for share in worst))))
    return "\n".join(lines)


def kept(results: Results) -> str:
    """The share of notes that are kept where there is no room for all, and of entries that are made up."""
    lines = [_row(("policy", "seeds", *KINDS)), _row(["---"] * (2 + len(KINDS)))]
    for stage, found in _by_stage(results.kept):
        shares = [_spread([one[kind]["share"] for one in found]) for kind in KINDS]
        lines.append(_row((f"`{stage}`", str(len(found)), *shares)))
    return "\n".join(lines)


def hazards(found: Sequence[Hazard]) -> str:
    """What short documents say."""
    lines = [
        _row(("task", "losses", "chunk steps", "hazard", "right if not lost")),
        _row(["---"] * 5),
    ]
    for one in found:
        rate = f"{one.rate:.2e} [{one.low:.2e}, {one.high:.2e}]"
        lines.append(_row((one.task, str(one.losses), f"{one.steps:,}", rate, f"{one.sound:.3f}")))
    return "\n".join(lines)


def forecasts(said: Sequence[Forecast], measured: Sequence[Point]) -> str:
    """What was said, and what came of it, by task and length."""
    seen = {(point.task, point.length): point for point in measured}
    wanted = {(one.task, one.length): one for one in said}
    lines = [_row(("task", "length", "chunks", "said", "measured", "n")), _row(["---"] * 6)]
    for key in sorted(seen.keys() | wanted.keys()):
        one, point = wanted.get(key), seen.get(key)
        before = f"{one.mean:.3f} [{one.low:.3f}, {one.high:.3f}]" if one else ""
        after = f"{point.mean:.3f} [{point.low:.3f}, {point.high:.3f}]" if point else ""
        chunks = f"{one.chunks:,.0f}" if one else ""
        lines.append(
            _row((key[0], f"{key[1]:,}", chunks, before, after, str(point.n) if point else ""))
        )
    return "\n".join(lines)


def _table(results: Results, columns: dict[str, list[str]]) -> str:
    lines = [
        _row(("arm", "", "seeds", *columns)),
        _row(["---"] * (3 + len(columns))),
    ]
    for stage, about in ABOUT.items():
        of_stage = [one for one in results.measured if one.stage == stage]
        if of_stage:
            seeds = sorted({one.seed for one in of_stage})
            shares = [_share(of_stage, seeds, cells) for cells in columns.values()]
            lines.append(_row((f"`{stage}`", about, str(len(seeds)), *shares)))
    return "\n".join(lines)


def _share(measured: Sequence[Measured], seeds: Sequence[int], cells: Sequence[str]) -> str:
    """Mean of the seeds, each the mean of its cells; of one seed alone with the interval of its samples."""
    found: list[float] = []
    rewards: list[Sequence[float]] = []
    for seed in seeds:
        of_seed = [one for one in measured if one.seed == seed and one.cell in cells]
        if len(of_seed) == len(cells):
            found.append(mean(one.mean for one in of_seed))
            rewards = [one.rewards for one in of_seed]
    if not found:
        return ""
    if len(found) == 1:
        one = estimate(rewards)
        return f"{one.mean:.2f} [{one.low:.2f}, {one.high:.2f}]"
    return _spread(found)


def _spread(found: Sequence[float]) -> str:
    return f"{mean(found):.2f} ({min(found):.2f}-{max(found):.2f})"


def _by_stage(found: Mapping[str, T]) -> Iterator[tuple[str, list[T]]]:
    """Stages in the order of the tables, and what was found of their seeds."""
    for stage in ABOUT:
        of_stage = [one for name, one in found.items() if name.split("/")[1] == stage]
        if of_stage:
            yield stage, of_stage


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
