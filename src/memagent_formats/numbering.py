"""Numbers of list items: documents hold the rules by which programs count, not the numbers."""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from xml.etree.ElementTree import Element

_ROMAN = (
    *((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l")),
    *((40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i")),
)
_LEVELS = range(9)
MOST_BASES = 20
"""Longest chain of styles that are based on one another: some files have circles."""
MOST_CHARS = 100
"""Longest number: without a limit, a small file could become a huge text."""
_SPACES = {"nothing": "", "space": " ", "tab": " "}


def show_number(number: int, kind: str) -> str:
    """Formats a number as Word does (`lowerRoman`), or in HTML's letters (`lowerAlpha`); unknown kinds give digits.

    Word counts a to z, aa, bb; HTML a to z, aa, ab.
    """
    text = ""
    if kind == "decimalZero":
        text = f"{number:02}"
    elif 0 < number < 4000:
        left, name = number, kind.removeprefix("lower").removeprefix("upper")
        if name == "Letter":
            text = chr(ord("a") + (left - 1) % 26) * ((left + 25) // 26)
        elif name == "Alpha":
            while left:
                left, letter = divmod(left - 1, 26)
                text = chr(ord("a") + letter) + text
        elif name == "Roman":
            for value, letters in _ROMAN:
                text += letters * (left // value)
                left %= value
    return (text.upper() if kind.startswith("upper") else text) or str(number)


@dataclass(frozen=True)
class _Level:
    start: int
    kind: str
    """`decimal`, `bullet` and so on."""
    text: str
    """Of the number: `%1.%2` has the counts of the first two levels."""
    above: int
    """Number of levels, from the first, whose items make it begin again."""
    legal: bool
    """Whether letters and Roman numerals become digits."""
    after: str
    style: str | None
    """Whose paragraphs are on this level."""


@dataclass(frozen=True)
class _List:
    counter: str
    """The `abstractNum` that counts its items, with those of other lists."""
    levels: dict[int, _Level]
    starts: dict[int, int]
    """By level, where its first item begins again."""


@dataclass(frozen=True)
class _Style:
    number: str | None = None
    """Of its list."""
    level: int | None = None
    base: str | None = None


class WordLists:
    """Counts the paragraphs of a Word document as Word does."""

    def __init__(self) -> None:
        self._styles: dict[str, _Style] = {}
        self._counters: dict[str, tuple[dict[int, _Level], str | None]] = {}
        """Levels of each `abstractNum`, or the style that has its list."""
        self._lists: dict[str, _List] = {}
        self.begin()

    def begin(self) -> None:
        """Starts a part: headers, text and notes are counted separately."""
        self._counts = defaultdict[str, dict[int, int]](dict)
        """By `abstractNum` and level."""
        self._begun = set[tuple[str, int]]()
        """Lists and levels that had an item."""
        self._joined = False
        """Whether the mark at the end of the paragraph before was deleted."""

    def add(self, element: Element, w: str) -> None:
        """Takes note of a `style`, `abstractNum` or `num`, before anything is counted; `w`: the namespace in braces."""
        tag = element.tag.removeprefix(w)
        if tag == "style":
            own = element.find(f"{w}pPr/{w}numPr")
            chosen = (None, None) if own is None else _choice(own, w)
            style = _Style(*chosen, value_of(element, "basedOn", w))
            self._styles[element.get(f"{w}styleId", "")] = style
        elif tag == "abstractNum":
            link = value_of(element, "numStyleLink", w)
            self._counters[element.get(f"{w}abstractNumId", "")] = _levels(element, w), link
        elif tag == "num":
            starts: dict[int, int] = {}
            levels: dict[int, _Level] = {}
            for change in element.iterfind(f"{w}lvlOverride"):
                levels |= _levels(change, w)
                if (start := number_of(value_of(change, "startOverride", w))) is not None:
                    starts[number_of(change.get(f"{w}ilvl")) or 0] = start
            counter = value_of(element, "abstractNumId", w) or ""
            self._lists[element.get(f"{w}numId", "")] = _List(counter, levels, starts)

    def count(self, paragraph: Element, w: str, *, empty: bool) -> str:
        """Counts the next paragraph of a part; returns what Word shows before its text, such as `2.1 `, or nothing."""
        joined, self._joined = self._joined, False
        properties = paragraph.find(f"{w}pPr")
        if properties is None:
            return ""
        changes = (properties.find(f"{w}rPr/{w}{gone}") for gone in ("del", "moveFrom"))
        if any(change is not None for change in changes):
            if empty:
                self._joined = joined
                return ""
            self._joined = True
        if joined:
            return ""
        styles = self._bases(value_of(properties, "pStyle", w))
        number, usual = self._of_styles(styles)
        level: int | None = None
        if (own := properties.find(f"{w}numPr")) is not None:
            chosen, level = _choice(own, w)
            number = chosen or number
        if number is None or (found := self._lists.get(number)) is None:
            return ""
        counter, levels = self._resolve(found)
        if level is None:
            # Word looks at the level that a style says only if no level says the style.
            of_style = {one.style: n for n, one in levels.items()}
            level = next((of_style[style] for style in styles if style in of_style), usual) or 0
        if (at := levels.get(level)) is None:
            return ""
        counts = self._counts[counter]
        if level in found.starts and (number, level) not in self._begun:
            counts.pop(level, None)
        self._begun.add((number, level))
        self._step(counts, found, levels, level)

        def show(match: re.Match[str]) -> str:
            of = int(match[1]) - 1
            kind = levels[of].kind if of in levels else "none"
            if kind == "none" or of not in counts:
                return ""
            digits = at.legal and kind != "decimalZero"
            return show_number(counts[of], "decimal" if digits else kind)

        text = "" if at.kind == "bullet" else re.sub("%([1-9])", show, at.text)
        return text and text + at.after

    def _step(
        self, counts: dict[int, int], found: _List, levels: dict[int, _Level], level: int
    ) -> None:
        """Counts an item."""
        for one in range(level + 1):
            if one not in counts:
                start = levels[one].start if one in levels else 1
                counts[one] = found.starts.get(one, start)
            elif one == level:
                counts[one] += 1
        for below in [n for n in counts if n > level]:
            if below not in levels or level < levels[below].above:
                del counts[below]

    def _bases(self, style: str | None) -> list[str]:
        """A style and those that it is based on."""
        found: list[str] = []
        while style is not None and style in self._styles and len(found) < MOST_BASES:
            found.append(style)
            style = self._styles[style].base
        return found

    def _of_styles(self, styles: Iterable[str]) -> tuple[str | None, int | None]:
        """The list and level that the first of these styles have."""
        said = [self._styles[style] for style in styles]
        return (
            next((one.number for one in said if one.number is not None), None),
            next((one.level for one in said if one.level is not None), None),
        )

    def _resolve(self, found: _List) -> tuple[str, dict[int, _Level]]:
        """Which `abstractNum` counts a list's items, and its levels."""
        counter = found.counter
        levels, link = self._counters.get(counter, ({}, None))
        if not levels and link is not None:
            number, _ = self._of_styles(self._bases(link))
            if (other := self._lists.get(number or "")) is not None:
                counter = other.counter
                levels, _ = self._counters.get(counter, ({}, None))
        return counter, levels | found.levels


def _levels(parent: Element, w: str) -> dict[int, _Level]:
    found: dict[int, _Level] = {}
    for level in parent.iterfind(f"{w}lvl"):
        at = number_of(level.get(f"{w}ilvl"))
        if at is None or at not in _LEVELS:
            continue
        above = number_of(value_of(level, "lvlRestart", w))
        found[at] = _Level(
            start=number_of(value_of(level, "start", w)) or 0,
            kind=value_of(level, "numFmt", w) or "decimal",
            text=(value_of(level, "lvlText", w) or "")[:MOST_CHARS],
            above=at if above is None else above,
            legal=(legal := level.find(f"{w}isLgl")) is not None and is_on(legal.get(f"{w}val")),
            after=_SPACES.get(value_of(level, "suff", w) or "tab", " "),
            style=value_of(level, "pStyle", w),
        )
    return found


def _choice(numbering: Element, w: str) -> tuple[str | None, int | None]:
    """The list and level of a `numPr`."""
    level = number_of(value_of(numbering, "ilvl", w))
    return value_of(numbering, "numId", w), level if level in _LEVELS else None


def value_of(parent: Element, tag: str, w: str) -> str | None:
    """The `val` of a child element; None if there is none."""
    child = parent.find(f"{w}{tag}")
    return None if child is None else child.get(f"{w}val")


def is_on(value: str | None) -> bool:
    """Whether an on/off attribute is on, as it is without a value."""
    return value not in ("0", "false", "off")


def number_of(text: str | None) -> int | None:
    """An attribute's integer; None if it isn't one."""
    return int(text) if text is not None and re.fullmatch(r"-?\d{1,9}", text.strip()) else None
