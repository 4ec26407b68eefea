"""Computes the numbers of list items: documents contain counting rules, not the numbers."""

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
"""Longest chain of styles based on one another: some files have cycles."""
MOST_CHARS = 100
"""Maximum characters of a number: without a limit, a small file could become a huge text."""
_SPACES = {"nothing": "", "space": " ", "tab": " "}


def show_number(number: int, kind: str) -> str:
    """Formats a number as Word does (`lowerRoman`), or in HTML's letters (`lowerAlpha`); unknown kinds give digits.

    Word counts a to z, aa, bb; HTML a to z, aa, ab.
    """
    text = ""
    if kind == "decimalZero":
        text = f"{number:02}"
    elif 0 < number < 4000:
        remainder, name = number, kind.removeprefix("lower").removeprefix("upper")
        if name == "Letter":
            text = chr(ord("a") + (remainder - 1) % 26) * ((remainder + 25) // 26)
        elif name == "Alpha":
            while remainder:
                remainder, letter = divmod(remainder - 1, 26)
                text = chr(ord("a") + letter) + text
        elif name == "Roman":
            for value, letters in _ROMAN:
                text += letters * (remainder // value)
                remainder %= value
    return (text.upper() if kind.startswith("upper") else text) or str(number)


@dataclass(frozen=True)
class _Level:
    start: int
    kind: str
    """Number format: `decimal`, `bullet` and so on."""
    text: str
    """Text of the number: `%1.%2` has the counts of the first two levels."""
    above: int
    """Number of levels, from the first, whose items restart this one."""
    legal: bool
    """Whether letters and Roman numerals are shown as digits."""
    after: str
    style: str | None
    """Style whose paragraphs are on this level."""


@dataclass(frozen=True)
class _List:
    counter: str
    """The `abstractNum` that counts its items, together with those of other lists."""
    levels: dict[int, _Level]
    starts: dict[int, int]
    """Start numbers by level, at which its first item restarts."""


@dataclass(frozen=True)
class _Style:
    number: str | None = None
    """Number of the style's list."""
    level: int | None = None
    base: str | None = None


class WordLists:
    """Counts the paragraphs of a Word document like Word."""

    def __init__(self) -> None:
        self._styles: dict[str, _Style] = {}
        self._counters: dict[str, tuple[dict[int, _Level], str | None]] = {}
        """Levels of each `abstractNum`, or the style that has its list."""
        self._lists: dict[str, _List] = {}
        self.begin()

    def begin(self) -> None:
        """Starts a part: headers, text and notes are counted separately."""
        self._counts = defaultdict[str, dict[int, int]](dict)
        """Counts by `abstractNum` and level."""
        self._begun = set[tuple[str, int]]()
        """Lists and levels that already had an item."""
        self._joined = False
        """Whether the mark at the end of the previous paragraph was deleted."""

    def add(self, element: Element, w: str) -> None:
        """Records a `style`, `abstractNum` or `num`, before anything is counted; `w`: the namespace in braces."""
        tag = element.tag.removeprefix(w)
        if tag == "style":
            properties = element.find(f"{w}pPr/{w}numPr")
            choice = (None, None) if properties is None else _choice(properties, w)
            style = _Style(*choice, value_of(element, "basedOn", w))
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
        """Counts a part's next paragraph; returns what Word shows before its text, such as `2.1 `, or nothing."""
        is_joined, self._joined = self._joined, False
        properties = paragraph.find(f"{w}pPr")
        if properties is None:
            return ""
        changes = (properties.find(f"{w}rPr/{w}{mark}") for mark in ("del", "moveFrom"))
        if any(change is not None for change in changes):
            if empty:
                self._joined = is_joined
                return ""
            self._joined = True
        if is_joined:
            return ""
        styles = self._bases(value_of(properties, "pStyle", w))
        number, default_level = self._of_styles(styles)
        level: int | None = None
        if (numbering := properties.find(f"{w}numPr")) is not None:
            own_number, level = _choice(numbering, w)
            number = own_number or number
        if number is None or (word_list := self._lists.get(number)) is None:
            return ""
        counter, levels = self._resolve(word_list)
        if level is None:
            # Word uses the level that a style names only if no level names the style.
            levels_by_style = {definition.style: n for n, definition in levels.items()}
            level = (
                next(
                    (levels_by_style[style] for style in styles if style in levels_by_style),
                    default_level,
                )
                or 0
            )
        if (rule := levels.get(level)) is None:
            return ""
        counts = self._counts[counter]
        if level in word_list.starts and (number, level) not in self._begun:
            counts.pop(level, None)
        self._begun.add((number, level))
        self._step(counts, word_list, levels, level)

        def show(match: re.Match[str]) -> str:
            index = int(match[1]) - 1
            kind = levels[index].kind if index in levels else "none"
            if kind == "none" or index not in counts:
                return ""
            digits = rule.legal and kind != "decimalZero"
            return show_number(counts[index], "decimal" if digits else kind)

        text = "" if rule.kind == "bullet" else re.sub("%([1-9])", show, rule.text)
        return text and text + rule.after

    def _step(
        self, counts: dict[int, int], word_list: _List, levels: dict[int, _Level], level: int
    ) -> None:
        """Counts an item."""
        for index in range(level + 1):
            if index not in counts:
                start = levels[index].start if index in levels else 1
                counts[index] = word_list.starts.get(index, start)
            elif index == level:
                counts[index] += 1
        for below in [n for n in counts if n > level]:
            if below not in levels or level < levels[below].above:
                del counts[below]

    def _bases(self, style: str | None) -> list[str]:
        """Returns a style and those that it is based on."""
        bases: list[str] = []
        while style is not None and style in self._styles and len(bases) < MOST_BASES:
            bases.append(style)
            style = self._styles[style].base
        return bases

    def _of_styles(self, styles: Iterable[str]) -> tuple[str | None, int | None]:
        """Returns the list and the level that the first of these styles define."""
        definitions = [self._styles[style] for style in styles]
        return (
            next(
                (definition.number for definition in definitions if definition.number is not None),
                None,
            ),
            next(
                (definition.level for definition in definitions if definition.level is not None),
                None,
            ),
        )

    def _resolve(self, word_list: _List) -> tuple[str, dict[int, _Level]]:
        """Returns the `abstractNum` that counts a list's items, and its levels."""
        counter = word_list.counter
        levels, link = self._counters.get(counter, ({}, None))
        if not levels and link is not None:
            number, _ = self._of_styles(self._bases(link))
            if (other := self._lists.get(number or "")) is not None:
                counter = other.counter
                levels, _ = self._counters.get(counter, ({}, None))
        return counter, levels | word_list.levels


def _levels(parent: Element, w: str) -> dict[int, _Level]:
    levels: dict[int, _Level] = {}
    for level in parent.iterfind(f"{w}lvl"):
        index = number_of(level.get(f"{w}ilvl"))
        if index is None or index not in _LEVELS:
            continue
        above = number_of(value_of(level, "lvlRestart", w))
        levels[index] = _Level(
            start=number_of(value_of(level, "start", w)) or 0,
            kind=value_of(level, "numFmt", w) or "decimal",
            text=(value_of(level, "lvlText", w) or "")[:MOST_CHARS],
            above=index if above is None else above,
            legal=(legal := level.find(f"{w}isLgl")) is not None and is_on(legal.get(f"{w}val")),
            after=_SPACES.get(value_of(level, "suff", w) or "tab", " "),
            style=value_of(level, "pStyle", w),
        )
    return levels


def _choice(numbering: Element, w: str) -> tuple[str | None, int | None]:
    """Returns the list and level of a `numPr`."""
    level = number_of(value_of(numbering, "ilvl", w))
    return value_of(numbering, "numId", w), level if level in _LEVELS else None


def value_of(parent: Element, tag: str, w: str) -> str | None:
    """Returns the `val` of a child element; None if there is none."""
    child = parent.find(f"{w}{tag}")
    return None if child is None else child.get(f"{w}val")


def is_on(value: str | None) -> bool:
    """Returns whether an on/off attribute is on; without a value it is."""
    return value not in ("0", "false", "off")


def number_of(text: str | None) -> int | None:
    """Parses an attribute's integer; None if it isn't one."""
    return int(text) if text is not None and re.fullmatch(r"-?\d{1,9}", text.strip()) else None
