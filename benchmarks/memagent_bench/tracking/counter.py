"""`counter`: counters that go up and down; the final value of one is asked for."""

from __future__ import annotations

from random import Random

from memagent_bench.tracking.names import invent
from memagent_bench.tracking.puzzle import Fact, Puzzle

COUNTERS = 4
CHANGES = 12
"""Of each counter."""
STARTS = range(4000, 6000)
STEPS = range(101, 1000)
"""Three digits each, all different in one document, while values have four: no two numbers are mixed up."""
LOW, HIGH = 1000, 9999
START = "Counter note: the counter {name} starts at {value}."
UP = (
    "Counter note: {step} is added to the counter {name}.",
    "Counter note: the counter {name} goes up by {step}.",
)
DOWN = (
    "Counter note: {step} is taken from the counter {name}.",
    "Counter note: the counter {name} goes down by {step}.",
)
ABOUT = (
    "Between the sentences of a text stand counter notes. Each starts a counter, or adds to it, or takes "
    "from it."
)
QUESTION = (
    "What is the value of the counter {name} at the end? Reply with the number alone, in digits."
)


def counter(rng: Random) -> Puzzle:
    """4 counters with a start and 12 changes each, in random order; the final value of one is asked for.

    Every note of that counter is evidence. What a memory may hold of it is its step, the value after it, or any
    later value, into which it went.
    """
    names = invent(COUNTERS, rng)
    asked = rng.choice(names)
    order = names * CHANGES
    rng.shuffle(order)
    order = names + order
    steps = iter(rng.sample(STEPS, COUNTERS * CHANGES))
    values: dict[str, int] = {}
    texts: list[tuple[str, str, str]] = []
    """Name, number of the note, its text."""
    history: list[str] = []
    for name in order:
        if name not in values:
            values[name] = rng.choice(STARTS)
            number = str(values[name])
            text = START.format(name=name, value=number)
        else:
            step = next(steps)
            down = values[name] - step >= LOW and (values[name] + step > HIGH or rng.random() < 0.5)
            values[name] += -step if down else step
            number = str(step)
            text = rng.choice(DOWN if down else UP).format(name=name, step=number)
        texts.append((name, number, text))
        if name == asked:
            history.append(str(values[name]))
    facts: list[Fact] = []
    seen = 0
    for name, number, text in texts:
        if name == asked:
            facts.append(Fact(text, tuple(dict.fromkeys((number, *history[seen:]))), (0,)))
            seen += 1
        else:
            facts.append(Fact(text))
    return Puzzle(facts, ABOUT, QUESTION.format(name=asked), (str(values[asked]),))
