"""The demo of a trained policy: a fact hidden in a long text, and the memory that has to carry it to the end."""

from __future__ import annotations

import json
import time
from contextlib import closing
from typing import TYPE_CHECKING

from memagent.cli.display import SilentWatcher, watcher
from memagent.cli.exits import NO_ANSWER, WRONG, Outcome
from memagent.cli.needle import BOOK_TOKENS, Length, Needle, hide
from memagent.cli.options import Display
from memagent.cli.points import Point, PointsWatcher
from memagent.cli.progress import Tally
from memagent.cli.results import as_json, report
from memagent.cli.session import drive, watch
from memagent.terminal import Paper, amount, plural

if TYPE_CHECKING:
    from memagent.memory.agent import MemoryAgent
    from memagent.run.result import Estimate, Result
    from memagent.runstore import RunRecord

NAME = "War and Peace, with a needle"


def find_needle(model: str, length: Length, seed: int, shown: Display, outcome: Outcome) -> int:
    """Hides a needle, has it looked for with the gate off, and says how that went.

    Args:
        model: a spec.
        length: of the text.
        seed: says what is hidden, and where; of the run too.
        shown: how it is shown.
        outcome: of the command.

    Returns:
        The exit code: 0 for the right answer, `WRONG` for another, 6 for none.

    Raises:
        MemagentError: the reading ended early.
    """
    from memagent.documents import open_document
    from memagent.memory.agent import MemoryAgent
    from memagent.runstore import RunStore

    paper = Paper(colour=shown is Display.FULL)
    talks = shown in (Display.FULL, Display.PLAIN)
    with closing(RunStore(None)) as store:
        # The gate is off, so that nothing but the policy itself carries the memory on.
        agent = MemoryAgent(model, gate="off", seed=seed, store=store)
        with closing(agent):
            needle = hide(length, seed)
            document = open_document(needle.text, name=NAME)
            estimate = drive(agent.aestimate(document, needle.question))
            if talks:
                _introduce(paper, agent, needle, length, estimate)
            begun = time.monotonic()
            tally = Tally(chars=len(needle.text))
            plain = shown is Display.PLAIN
            points = PointsWatcher(
                SilentWatcher(tally) if plain else watcher(shown, tally),
                tally,
                chars=len(needle.text),
                needle=needle.end,
                say=plain,
            )
            stream = agent.stream(document, needle.question)
            (result,) = watch(agent, stream, points)
            seconds = time.monotonic() - begun
        record = store.get(stream.run_id)
    if shown is Display.JSON:
        return _as_data(result, record, needle, points, seconds, outcome)
    code = report([result], record, shown, outcome, seconds=seconds)
    if talks:
        if shown is Display.FULL:
            for point in points.points:
                paper.line((point.line(), "dim"))
        _judge(paper, result, needle, seconds)
    return code or (0 if needle.is_right(result.answer) else WRONG)


def _introduce(
    paper: Paper, agent: MemoryAgent, needle: Needle, length: Length, estimate: Estimate
) -> None:
    share = needle.place / len(needle.text)
    lines = [
        f"{needle.fact!r} is hidden {share:.0%} of the way into about {amount(length.tokens)} GPT-2 tokens of a book.",
        f"{agent.model.name} is asked {needle.question!r} and reads {plural(estimate.chunks, 'chunk')}.",
        "The gate is off: it writes its whole memory anew after each of them, and sees nothing else of what it read.",
    ]
    if length.tokens > BOOK_TOKENS:
        lines.append(
            f"War and Peace has {amount(BOOK_TOKENS)} tokens, so parts of it are there more than once."
        )
    for line in lines:
        paper.line((line, "dim"))
    paper.line("")


def _judge(paper: Paper, result: Result, needle: Needle, seconds: float) -> None:
    usage = result.usage
    speed = (usage.prompt_tokens + usage.completion_tokens) / seconds if seconds > 0 else 0.0
    if result.answer is not None:
        if needle.is_right(result.answer):
            paper.line(("right", "bold green"), f": it is {needle.count}")
        else:
            paper.line(("wrong", "bold red"), f": it is {needle.count}")
    paper.line((f"{amount(speed)} tokens/s", "dim"))


def _as_data(
    result: Result,
    record: RunRecord,
    needle: Needle,
    points: PointsWatcher,
    seconds: float,
    outcome: Outcome,
) -> int:
    usage = result.usage
    right = needle.is_right(result.answer)
    said = as_json([result], record) | {
        "fact": needle.fact,
        "place": needle.place,
        "characters": len(needle.text),
        "right": right,
        "seconds": round(seconds, 3),
        "tokens_per_second": round((usage.prompt_tokens + usage.completion_tokens) / seconds, 1),
        "memories": [_point(point) for point in points.points],
    }
    outcome.told = True
    print(json.dumps(said, ensure_ascii=False))
    return NO_ANSWER if result.answer is None else 0 if right else WRONG


def _point(point: Point) -> dict[str, object]:
    return {
        "read": round(point.share, 4),
        "chunk": point.chunk,
        "needle": point.needle,
        "memory": point.memory,
    }
