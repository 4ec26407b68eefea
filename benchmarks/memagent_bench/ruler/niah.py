"""Needles in a haystack: RULER's eight retrieval tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Literal

from memagent.tasks import Evidence, Sample
from memagent_bench.filler import Filler
from memagent_bench.fitted import FittedTask
from memagent_bench.haystacks import FixedHaystack, Haystack, ShuffledHaystack, essays
from memagent_bench.options import DataOptions
from memagent_bench.placement import Placement
from memagent_bench.ruler.frames import Niah, load_frames
from memagent_bench.ruler.words import KindName, draw, draw_different

GENERATE = 128
"""Tokens that the published protocol allows for the reply of these tasks."""
DEPTHS = [round(100 * i / 39) for i in range(40)]
"""Possible depths of needles in essays, in percent of the sentences: 40 places from 0 to 100, as published."""
SPARE = 1.25
"""Tokens of the distractor pool per token of length: a sample uses about four fifths of it."""
PROBE = 100
"""Distractors measured to estimate how many more are needed."""


@dataclass(frozen=True)
class Needles:
    """One row of RULER's table of retrieval tasks."""

    haystack: Literal["noise", "essay", "needles"]
    key: KindName = "words"
    value: KindName = "numbers"
    keys: int = 1
    values: int = 1
    """Number of values per key."""
    queries: int = 1


NIAH = {
    "niah_single_1": Needles("noise"),
    "niah_single_2": Needles("essay"),
    "niah_single_3": Needles("essay", value="uuids"),
    "niah_multikey_1": Needles("essay", keys=4),
    "niah_multikey_2": Needles("needles"),
    "niah_multikey_3": Needles("needles", key="uuids", value="uuids"),
    "niah_multivalue": Needles("essay", values=4),
    "niah_multiquery": Needles("essay", keys=4, queries=4),
}
"""The published parameters, by task."""


@dataclass(frozen=True)
class Drawing:
    """What a sample asks for and where it stands: all random choices apart from distractors."""

    needles: tuple[str, ...]
    """Sentences in document order."""
    values: tuple[str, ...]
    """Values of the needles."""
    supports: tuple[tuple[int, ...], ...]
    """For each needle, the outputs that it provides; empty for keys that aren't asked for."""
    places: tuple[float, ...]
    """For each needle, the share of the haystack before it; ascending."""
    keys: tuple[str, ...]
    query: str
    outputs: tuple[str, ...]

    def among(self, units: Sequence[str]) -> Placement:
        """Places the needles among units of a haystack."""
        return Placement(units, self.needles, [int(len(units) * place) for place in self.places])

    def evidence(self, spans: Sequence[tuple[int, int]]) -> tuple[Evidence, ...]:
        """Returns the places of the needles asked for, given the spans of all."""
        return tuple(
            Evidence(start=start, end=end, supports=supports, notes=(value,))
            for (start, end), value, supports in zip(spans, self.values, self.supports, strict=True)
            if supports
        )


class NiahTask(FittedTask):
    """Samples of one of the tasks in `NIAH` at one length. Positions are drawn for each sample, as published.

    Raises:
        ConfigError: the wording is unusable.
    """

    def __init__(self, name: str, length: int, options: DataOptions) -> None:
        super().__init__(name, "string_match_all", length, options)
        self._spec = NIAH[name]
        self._frames = load_frames(options.frames)
        self._wording = self._frames.table(Niah)

    @property
    def facts(self) -> dict[str, str | int | bool]:
        """See `Task`. Reads the essays.

        Raises:
            DocumentError: they cannot be read.
            ConfigError: they contain no sentence.
        """
        return {
            **super().facts,
            "haystack": self._haystack.filler.name,
            "rounds": self._haystack.rounds(self._length - GENERATE),
            "wording": self._frames.wording,
            "positions": "shuffled",
        }

    @cached_property
    def _haystack(self) -> Haystack:
        options, counter = self._options, self._options.counter
        if self._spec.haystack == "essay":
            return FixedHaystack(essays(options.essays, counter))
        if self._spec.haystack == "noise":
            return FixedHaystack(Filler("noise", [self._wording.noise], "\n", counter))
        pool = self._distractors()
        return ShuffledHaystack(
            Filler(f"needles (drawn from a pool of {len(pool)})", pool, "\n", counter),
            nested=options.nested,
        )

    def _distractors(self) -> list[str]:
        """Returns a large enough pool; with nested samples only its end depends on the length.

        As in RULER, some keys occur twice: none of them is asked for.
        """
        rng = self._rng("distractors")
        key, value = self._spec.key, self._spec.value
        pool = [self._needle(draw(key, rng), draw(value, rng)) for _ in range(PROBE)]
        tokens = sum(map(self._count, pool)) / PROBE
        more = int(SPARE * self._length / tokens)
        return pool + [self._needle(draw(key, rng), draw(value, rng)) for _ in range(more)]

    def _needle(self, key: str, value: str) -> str:
        kind = self._wording.kinds.of(self._spec.value)
        return self._wording.needle.format(key=key, value=value, kind=kind.one, kinds=kind.many)

    def _draw(self, rng: Random) -> Drawing:
        """Draws nothing that depends on the length, so that nested samples share it."""
        spec = self._spec
        keys = draw_different(spec.key, spec.keys, rng)
        values = draw_different(spec.value, spec.keys * spec.values, rng)
        pairs = [(keys[i // spec.values], value) for i, value in enumerate(values)]
        query_keys = rng.sample(keys, spec.queries)
        outputs = [value for key in query_keys for owner, value in pairs if owner == key]
        rng.shuffle(pairs)
        supports = [
            tuple(i for i, output in enumerate(outputs) if output == value and key in query_keys)
            for key, value in pairs
        ]
        if spec.haystack == "essay":
            places = [depth / 100 for depth in sorted(rng.sample(DEPTHS, len(pairs)))]
        else:
            places = sorted(rng.random() for _ in pairs)
        return Drawing(
            needles=tuple(self._needle(key, value) for key, value in pairs),
            values=tuple(value for _, value in pairs),
            supports=tuple(supports),
            places=tuple(places),
            keys=tuple(keys),
            query=self._wording.query(query_keys),
            outputs=tuple(outputs),
        )

    def _frame(self, query: str) -> tuple[str, str, str, str]:
        """Returns the text before and after the document, prefix and question; singular if one value is sought."""
        kind = self._wording.kinds.of(self._spec.value)
        singular = self._spec.queries * self._spec.values == 1
        frame = self._wording.one if singular else self._wording.many
        fields = {"kind": kind.one, "kinds": kind.many, "query": query}
        templates = (frame.before, frame.after, frame.answer_prefix, frame.question)
        before, after, prefix, question = (template.format(**fields) for template in templates)
        return before, after, prefix, question

    def _make(self, index: int, limit: int) -> Sample:
        """Returns a sample of at most `limit` tokens, by adding up its parts."""
        drawn = self._draw(self._rng("needles", index))
        before, after, prefix, question = self._frame(drawn.query)
        filler = self._haystack.filler
        needles = sum(map(filler.cost, drawn.needles)) + GENERATE
        around = self._count(before) + self._count(after + prefix)
        room = limit - needles - around
        while True:
            # No distractor may have a key that is asked for, or look like its needle.
            without = (*drawn.keys, *drawn.outputs)
            units, cost = self._haystack.lay(room, self._rng("order", index), without)
            if not units:
                raise self._too_short(index, needles + around + filler.tokens(1))
            placed = drawn.among(units)
            tokens = cost + needles + filler.ends(before, placed.first, placed.last, after + prefix)
            if tokens <= limit:
                break
            room -= tokens - limit
        context, spans = placed.join(filler.joiner)
        evidence = drawn.evidence(spans)
        return Sample(
            task=self.name,
            index=index,
            length=self._length,
            tokens=tokens,
            context=context,
            question=question,
            outputs=drawn.outputs,
            generate=GENERATE,
            before=before,
            after=after,
            answer_prefix=prefix,
            evidence=evidence,
            competing=self._competing(context, spans, evidence),
        )

    def _competing(
        self, context: str, spans: Sequence[tuple[int, int]], evidence: Sequence[Evidence]
    ) -> tuple[int, ...]:
        """Returns where the needles that aren't asked for begin."""
        starts = {start for start, _ in spans}
        if self._spec.haystack == "needles":  # one per line
            starts = {0, *(at + 1 for at, sign in enumerate(context) if sign == "\n")}
        return tuple(sorted(starts - {place.start for place in evidence}))
