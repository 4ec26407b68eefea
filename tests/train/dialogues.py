"""What `make bench-dialogues` measured: the file that keeps it, and the table and picture of the page."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from memagent_bench.perf.measure import markdown
from memagent_bench.report.canvas import style

KEPT = Path(__file__).with_name("dialogues.json")
LATENCY = 2.0
"""Mean seconds of a tool. With 0.5, 5,000 calls on two cores took longer than all tools of the slowest dialogue."""
PUBLISHED = 5.0
"""Times the throughput of a loop in step, as others published of such rollouts."""
GRID = [step / 10 for step in range(16)]
"""Spreads that the bound is drawn over."""
HEAD = (
    *("turns", "spread", "tool, s", "verifier, s", "round", "in step, s", "rollouts, s"),
    *("times as fast", "bound", "call, s", "engine idle", "CPU, s"),
)


class Setting(NamedTuple):
    """What dialogues do."""

    turns: int
    spread: float
    """Standard deviation of the logarithm of a tool's seconds."""
    latency: float = LATENCY
    """Mean seconds of a tool."""
    verify: float = 0.0
    """Processor seconds that verifying a dialogue takes."""
    number: int = 0
    """Of the round, and seed of the tools."""


@dataclass(frozen=True)
class Reading:
    """One way to make all dialogues."""

    seconds: float
    idle: float
    """Share of looks at the server at which its engine had no request."""
    call: float
    """Mean seconds of a call, as the client sees it."""
    client: float
    """Processor seconds of the client."""
    front: float
    """Processor seconds of the server's process that speaks HTTP; the engine is another."""


@dataclass(frozen=True)
class Pair:
    """Both ways with the same tools, one after the other."""

    setting: Setting
    bound: float
    """Of the ratio of their times."""
    rollouts: Reading
    in_step: Reading
    where: str

    @property
    def ratio(self) -> float:
        """How many times as long the loop in step took."""
        return self.in_step.seconds / self.rollouts.seconds


def kept(file: Path) -> list[Pair]:
    """What a file has; nothing if there is none."""
    found: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []
    return [
        Pair(
            Setting(**one.pop("setting")),
            rollouts=Reading(**one.pop("rollouts")),
            in_step=Reading(**one.pop("in_step")),
            **one,
        )
        for one in found
    ]


def keep(pairs: Sequence[Pair], file: Path) -> None:
    """Writes a file anew."""
    made = [asdict(pair) | {"setting": pair.setting._asdict()} for pair in pairs]
    rounded = json.loads(json.dumps(made), parse_float=lambda text: round(float(text), 4))
    file.write_text("[\n" + ",\n".join(json.dumps(one) for one in rounded) + "\n]\n")


def section(pairs: Sequence[Pair]) -> str:
    """The page's table; two values in a cell are of the loop in step, and of rollouts."""
    lines: list[tuple[str, ...]] = [HEAD]
    for pair in sorted(pairs, key=lambda pair: pair.setting):
        setting, ways = pair.setting, (pair.in_step, pair.rollouts)
        lines.append(
            (
                *(f"{one:g}" for one in (setting.turns, setting.spread, setting.latency)),
                *(f"{setting.verify:g}" if setting.verify else "none", str(setting.number + 1)),
                *(f"{way.seconds:,.0f}" for way in ways),
                *(f"{pair.ratio:.2f}", f"{pair.bound:.2f}"),
                " / ".join(f"{way.call:.1f}" for way in ways),
                " / ".join(f"{way.idle:.2f}" for way in ways),
                " / ".join(f"{way.client + way.front:.0f}" for way in ways),
            )
        )
    where = "; ".join(dict.fromkeys(pair.where for pair in pairs))
    return f"{where}\n\n{markdown(lines)}\n"


def plot(pairs: Sequence[Pair], limit: Callable[[Setting], float], file: Path) -> None:
    """Ratio and bound over the spread, one panel for each number of turns; `limit` makes the bound of any setting."""
    from matplotlib.figure import Figure

    shown = [pair for pair in pairs if pair.setting.latency == LATENCY]
    turns = sorted({pair.setting.turns for pair in shown})
    with style():
        figure = Figure(figsize=(7.5, 3), layout="constrained")
        axes: Sequence[Any] = figure.subplots(
            1, len(turns), sharex=True, sharey=True, squeeze=False
        )[0]
        for axis, many in zip(axes, turns, strict=True):
            here = [pair for pair in shown if pair.setting.turns == many]
            numbers = {pair.setting.number for pair in here}
            values = [[limit(Setting(many, x, number=n)) for n in numbers] for x in GRID]
            (line,) = axis.plot(GRID, [statistics.median(v) for v in values], "--", label="bound")
            low, high = [min(v) for v in values], [max(v) for v in values]
            axis.fill_between(GRID, low, high, alpha=0.15, color=line.get_color())
            for mark, label, some in (
                ("o", "measured", [pair for pair in here if not pair.setting.verify]),
                ("x", "with verifiers", [pair for pair in here if pair.setting.verify]),
            ):
                at = [pair.setting.spread for pair in some]
                if some:
                    axis.plot(at, [pair.ratio for pair in some], mark, label=label)
            axis.axhline(PUBLISHED, color="grey", linestyle=":", label="published")
            axis.set_title(f"{many} turns")
            axis.set_xlabel("spread of the tools' time (log)")
        axes[0].set_ylabel("times as fast as in step")
        axes[0].set_ylim(bottom=0)
        axes[0].legend(loc="upper left")
        figure.savefig(file, dpi=150)
