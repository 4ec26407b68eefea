"""`counter`: counters that go up and down; the question asks for the final value of one."""

from __future__ import annotations

from random import Random

from memagent_bench.tracking.names import invent
from memagent_bench.tracking.puzzle import Fact, Puzzle

COUNTERS = 4
CHANGES = 12
"""Changes of each counter, in a short document."""
STARTS = range(4000, 6000)
STEPS = range(101, 1000)
"""Three digits each, while values have four, so that no two numbers are confused. In a short document all differ."""
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


def counter(rng: Random, times: int) -> Puzzle:
    """Makes 4 counters with a start and 12 `times` changes each, in random order; asks for the final value of one.

    In a short document every note of that counter is evidence. A memory holds it if it has its step, the value
    after it, or any later value, which includes it. In a longer one these would be too many to list: only the last
    note is evidence, and the memory must hold the final value.
    """
    names = invent(COUNTERS, rng)
    subject = rng.choice(names)
    order = names * (CHANGES * times)
    rng.shuffle(order)
    order = names + order
    short, changes = times == 1, COUNTERS * CHANGES * times
    steps = iter(rng.sample(STEPS, changes) if short else rng.choices(STEPS, k=changes))
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
        if name == subject:
            history.append(str(values[name]))
    facts: list[Fact] = []
    count = 0
    for name, number, text in texts:
        count += name == subject
        if name == subject and (short or count == len(history)):
            step_too = (number,) if short else ()
            notes = tuple(dict.fromkeys((*step_too, *history[count - 1 :])))
            facts.append(Fact(text, notes, (0,)))
        else:
            facts.append(Fact(text))
    return Puzzle(facts, ABOUT, QUESTION.format(name=subject), (str(values[subject]),))
