"""Unified diffs as pairs of texts: what to find, and its replacement."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from io import StringIO
from itertools import islice
from typing import NamedTuple

from memagent_bench.outside.base import BadData

FILE = re.compile(r'^\+\+\+ "?(?:b/)?([^"\t\r\n]+)')
OLD_FILE = re.compile(r'^--- "?(?:a/)?([^"\t\r\n]+)')
HUNK = re.compile(r"^@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
NO_LINE_END = re.compile(r"\n\\[^\n]*")
"""The mark in a diff below a last line that has no line end."""
NOTHING = "/dev/null"


class Edit(NamedTuple):
    """A change in one place."""

    path: str
    search: str
    """Text to replace; empty for a new file."""
    replace: str
    line: int | None = None
    """Its line once the edits before are made, from 0; None: wherever the text is found."""


def apply_patch(
    files: Mapping[str, str], diff: str, where: str, name: str
) -> tuple[dict[str, str], list[Edit]]:
    """Applies a unified diff. Returns the files after it, and its edits, each of a text that occurs once.

    Raises:
        BadData: it isn't a unified diff, or doesn't fit the files.
    """
    edits = list[Edit]()
    files = dict(files)
    for edit in edits_of(diff, where):
        text = files.get(edit.path)
        try:
            files = apply_edit(files, edit)
        except ValueError as error:
            raise BadData(f"{where}: {name} does not fit the repository: {error}") from error
        if text and _count(text, edit.search) != 1:
            edit = Edit(edit.path, text, files[edit.path])
        edits.append(edit)
    return files, edits


def edits_of(diff: str, where: str) -> Iterator[Edit]:
    """Yields the changes of a unified diff, in order.

    Raises:
        BadData: it is cut off, deletes a file, or isn't a unified diff.
    """
    lines = _lines(NO_LINE_END.sub("\0", diff.removesuffix("\n") + "\n"))
    path = old = ""
    has_hunk = False
    for line in lines:
        if named := OLD_FILE.match(line):
            old = named[1]
        elif named := FILE.match(line):
            path = named[1]
            if path == NOTHING:
                raise BadData(f"{where}: the patch deletes {old!r}, which isn't supported")
        elif head := HUNK.match(line):
            has_hunk = True
            left, start, right = (int(number or 1) for number in head.groups())
            search, replace = _hunk(lines, left, right, where)
            yield Edit(path, search, replace, None if old == NOTHING else start - (right > 0))
    if diff.strip() and not has_hunk:
        raise BadData(f"{where}: the patch isn't a unified diff: no line begins with @@")


def _hunk(lines: Iterator[str], left: int, right: int, where: str) -> tuple[str, str]:
    search, replace = list[str](), list[str]()
    while left > 0 or right > 0:
        line = next(lines, None)
        if line is None:
            raise BadData(f"{where}: the patch is cut off; fetch the data again")
        sign, text = line[:1], line[1:].removesuffix("\0\n")
        if sign != "+":
            search.append(text or "\n")
            left -= 1
        if sign != "-":
            replace.append(text or "\n")
            right -= 1
    return "".join(search), "".join(replace)


def apply_edit(files: Mapping[str, str], edit: Edit) -> dict[str, str]:
    """Returns the files after a change.

    Raises:
        ValueError: the text doesn't occur, or occurs more than once.
    """
    text = files.get(edit.path)
    if text is not None and edit.line is not None:
        at = sum(map(len, islice(_lines(text), edit.line)))
        if text.startswith(edit.search, at):
            text = text[:at] + edit.replace + text[at + len(edit.search) :]
            return {**files, edit.path: text}
    if not edit.search:
        if text:
            raise ValueError(f"{edit.path} exists; give the text to replace")
        return {**files, edit.path: edit.replace}
    if text is None:
        raise ValueError(f"there is no file {edit.path}")
    if (count := _count(text, edit.search)) != 1:
        raise ValueError(
            f"the text occurs {count} times in {edit.path}; give one that occurs once, with the lines around it"
        )
    return {**files, edit.path: text.replace(edit.search, edit.replace)}


def _count(text: str, search: str) -> int:
    """Counts how often a text occurs; 2 if it only overlaps itself."""
    return max(text.count(search), 2 * (text.find(search) != text.rfind(search)))


def _lines(text: str) -> Iterator[str]:
    """Yields lines as diffs count them: a form feed doesn't end one."""
    return StringIO(text, newline="\n")
