"""Aggregates records of loops at a server: a row for each work and system."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, median

from memagent.terminal import amount
from memagent_bench.sessions.figures import pad
from memagent_bench.sessions.record import Reason, SessionRecord
from memagent_bench.shift.shift import Probes

HEAD = (
    *("finished", "recall", "artifacts", "continuation", "decisions", "tokens/finished"),
    *("own ms/step", "summaries", "overflows", "broken pairs", "tasks lost"),
)
LEGEND = (
    "finished: everything right; probes: mean share of the sessions with an answer; tokens/finished: prompt tokens of "
    "all sessions for each finished one; own ms/step: processor time without the server's, median of the sessions; "
    "summaries: median; then sums"
)
PROBES = tuple(Probes.model_fields)
NONE = "–"


@dataclass(frozen=True)
class Row:
    """The sessions of one work under one system."""

    game: str
    difficulty: int
    label: str
    sessions: int
    finished: int
    probes: dict[str, float | None]
    """Mean share over the sessions with an answer, by probe; None if there is no answer."""
    tokens: float | None
    """Prompt tokens of all sessions per finished one; None if none finished."""
    own: tuple[float, float, float] | None
    """Own milliseconds per step: median, smallest, largest; None if not measured."""
    summaries: float
    overflows: int
    broken_pairs: int
    lost: int
    """Sessions whose prompt no longer contained the task."""
    kept: float
    """Mean share of what must be remembered that the prompts contained, over the steps."""

    @property
    def work(self) -> str:
        """`shift, 300 steps`."""
        return f"{self.game}, {self.difficulty:,} steps"

    def cells(self) -> tuple[str, ...]:
        """Returns the columns of `HEAD`."""
        milliseconds = NONE
        if self.own is not None:
            middle, low, high = self.own
            milliseconds = f"{middle:.1f}" + (f" ({low:.1f}-{high:.1f})" if high > low else "")
        return (
            f"{self.finished} of {self.sessions}",
            *(NONE if (share := self.probes[name]) is None else f"{share:.2f}" for name in PROBES),
            NONE if self.tokens is None else amount(self.tokens),
            milliseconds,
            f"{self.summaries:g}",
            *map(str, (self.overflows, self.broken_pairs, self.lost)),
        )


def rows(records: Iterable[SessionRecord]) -> list[Row]:
    """Returns the rows by work, then in the order in which systems first came; empty without loops at a server."""
    groups: dict[tuple[str, int, str], list[SessionRecord]] = defaultdict(list)
    order: dict[str, int] = {}
    for record in records:
        if record.wired is not None:
            label = record.arm.label
            order.setdefault(label, len(order))
            groups[record.game, record.difficulty, label].append(record)
    keys = sorted(groups, key=lambda key: (key[0], key[1], order[key[2]]))
    return [_row(*key, groups[key]) for key in keys]


def lines(found: Sequence[Row]) -> list[str]:
    """Returns the table's lines, a block per work; empty if there are no rows."""
    blocks: dict[str, list[tuple[str, ...]]] = {}
    for row in found:
        blocks.setdefault(row.work, [(row.work, *HEAD)]).append((row.label, *row.cells()))
    table = pad(blocks.values())
    return [*table, LEGEND] if table else []


def markdown(found: Sequence[Row]) -> list[str]:
    """Returns the same as Markdown tables, each under the name of its work."""
    table: list[str] = []
    for row in found:
        if f"**{row.work}**" not in table:
            table += ["", f"**{row.work}**", "", f"| | {' | '.join(HEAD)} |"]
            table.append(f"|---|{'---:|' * len(HEAD)}")
        table.append(f"| `{row.label}` | {' | '.join(row.cells())} |")
    return table[1:]


def _row(game: str, difficulty: int, label: str, records: Sequence[SessionRecord]) -> Row:
    wired = [record.wired for record in records if record.wired is not None]
    finished = sum(record.score == 1 for record in records)
    answered = [w.probes for w in wired if w.probes is not None]
    times = [time for w in wired if (time := w.own_milliseconds) is not None]
    spent = sum(record.usage.prompt_tokens for record in records)
    return Row(
        game=game,
        difficulty=difficulty,
        label=label,
        sessions=len(records),
        finished=finished,
        probes={
            name: mean(getattr(probes, name) for probes in answered) if answered else None
            for name in PROBES
        },
        tokens=spent / finished if finished else None,
        own=(median(times), min(times), max(times)) if times else None,
        summaries=median(record.summaries for record in records),
        overflows=sum(w.overflows for w in wired),
        broken_pairs=sum(w.broken_pairs for w in wired),
        lost=sum(record.reason is Reason.TASK_LOST for record in records),
        kept=mean(mean(w.kept) if w.kept else 0.0 for w in wired),
    )
