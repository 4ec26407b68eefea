"""Documents that come from files: text, formats that are converted to text, and several files as one document."""

import errno
import os
import re
import stat
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from glob import iglob
from io import FileIO
from pathlib import Path
from typing import cast

from memagent.documents.filters import text_of
from memagent.documents.streams import IterableSource, blocks
from memagent.errors import (
    BinaryDocument,
    DocumentError,
    DocumentNotFound,
    EmptyDocument,
    MemagentError,
)
from memagent.texts import expand, name_error
from memagent_formats import Passage, convert_file, convert_text

BEGINNING = 2**16
"""Bytes by which a file that was written anew while it was read is told from one that grew."""
KEPT = 2**23
"""How many characters back line numbers are kept: places are looked up soon after reading. A chunk for a window of two
million tokens has about as many."""


class Places:
    """Labels such as `p. 12` or `notes.txt:31`, by the character at which they begin.

    Labels before the last one found are dropped.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._places: list[tuple[str, int, Sequence[int]]] = []  # label, line, where lines end
        self._without_lines = 0

    def begin(self, at: int, passage: Passage) -> None:
        """Records that a place begins at a character, after all earlier places."""
        text, place, line = passage
        self._starts.append(at)
        ends = array("I", (end.start() for end in re.finditer("\n", text))) if line else ()
        self._places.append((place or "", line, ends))
        while self._starts[index := self._without_lines] < at - KEPT:
            self._places[index] = (self._places[index][0], 0, ())
            self._without_lines += 1

    def find(self, start: int, end: int) -> str:
        """Names the place of the text from `start` to `end`: `p. 3`, `p. 3 to p. 5` or `a.txt:31-40`; empty if none."""
        first = max(bisect_right(self._starts, start) - 1, 0)
        del self._starts[:first], self._places[:first]
        self._without_lines = max(self._without_lines - first, 0)
        last = bisect_left(self._starts, end) - 1
        if last < 0:
            return ""
        place, line, label = self._place(0, start)
        end_place, end_line, end_label = self._place(last, end - 1)
        if label == end_label:
            return label
        return f"{label}-{end_line}" if line and place == end_place else f"{label} to {end_label}"

    def _place(self, number: int, at: int) -> tuple[str, int, str]:
        """Returns the place of a character in a passage, its line (0 if lines aren't kept), and both as a label."""
        place, line, ends = self._places[number]
        line = line and line + bisect_left(ends, at - self._starts[number])
        return place, line, f"{place}:{line}" if line else place


class _PassageSource(IterableSource, ABC):
    """A source whose text comes in passages, which have places."""

    places = Places()

    def read(self) -> Generator[str]:
        """Like `pieces`, without an event loop; notes where places begin."""
        with closing(self._text_of_passages()) as texts:
            yield from filter(None, text_of(texts, self.name, None, "strict"))

    @abstractmethod
    def passages(self) -> Generator[Passage]:
        """Yields the text, with the places that begin in it."""

    def _text_of_passages(self) -> Generator[str]:
        places, at = Places(), 0
        self.places = places
        with closing(self.passages()) as passages:
            for passage in passages:
                if passage.place:
                    places.begin(at, passage)
                at += len(passage.text)
                yield passage.text


class FileSource(_PassageSource):
    """A file named by its path: text, plain or gzip, or a format that `memagent_formats` converts."""

    def __init__(self, path: str, name: str | None, encoding: str | None, errors: str) -> None:
        super().__init__(expand(path), name or path, encoding, errors)
        try:
            status = self._source.stat()
        except (OSError, ValueError) as error:  # a NUL in the path
            raise _not_found(self._source, error) from error
        self.path = str(self._source.absolute())  # keeps lone surrogates, or it would not open
        # Pipes and devices have no length, and can't be read twice.
        self.rereadable = stat.S_ISREG(status.st_mode)
        self.size = status.st_size if self.rereadable else None

    def passages(self) -> Generator[Passage]:
        """See `_PassageSource.passages`."""
        passages = self._convert()
        if passages is None:
            label, line = self.name.rsplit("/", 1)[-1], 1
            for text in IterableSource.read(self):
                yield Passage(text, label, line)
                line += text.count("\n")
            return
        try:
            yield from passages
        except (MemagentError, MemoryError):
            raise
        except Exception as error:  # each parser fails on damaged files in its own way
            raise BinaryDocument(f"{self.name!r} is broken: {name_error(error)}") from error

    def _convert(self) -> Generator[Passage] | None:
        """Returns the file's converted passages if its format needs that, else None. Nothing is converted yet."""
        passages = convert_text(self._source, IterableSource.read(self), self.name)
        if passages is not None or not self.rereadable:
            return passages
        with closing(self._items()) as items:
            start = cast("bytes", next(items, b""))
        return convert_file(self._source, start, self.name, *self._decoding)

    def _items(self) -> Generator[object]:
        try:
            file = self._source.open("rb", buffering=0)
        except OSError as error:
            raise _not_found(self._source, error) from error
        with file:
            before = self._stamp(file)
            yield from blocks(file, self.name)
            now = self._stamp(file)
        grows = now[0] > before[0] and now[1].startswith(before[1])  # as a log may
        if now != before and not grows:
            raise DocumentError(
                f"{self.name!r} changed while it was read: restore it and resume, or read it again as a new run"
            )

    def _stamp(self, file: FileIO) -> tuple[int, bytes, int]:
        """Returns the size, the beginning and the time of the last change; nothing for a pipe."""
        if not self.rereadable:
            return 0, b"", 0
        status = os.fstat(file.fileno())
        return status.st_size, os.pread(file.fileno(), BEGINNING, 0), status.st_mtime_ns


class FilesSource(_PassageSource):
    """Several files as one document, in the given order, each under a line with its name.

    Their formats may differ. Each file is a place, and so are the places in it: `minutes.pdf: p. 3`.
    """

    def __init__(
        self, paths: Sequence[Path], name: str, encoding: str | None, errors: str, *names: str
    ) -> None:
        super().__init__(paths, name, encoding, errors)
        self._files = [FileSource(str(path), None, encoding, errors) for path in paths]
        self._names = names or [file.name for file in self._files]
        self.rereadable = all(file.rereadable for file in self._files)
        sizes = [file.size for file in self._files]
        self.size = None if None in sizes else sum(filter(None, sizes))

    def passages(self) -> Generator[Passage]:
        """See `_PassageSource.passages`."""
        for name, file in zip(self._names, self._files, strict=True):
            yield Passage(f"[file {name}]\n\n", name)
            blank = True
            with closing(file.passages()) as passages:
                for text, place, line in passages:
                    yield Passage(text, name if line else place and f"{name}: {place}", line)
                    blank = blank and not text.strip()
            if blank:
                raise EmptyDocument(f"{file.name!r} is empty: it has no text to read")
            yield Passage("\n\n")


class FolderSource(FilesSource):
    """The files of a folder or a pattern (see `list_files`), each named by its path below the folder."""

    def __init__(self, path: str, name: str | None, encoding: str | None, errors: str) -> None:
        place = expand(path).absolute()
        folder, paths = list_files(place)
        if not paths:
            text = "the folder {!r} has no files" if folder == place else "no file matches {!r}"
            raise DocumentNotFound(text.format(path))
        labels = [path.relative_to(folder).as_posix() for path in paths]
        super().__init__(paths, name or path, encoding, errors, *labels)
        self.path = str(place)


def list_files(path: Path) -> tuple[Path, list[Path]]:
    """Lists a folder and its files, at any depth and sorted; or the folder that a pattern begins with, and its matches.

    In a pattern, `**` is any number of folders. Names with a leading dot are left out. Links are followed, but each
    folder is entered and each file listed once, by a real path if any. A file's path is never a pattern. Blocks.

    Raises:
        DocumentNotFound: a folder can't be listed.
    """
    if os.path.isfile(path):  # noqa: PTH113 - pathlib raises; `_is_file` is for what was listed
        return path.parent, [path]
    folder = next(filter(os.path.isdir, (path, *path.parents)))
    parts = list(path.relative_to(folder).parts) or ["**"]
    matches = [folder]
    for part in [*parts, "*"] if parts[-1] == "**" else parts:
        matches = [inner for outer in matches for inner in _match(outer, part)]
    files, root = dict[Path, Path](), folder.resolve()
    for file in sorted(filter(_is_file, matches), key=Path.as_posix):
        subpath, target = file.relative_to(folder), file.resolve()
        if not any(part.startswith(".") for part in subpath.parts):
            files[target] = file if target == root / subpath else files.get(target, file)
    return folder, sorted(files.values(), key=Path.as_posix)


def _match(folder: Path, part: str) -> Iterator[Path]:
    """Yields a pattern part's matches in a folder; for `**` it and those below, each once, links last, no parents."""
    if part != "**":
        next(os.walk(folder, onerror=_refuse), None)  # glob is silent about what it can't list
        yield from (folder / name for name in iglob(part, root_dir=folder))  # noqa: PTH207 - Path.glob takes no `a**`
        return
    targets, starts = set(folder.resolve().parents), [folder]
    for start in starts:
        for parent, names, _ in os.walk(start, onerror=_refuse):
            target = Path(parent).resolve()
            names[:] = sorted(name for name in names if target not in targets and name[0] != ".")
            starts += (path for name in names if (path := Path(parent, name)).is_symlink())
            if target not in targets:
                targets.add(target)
                yield Path(parent)


def _is_file(path: Path) -> bool:
    """Returns whether a path is a file. True if that is unknown, as for a broken link: reading it reports why."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError as error:
        return error.errno != errno.ELOOP


def _refuse(error: OSError) -> None:
    if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):  # else it isn't a folder
        raise _not_found(error.filename, error) from error


def _not_found(path: object, error: Exception) -> DocumentNotFound:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    advice = "check the path and its permissions"
    if str(path).startswith(("http:/", "https:/")):
        advice = "memagent doesn't download documents: fetch the file first, and give its path"
    return DocumentNotFound(f"{str(path)!r} cannot be read: {reason}; {advice}")
