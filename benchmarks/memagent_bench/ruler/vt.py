"""Variable tracking: RULER's chain of assignments among lines of noise."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

from memagent.tasks import Evidence, Sample
from memagent_bench.fitted import FittedTask
from memagent_bench.options import DataOptions
from memagent_bench.ruler.frames import Vt, load_frames

GENERATE = 30
"""Tokens that the published protocol allows for the reply."""
HOPS = 4
"""Number of variables set from another one; one chain of them, as published."""
LETTERS = 5
"""Letters of a variable's name."""
VALUES = (10_000, 99_999)
EXAMPLE_TOKENS = 500
"""Maximum tokens of the example without its reply: RULER fills them with noise, 14 or 15 lines in its own wording."""
EXAMPLE_LETTERS = 3
"""Letters of a name in the example."""
JOINER = "\n"
RUN = 3
"""Lines of noise that represent a longer run when tokens are counted."""


@dataclass(frozen=True)
class Chain:
    """The lines of one chain, and their places."""

    value: str
    names: tuple[str, ...]
    lines: tuple[str, ...]
    places: tuple[float, ...]
    """For each line, the share of the noise before it; ascending."""

    @classmethod
    def draw(cls, frame: Vt, rng: Random, letters: int = LETTERS) -> Chain:
        """Draws a chain; nothing depends on the length."""
        names: list[str] = []
        while len(names) < HOPS + 1:
            name = "".join(rng.choices(string.ascii_uppercase, k=letters))
            if name not in names:
                names.append(name)
        value = str(rng.randint(*VALUES))
        hops = [frame.copy_.format(name=b, source=a) for a, b in pairwise(names)]
        places = sorted(rng.random() for _ in names)
        lines = (frame.assign.format(name=names[0], value=value), *hops)
        return cls(value, tuple(names), lines, tuple(places))

    def runs(self, noise: int) -> list[int]:
        """Returns the lines of noise before each line of the chain, and after the last."""
        cuts = [0, *(int(place * (noise + 1)) for place in self.places), noise]
        return [stop - start for start, stop in pairwise(cuts)]

    def text(self, runs: Sequence[int], noise: str) -> tuple[str, list[int]]:
        """Returns the document, and where the chain's lines begin in it."""
        lines: list[str] = []
        starts: list[int] = []
        chars = 0
        for run, line in zip(runs, (*self.lines, ""), strict=True):
            lines += [noise] * run
            chars += run * (len(noise) + len(JOINER))
            starts.append(chars)
            lines.append(line)
            chars += len(line) + len(JOINER)
        return JOINER.join(lines[:-1]), starts[:-1]


class VtTask(FittedTask):
    """Samples of variable tracking at one length. Positions are drawn for each, as published.

    Raises:
        ConfigError: the wording is unusable.
    """

    def __init__(self, length: int, options: DataOptions) -> None:
        super().__init__("vt", "string_match_all", length, options)
        self._frames = load_frames(options.frames)
        self._frame = self._frames.table(Vt)
        # Cost of one more line of noise.
        noise = self._frame.noise
        few, more = (self._count(JOINER.join([noise] * n)) for n in (RUN, RUN + 1))
        self._line = more - few
        self._example_places, self._example_noise = self._lay_example()

    @property
    def facts(self) -> dict[str, str | int | bool]:
        """See `Task`."""
        return {
            **super().facts,
            "haystack": "noise",
            "rounds": max(1, self._length // self._line),
            "wording": self._frames.wording,
            "positions": "shuffled",
        }

    def _make(self, index: int, limit: int) -> Sample:
        rng = self._rng("chain", index)
        chain = Chain.draw(self._frame, rng)
        demo = Chain.draw(self._frame, rng, EXAMPLE_LETTERS)
        demo = replace(demo, places=self._example_places)
        names = self._frame.between.join(demo.names)
        example = self._example(demo, self._example_noise) + self._frame.answer.format(names=names)
        before, after, prefix = self._around(chain)
        before = example + before
        noise = max(0, limit - self._tokens(chain, 0, before, after + prefix)) // self._line
        while (tokens := self._tokens(chain, noise, before, after + prefix)) > limit:
            if noise == 0:
                raise self._too_short(index, tokens)
            noise -= 1
        context, starts = chain.text(chain.runs(noise), self._frame.noise)
        return Sample(
            task=self.name,
            index=index,
            length=self._length,
            tokens=tokens,
            context=context,
            question=self._frame.question.format(value=chain.value, count=len(chain.names)),
            outputs=chain.names,
            generate=GENERATE,
            before=before,
            after=after,
            answer_prefix=prefix,
            evidence=_evidence(chain, starts),
        )

    def _tokens(self, chain: Chain, noise: int, before: str, after: str) -> int:
        """Counts prompt and reply: counts them with short runs of noise, and adds what was left out."""
        runs = chain.runs(noise)
        short = [min(run, RUN) for run in runs]
        text, _ = chain.text(short, self._frame.noise)
        left_out = (noise - sum(short)) * self._line
        return self._count(before + text + after) + left_out + GENERATE

    def _around(self, chain: Chain) -> tuple[str, str, str]:
        """Returns the text before and after the lines, and the answer prefix."""
        fields = {"value": chain.value, "count": len(chain.names)}
        before, after, prefix = (
            template.format(**fields)
            for template in (self._frame.before, self._frame.after, self._frame.answer_prefix)
        )
        return before, after, prefix

    def _lay_example(self) -> tuple[tuple[float, ...], int]:
        """Returns the example's places and number of noise lines: as in RULER, the same in every sample."""
        chain = Chain.draw(self._frame, self._rng("example"), EXAMPLE_LETTERS)
        noise = len(chain.lines)
        while self._count(self._example(chain, noise + 1)) <= EXAMPLE_TOKENS:
            noise += 1
        return chain.places, noise

    def _example(self, chain: Chain, noise: int) -> str:
        """Returns a whole prompt that precedes the sample's own, followed by its reply."""
        before, after, prefix = self._around(chain)
        text, _ = chain.text(chain.runs(noise), self._frame.noise)
        return before + text + after + prefix


def _evidence(chain: Chain, starts: Sequence[int]) -> tuple[Evidence, ...]:
    """Returns, per line, one entry for each variable that can't be known without it: its own, and those after it.

    A later variable follows from earlier ones: a memory that holds it no longer needs them.
    """
    return tuple(
        Evidence(
            start=start,
            end=start + len(line.rstrip()),
            supports=(variable,),
            notes=chain.names[i : variable + 1],
        )
        for i, (start, line) in enumerate(zip(starts, chain.lines, strict=True))
        for variable in range(i, len(chain.names))
    )
