"""Unified diffs as pairs of texts to find and to put in their place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from memagent_bench.outside.base import BadData

FILE = re.compile(r"^\+\+\+ (?:b/)?(\S+)")
OLD_FILE = re.compile(r"^--- (?:a/)?(\S+)")
HUNK = re.compile(r"^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
NOTHING = "/dev/null"


class Edit(NamedTuple):
    """A change of one place."""

    path: str
    search: str
    """What stands there; empty for a new file."""
    replace: str


def edits_of(diff: str, where: str) -> Iterator[Edit]:
    """The changes of a unified diff, in order.

    Raises:
        BadData: it is cut off, deletes a file, or isn't a unified diff.
    """
    lines = iter(diff.splitlines(keepends=True))
    path = old = ""
    found = False
    for line in lines:
        if named := OLD_FILE.match(line):
            old = named[1]
        elif named := FILE.match(line):
            path = named[1]
            if path == NOTHING:
                raise BadData(f"{where}: the patch deletes {old!r}, which isn't supported")
        elif head := HUNK.match(line):
            found = True
            left, right = (int(count or 1) for count in head.groups())
            search, replace = _hunk(lines, left, right, where)
            yield Edit(path, search, replace)
    if diff.strip() and not found:
        raise BadData(f"{where}: the patch isn't a unified diff: no line begins with @@")


def _hunk(lines: Iterator[str], left: int, right: int, where: str) -> tuple[str, str]:
    search, replace = list[str](), list[str]()
    while left > 0 or right > 0:
        line = next(lines, None)
        if line is None:
            raise BadData(f"{where}: the patch is cut off; fetch the data again")
        sign, text = line[:1], line[1:]
        if sign == "\\":
            continue
        if sign != "+":
            search.append(text or "\n")
            left -= 1
        if sign != "-":
            replace.append(text or "\n")
            right -= 1
    return "".join(search), "".join(replace)


def apply_edit(files: Mapping[str, str], edit: Edit) -> dict[str, str]:
    """The files after a change.

    Raises:
        ValueError: the text doesn't stand there, or stands there more than once.
    """
    text = files.get(edit.path)
    if not edit.search:
        if text:
            raise ValueError(f"{edit.path} exists; give the text to replace")
        return {**files, edit.path: edit.replace}
    if text is None:
        raise ValueError(f"there is no file {edit.path}")
    if (count := text.count(edit.search)) != 1:
        raise ValueError(
            f"the text occurs {count} times in {edit.path}; give one that occurs once, with the lines around it"
        )
    return {**files, edit.path: text.replace(edit.search, edit.replace)}
