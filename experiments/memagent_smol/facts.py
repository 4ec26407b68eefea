"""Facts scattered over books, as training tasks: `kind = "task"`, `use = "memagent_smol.facts:facts"`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from random import Random

from memagent.errors import ConfigError
from memagent.tasks import Sample
from memagent_bench.length_tokens import length_counter
from memagent_bench.options import DataOptions
from memagent_bench.tracking.puzzle import Fact, Layout, Puzzle
from memagent_bench.tracking.scattered import ScatteredTask
from memagent_nano.books import MEASURING, TRAINING
from memagent_smol.story import UNKNOWN, Note
from memagent_smol.vocabulary import (
    ATTRIBUTES,
    COPIES,
    HELD_OUT_NEEDLES,
    NEEDLES,
    VALUES,
    Words,
)

SCORER = "string_match_all"
GENERATE = 48
"""Maximum tokens of an answer: four values of a UUID's length would take more, so there are at most two of these."""
MANY = (4, 32)
"""Range of the competing facts in a document, if their number isn't given."""
TRIES = 64
"""If the first sentence is too long for a short document, it begins with one of this many sentences after it."""
NEAR = 0.6
"""Share of competing facts that resemble those asked for: the same place, role, or part of a key."""
OTHER = 1.25
"""Factor on `near`: beyond it, up to this multiple, competing facts of `changes` are about the same person but another
attribute."""


@dataclass(frozen=True)
class Story:
    """A document's content besides its filler, and the question."""

    facts: tuple[Fact, ...]
    """Facts in document order. Those without `supports` are distractors."""
    notes: tuple[Note, ...]
    """Notes in document order."""
    question: str
    outputs: tuple[str, ...]
    outdated: tuple[str, ...] = ()
    """Former answers."""


class FactsTask(ScatteredTask):
    """Facts of a family among the sentences of books.

    Args:
        family: one of `FAMILIES`.
        length: tokens of a sample, reply included.
        options: the essays are the filler.
        words: words that training shows, or held-out ones.
        many: number of competing facts; 0: drawn from `MANY` for each sample.
        near: share of them that resemble those asked for.
        answered: whether the document has the answer; otherwise the next sample's question is asked.

    Raises:
        ConfigError: there is no such family, or `many` is negative; and see `essays`.
        DocumentError: see `essays`.
    """

    def __init__(
        self,
        family: str,
        length: int,
        options: DataOptions,
        *,
        words: Words,
        many: int = 0,
        near: float = NEAR,
        answered: bool = True,
    ) -> None:
        if family not in FAMILIES:
            raise ConfigError(f"unknown family {family!r}; known: {', '.join(FAMILIES)}")
        if many < 0:
            raise ConfigError(f"many must be at least 0, got {many!r}")
        self._tell = FAMILIES[family]
        self._words, self._many, self._near, self._answered = words, many, near, answered
        super().__init__(family, SCORER, GENERATE, length, options)

    @property
    def facts(self) -> dict[str, str | int | bool]:
        """See `Task`."""
        part = "held out" if self._words.held_out else "as in training"
        details = {"many": self._many, "near": str(self._near), "words": part}
        return super().facts | details | ({} if self._answered else {"answered": False})

    def story(self, index: int) -> Story:
        """Returns the story of the sample at `index`."""
        story = self._story(index)
        if self._answered:
            return story
        texts = tuple(Fact(fact.text) for fact in story.facts)
        return Story(texts, (), self._story(index + 1).question, (UNKNOWN,))

    def _story(self, index: int) -> Story:
        rng = self._rng("story", index)
        many = self._many or rng.randint(*MANY)
        return self._tell(self._words, many, self._near, rng)

    def _make(self, index: int, limit: int) -> Sample:
        story = self.story(index)
        rng = self._rng("layout", index)
        layout = Layout.draw(len(story.facts), len(self._filler), rng)
        puzzle = Puzzle(story.facts, "", story.question, story.outputs)
        around = ("", f"\n\n{story.question}\nAnswer:")
        fewest: list[int] = []
        for further in range(TRIES):
            moved = Layout(layout.start + further, layout.places)
            sample = self._scatter(index, limit, puzzle, moved, around)
            if sample.tokens <= limit:
                return sample
            fewest.append(sample.tokens)
        raise self._too_short(index, min(fewest))


def facts(
    *,
    family: str,
    length: int,
    seed: int = 0,
    held_out: bool = False,
    many: int = 0,
    near: float = NEAR,
    answered: bool = True,
) -> FactsTask:
    """Makes a task of a family; see `FactsTask`.

    Args:
        family: one of `FAMILIES`.
        length: length of a document in tokens, by GPT-2's tokenizer.
        seed: seed of all samples.
        held_out: use words, templates and books that no training shows.
        many: number of competing facts in a document; 0: 4 to 32.
        near: share of them that resemble those asked for.
        answered: see `FactsTask`.
    """
    options = DataOptions(
        counter=length_counter(None),
        seed=seed,
        essays=MEASURING if held_out else TRAINING,
        nested=False,
    )
    words = Words(held_out=held_out)
    return FactsTask(family, length, options, words=words, many=many, near=near, answered=answered)


def changes(words: Words, many: int, near: float, rng: Random) -> Story:
    """Makes an attribute of somebody that changes two to four times; the last value counts.

    Statements and question refer to the person in different words with the same meaning; others share the place or
    the role. So searching for the place, the role, or the question's words doesn't find the statement.
    """
    place, *elsewhere = _draw_different(lambda: words.place(rng), 6)
    role, *others = rng.sample(words.roles, 8)
    attribute = rng.choice(list(ATTRIBUTES))
    term, *synonyms = rng.sample(role, len(role))
    values = _draw_different(lambda: ATTRIBUTES[attribute].value(words, rng), rng.randint(2, 4))
    texts = [
        _statement(words, attribute, rng.choice(synonyms), place, value, rng) for value in values
    ]
    competing: list[str] = []
    for _ in range(many):
        kind = rng.random()
        who, where, what = rng.choice(role), place, attribute
        if kind < near / 2:
            who = rng.choice(rng.choice(others))
        elif kind < near:
            where = rng.choice(elsewhere)
        elif kind < near * OTHER:
            what = rng.choice([name for name in ATTRIBUTES if name != attribute])
        else:
            who, where = rng.choice(rng.choice(others)), rng.choice(elsewhere)
            what = rng.choice(list(ATTRIBUTES))
        value = _draw_other(values, partial(ATTRIBUTES[what].value, words, rng))
        competing.append(_statement(words, what, who, where, value, rng))
    said_of = rng.choice(words.said_of).format(role=term, place=place)
    question = rng.choice(ATTRIBUTES[attribute].wording(words).asked).format(who=said_of)
    evidence = [*map(Fact, texts[:-1]), Fact(texts[-1], (values[-1],), (0,))]
    notes = tuple(Note(text, replaces=True) for text in texts)
    *outdated, last = values
    return Story(_mix(evidence, competing, rng), notes, question, (last,), tuple(outdated))


def needles(words: Words, many: int, near: float, rng: Random) -> Story:
    """Makes entries under keys that are words, numbers, names or UUIDs: one, all of one key, or those of two keys."""
    wording = HELD_OUT_NEEDLES if words.held_out else NEEDLES
    key, near_key = rng.choice(_KEYS)
    value = rng.choice((Words.number, Words.pair, Words.surname, Words.uuid, Words.street))
    keys = _draw_different(lambda: key(words, rng), 2)
    kind = rng.choice(("one", "one", "all", "two"))
    count = {"one": 1, "two": 2}.get(kind) or rng.randint(2, 2 if value is Words.uuid else 4)
    values = _draw_different(lambda: value(words, rng), count)
    owners = keys if kind == "two" else [keys[0]] * count
    texts = [
        _sentence(rng.choice(wording.said).format(who=who, what=what))
        for who, what in zip(owners, values, strict=True)
    ]
    competing: list[str] = []
    for _ in range(many):
        draw = partial(near_key, words, keys[0]) if rng.random() < near else partial(key, words)
        who = _draw_other(keys, partial(draw, rng))
        what = _draw_other(values, partial(value, words, rng))
        competing.append(_sentence(rng.choice(wording.said).format(who=who, what=what)))
    templates = {"one": wording.asked, "all": wording.asked_all, "two": wording.asked_two}[kind]
    question = rng.choice(templates).format(who=keys[0], other=keys[1])
    evidence = [
        Fact(text, (what,), (i,)) for i, (text, what) in enumerate(zip(texts, values, strict=True))
    ]
    order = list(range(count))
    if kind == "two":
        rng.shuffle(order)
    notes = tuple(Note(texts[i]) for i in order)
    return Story(_mix([evidence[i] for i in order], competing, rng), notes, question, tuple(values))


def trace(words: Words, many: int, near: float, rng: Random) -> Story:
    """Makes variables that take each other's values; asks which have a number. Other chains compete."""
    chains = max(2, 1 + many // 4)
    names = _draw_different(
        lambda: f"{words.thing(rng).upper()}{rng.randrange(10, 100)}", chains * 4
    )
    numbers = _draw_different(lambda: words.number(rng), chains)
    parts = [
        _chain(names[4 * i : 4 * i + rng.randint(2, 4)], numbers[i], rng) for i in range(chains)
    ]
    (own_texts, own_names), *others = parts
    evidence = [
        Fact(text, (name,), (i,))
        for i, (text, name) in enumerate(zip(own_texts, own_names, strict=True))
    ]
    competing = [text for texts, _ in others for text in texts]
    question = rng.choice(COPIES.asked).format(what=numbers[0])
    return Story(
        _mix(evidence, competing, rng),
        tuple(map(Note, own_texts)),
        question,
        tuple(own_names),
    )


Tell = Callable[[Words, int, float, Random], Story]
FAMILIES: dict[str, Tell] = {"changes": changes, "needles": needles, "trace": trace}
"""Name of a family -> maker of its stories."""


def _statement(words: Words, attribute: str, role: str, place: str, value: str, rng: Random) -> str:
    who = rng.choice(words.said_of).format(role=role, place=place)
    wording = ATTRIBUTES[attribute].wording(words)
    return _sentence(rng.choice(wording.said).format(who=who, what=value))


def _sentence(text: str) -> str:
    """Capitalises the text, even if a value comes first: scores ignore case."""
    return text[0].upper() + text[1:]


def _chain(names: Sequence[str], number: str, rng: Random) -> tuple[list[str], Sequence[str]]:
    """Makes the sentences of a chain, one per name."""
    texts = [rng.choice(VALUES.said).format(who=names[0], what=number)]
    for source, name in pairwise(names):
        texts.append(rng.choice(COPIES.said).format(who=name, what=source))
    return texts, names


def _mix(evidence: Sequence[Fact], competing: Sequence[str], rng: Random) -> tuple[Fact, ...]:
    """Keeps the evidence in order, with the other facts between."""
    places = sorted(rng.sample(range(len(evidence) + len(competing)), len(evidence)))
    mixed = [Fact(text) for text in competing]
    for place, fact in zip(places, evidence, strict=True):
        mixed.insert(place, fact)
    return tuple(mixed)


def _draw_different(draw: Callable[[], str], count: int) -> list[str]:
    """Draws `count` distinct texts."""
    texts: dict[str, None] = {}
    while len(texts) < count:
        texts[draw()] = None
    return list(texts)


def _draw_other(others: Sequence[str], draw: Callable[[], str]) -> str:
    """Draws a text that isn't in `others`."""
    while (text := draw()) in others:
        pass
    return text


def _near_pair(words: Words, key: str, rng: Random) -> str:
    first, second = key.split("-")
    other = words.thing(rng)
    return rng.choice((f"{first}-{other}", f"{other}-{second}"))


def _near_number(words: Words, key: str, rng: Random) -> str:
    digits = list(key)
    digits[rng.randrange(1, len(digits))] = str(rng.randrange(10))
    return "".join(digits)


def _of_place(words: Words, rng: Random) -> str:
    return f"the {words.thing(rng)} of {words.place(rng)}"


def _near_of_place(words: Words, key: str, rng: Random) -> str:
    _, thing, _, place = key.split()
    return rng.choice((f"the {thing} of {words.place(rng)}", f"the {words.thing(rng)} of {place}"))


def _name(words: Words, rng: Random) -> str:
    return f"{words.place(rng)} {words.surname(rng)}"


def _near_name(words: Words, key: str, rng: Random) -> str:
    first, last = key.split()
    return rng.choice((f"{first} {words.surname(rng)}", f"{words.place(rng)} {last}"))


_KEYS: tuple[tuple[Callable[[Words, Random], str], Callable[[Words, str, Random], str]], ...] = (
    (Words.pair, _near_pair),
    (Words.number, _near_number),
    (Words.uuid, lambda words, key, rng: words.uuid(rng)),
    (_of_place, _near_of_place),
    (_name, _near_name),
)
"""Draws a key; draws a key that resembles it."""
