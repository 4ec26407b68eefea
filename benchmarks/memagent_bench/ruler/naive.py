"""For comparison only: generates like RULER's script, which counts a whole prompt for each guess.

The number of haystack units is found by bisection between one increment and three times what a first
guess suggests. Each guess writes a new sample (the essays are joined and split into sentences again, distractors
are drawn again) and tokenises all of it; so does each sample after that. `niah` does the same for less.
"""

from __future__ import annotations

from functools import cached_property
from random import Random

from memagent.tasks import Sample
from memagent_bench.haystacks import essays, sentences
from memagent_bench.options import DataOptions
from memagent_bench.ruler.niah import GENERATE, NiahTask
from memagent_bench.ruler.words import draw

INCREMENTS = {"essay": 500, "noise": 25, "needles": 25}
"""Words or lines by which RULER's script steps, by haystack."""
SLACK = 3
"""The search begins with this multiple of the first guess."""


class NaiveNiahTask(NiahTask):
    """The same task, with as much work as the published script."""

    def __init__(self, name: str, length: int, options: DataOptions) -> None:
        super().__init__(name, length, options)
        self._step = INCREMENTS[self._spec.haystack]
        self._chance = Random(f"{options.seed}:{name}:naive")
        self._words: list[str] = []
        if self._spec.haystack == "essay":
            filler = essays(options.essays, options.counter)
            self._words = " ".join(filler.take(0, len(filler))).split(" ")

    def sample(self, index: int) -> Sample:
        """Returns a sample; unlike other tasks, a different one each time."""
        units = self._max_units
        while True:
            sample = self._write(index, units)
            if sample.tokens <= self._length or units <= self._step:
                return sample
            units -= self._step

    @cached_property
    def _max_units(self) -> int:
        """The number of units that fit the length."""
        low = self._step
        guess = self._write(0, low).tokens / low
        high = max(int(self._length / guess * SLACK), 2 * low)
        best = low
        while low <= high:
            middle = (low + high) // 2
            if self._write(0, middle).tokens <= self._length:
                best, low = middle, middle + 1
            else:
                high = middle - 1
        return best

    def _write(self, index: int, units: int) -> Sample:
        drawn = self._draw(self._chance)
        placed = drawn.among(self._hay(units))
        context, spans = placed.join(" " if self._spec.haystack == "essay" else "\n")
        before, after, prefix, question = self._frame(drawn.query)
        return Sample(
            task=self.name,
            index=index,
            length=self._length,
            tokens=self._count(before + context + after + prefix) + GENERATE,
            context=context,
            question=question,
            outputs=drawn.outputs,
            generate=GENERATE,
            before=before,
            after=after,
            answer_prefix=prefix,
            evidence=drawn.evidence(spans),
        )

    def _hay(self, units: int) -> list[str]:
        spec = self._spec
        if spec.haystack == "noise":
            return [self._wording.noise] * units
        if spec.haystack == "needles":
            pairs = (
                (draw(spec.key, self._chance), draw(spec.value, self._chance)) for _ in range(units)
            )
            return [self._needle(key, value) for key, value in pairs]
        words = self._words * -(-units // len(self._words))
        return sentences(" ".join(words[:units]))
