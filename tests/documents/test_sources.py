"""The kinds of source: what is special about each, and what is refused."""

import asyncio
import gzip
import io
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from memagent.documents import PIECE_CHARS, Document, open_document
from memagent.errors import (
    BinaryDocument,
    ConfigError,
    DecodingError,
    DocumentError,
    DocumentNotFound,
    EmptyDocument,
)


def text_of(source: Any, **options: Any) -> str:
    return read(open_document(source, **options))


def read(document: Document) -> str:
    async def joined() -> str:
        return "".join([piece async for piece in document.pieces()])

    return asyncio.run(joined())


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("a.txt", r"Path\('a.txt'\)"),
        ("~/a.txt", "Path"),
        ("https://example.com/book", "download it"),
    ],
)
def test_a_str_is_text_with_a_warning_where_it_names_a_file_or_a_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, advice: str
) -> None:
    (tmp_path / "a.txt").write_text("content")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.warns(UserWarning, match=f"is taken as the text itself.*{advice}") as caught:
        assert text_of(text) == text
    assert caught[0].filename == "memagent"
    assert text_of(Path("a.txt")) == "content"


def test_a_list_of_file_names_is_text_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{n}.txt" for n in range(9)]
    for name in names:
        (tmp_path / name).write_text("content")
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match=r"pass Path\('\d.txt'\) to read it") as caught:
        assert text_of(names) == "".join(names)
    assert len(caught) == 3
    assert text_of(["a line", "0.txt\n", "0.txt" * 999])


@pytest.mark.parametrize(
    "text", ["gone.txt", "a.txt\n", "x\0y", "~x\0y", "see https://example.com", "y" * 9999]
)
def test_other_strs_bring_no_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / "a.txt").write_text("content")
    monkeypatch.chdir(tmp_path)
    assert text_of(text) == text


def test_a_path_that_is_a_url_is_not_fetched() -> None:
    with pytest.raises(DocumentNotFound, match="doesn't download documents: fetch the file first"):
        open_document(Path("https://example.com/a.txt"))


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("content")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert text_of(Path("~/a.txt")) == "content"
    assert open_document(Path("~/a.txt")).path == str(tmp_path / "a.txt")
    with pytest.raises(DocumentNotFound, match="nobody-of-that-name"):
        open_document(Path("~nobody-of-that-name/a.txt"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "~notes.txt").write_text("notes")
    assert text_of(Path("~notes.txt")) == "notes"
    assert text_of([Path("~notes.txt")]) == "[file ~notes.txt]\n\nnotes\n\n"


def test_a_path_document_knows_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("content")
    monkeypatch.chdir(tmp_path)
    document = open_document(Path("a.txt"), encoding="latin-1", errors="replace")
    assert document.path == str(tmp_path / "a.txt")
    assert (document.name, document.size, document.rereadable) == ("a.txt", 7, True)
    assert document.options == {"encoding": "latin-1", "errors": "replace"}
    assert open_document(Path("a.txt"), name="notes").name == "notes"


def test_missing_directory_and_forbidden_paths_are_not_found(tmp_path: Path) -> None:
    with pytest.raises(DocumentNotFound, match=r"none\.txt.*No such file"):
        open_document(tmp_path / "none.txt")
    with pytest.raises(DocumentNotFound, match="has no files"):
        open_document(tmp_path)
    for path in (Path("a\0b"), Path("~a\0b")):
        with pytest.raises(DocumentNotFound):
            open_document(path)


def test_no_permission_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret.txt"
    file.write_text("x")

    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    document = open_document(file)
    monkeypatch.setattr(Path, "open", refuse)  # root may read everything, so it is played
    with pytest.raises(DocumentNotFound, match=r"secret\.txt.*Permission denied"):
        read(document)


@pytest.mark.parametrize("source", [None, 3, 2.5, {"a": 1}, {"a"}, object()])
def test_what_is_no_source_is_refused_with_its_type(source: Any) -> None:
    with pytest.raises(DocumentError, match=f"type {type(source).__name__}.*accepted are str"):
        open_document(source)


def test_bad_options_are_refused_before_anything_is_read() -> None:
    with pytest.raises(ConfigError):
        open_document("text", encoding="utf-9")
    with pytest.raises(ConfigError):
        open_document("text", errors="maybe")


@pytest.mark.parametrize("source", ["", b"", [], iter(()), io.StringIO(), io.BytesIO()])
def test_empty_sources_say_so_when_read(source: Any) -> None:
    with pytest.raises(EmptyDocument):
        text_of(source)


def test_errors_name_the_document(tmp_path: Path) -> None:
    file = tmp_path / "odd.bin"
    file.write_bytes(b"\x7fELF\x02\x01\x01")
    with pytest.raises(BinaryDocument, match=r"odd\.bin.*ELF"):
        text_of(file)
    file.write_bytes(gzip.compress(b"text" * 99)[:-3])
    with pytest.raises(DocumentError, match=r"odd\.bin.*truncated"):
        text_of(file)
    file.write_bytes(gzip.compress(b"%PDF-1.4"))
    with pytest.raises(BinaryDocument, match="PDF"):
        text_of(file)


def test_open_files_are_read_from_where_they_stand_each_time() -> None:
    binary = io.BytesIO(b"skipped, kept")
    binary.seek(9)
    document = open_document(binary)
    assert read(document) == "kept"  # type: ignore[attr-defined]
    assert read(document) == "kept"  # type: ignore[attr-defined]


@pytest.mark.parametrize("make", [io.BytesIO, lambda data: io.StringIO(data.decode())])
def test_a_reading_leaves_an_open_file_where_it_was(make: Any) -> None:
    file = make(b"skipped, " + b"kept" * PIECE_CHARS)
    file.seek(9)
    pieces = open_document(file).read()  # type: ignore[attr-defined]
    next(pieces)
    pieces.close()
    assert text_of(file) == text_of(file) == "kept" * PIECE_CHARS
    assert file.tell() == 9


def test_an_open_file_is_not_shared_by_two_readings() -> None:
    file = io.BytesIO(b"kept" * PIECE_CHARS)
    early = open_document(file)

    async def overlap() -> None:
        async with aclosing(open_document(file).pieces()) as pieces:  # type: ignore[type-var]
            await anext(pieces)
            for document in (early, open_document(file)):
                with pytest.raises(DocumentError, match=r"<file>.*wait, or open it once more"):
                    await anext(document.pieces())  # type: ignore[arg-type]

    asyncio.run(overlap())
    assert text_of(file) == "kept" * PIECE_CHARS


def test_a_file_closed_during_its_reading_says_so() -> None:
    file = io.BytesIO(b"kept" * PIECE_CHARS)
    pieces = open_document(file).read()  # type: ignore[attr-defined]
    next(pieces)
    file.close()
    with pytest.raises(DocumentError, match="closed file"):
        list(pieces)


@pytest.mark.parametrize("size", [0, 70_000, 4 * PIECE_CHARS])
def test_a_file_that_shrinks_or_is_overwritten_while_it_is_read_is_refused(
    tmp_path: Path, size: int
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("kept" * PIECE_CHARS)
    pieces = open_document(path).read()  # type: ignore[attr-defined]
    next(pieces)
    with path.open("r+b") as file:
        file.truncate(0)
        file.write(b"new " * (size // 4))
    os.utime(path, (1, 1))
    with pytest.raises(DocumentError, match=r"a\.txt.*changed while it was read.*resume"):
        list(pieces)


def test_a_file_may_grow_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("kept" * PIECE_CHARS)
    pieces = open_document(path).read()  # type: ignore[attr-defined]
    first = next(pieces)
    with path.open("a") as file:
        file.write("more")
    assert "".join([first, *pieces]) == "kept" * PIECE_CHARS + "more"


def test_a_pipe_can_be_read_once() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as out:
        out.write("données".encode())
    with os.fdopen(reading, "rb") as pipe:
        document = open_document(pipe, name="<stdin>")
        assert not document.rereadable
        assert read(document) == "données"  # type: ignore[attr-defined]
        with pytest.raises(DocumentError, match=r"<stdin>.*read only once"):
            read(document)


def test_a_fifo_path_is_a_stream(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    document = open_document(fifo)
    assert (document.rereadable, document.size) == (False, None)
    writer = threading.Thread(target=fifo.write_text, args=("through a pipe",))
    writer.start()
    assert read(document) == "through a pipe"  # type: ignore[attr-defined]
    writer.join()


def test_files_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"caf\xe9")
    with path.open("rb") as file:
        pass
    with pytest.raises(DocumentError, match="closed file"):
        text_of(file)
    with path.open("ab") as file, pytest.raises(DocumentError, match="cannot be read"):
        text_of(file)
    with path.open(encoding="utf-8") as file, pytest.raises(DecodingError, match="binary mode"):
        text_of(file)


def test_a_generators_own_error_is_not_disguised() -> None:
    def broken() -> Iterator[str]:
        yield "a"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        text_of(broken())


def test_surrogates_in_text_sources_are_refused() -> None:
    for source in ("a\udc80b", iter(["a\udc80b"]), io.StringIO("a\udc80b")):
        with pytest.raises(DecodingError, match="character 1 "):
            text_of(source)


async def test_many_small_async_items_are_gathered() -> None:
    async def words() -> AsyncIterator[str]:
        for i in range(5000):
            yield f"{i} "

    pieces = [piece async for piece in open_document(words()).pieces()]
    assert len(pieces) == 1
    assert pieces[0].startswith("0 1 2 ")


async def test_the_loop_runs_while_a_source_blocks() -> None:
    release = threading.Event()

    def slow() -> Iterator[str]:
        yield "a"
        release.wait(10)
        yield "b"

    reader = asyncio.create_task(anext(open_document(slow()).pieces()))  # type: ignore[arg-type]
    await asyncio.sleep(0.05)
    assert not reader.done()
    release.set()
    assert await reader == "ab"


class Held:
    """A generator of each kind that notes when it is closed, and where it stands."""

    def __init__(self) -> None:
        self.closed = threading.Event()
        self.go_on = threading.Event()
        self.entered = threading.Event()
        """It waits for `go_on`."""

    def sync(self) -> Iterator[str]:
        try:
            yield "a" * PIECE_CHARS
            self.entered.set()
            self.go_on.wait(10)
            yield "b" * PIECE_CHARS
            yield "c"
        finally:
            self.closed.set()

    async def later(self) -> AsyncIterator[str]:
        try:
            for item in ("a" * PIECE_CHARS, "b", "c"):
                yield item
                await asyncio.sleep(0)
        finally:
            await asyncio.sleep(0)
            self.closed.set()


@pytest.mark.parametrize("kind", ["sync", "later"])
async def test_a_generator_is_closed_when_reading_stops_early(kind: str) -> None:
    held = Held()
    source = getattr(held, kind)()
    async with aclosing(open_document(source).pieces()) as pieces:  # type: ignore[type-var]
        await anext(pieces)
        assert not held.closed.is_set()
    assert held.closed.is_set()


async def test_an_async_generator_is_closed_when_reading_is_cancelled_or_fails() -> None:
    async def read(source: AsyncIterator[str]) -> None:
        async with aclosing(open_document(source).pieces()) as pieces:  # type: ignore[type-var]
            async for _ in pieces:
                await asyncio.sleep(10)

    held = Held()
    source = held.later()
    task = asyncio.create_task(read(source))
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert held.closed.is_set()

    held = Held()

    async def mixed() -> AsyncIterator[Any]:
        try:
            yield "a"
            yield 3
        finally:
            held.closed.set()

    items = mixed()
    with pytest.raises(DocumentError, match="items must be str or bytes"):
        await read(items)
    assert held.closed.is_set()


async def test_a_generator_is_closed_after_a_cancel_while_a_thread_is_in_it() -> None:
    held = Held()
    source = held.sync()
    document = open_document(source)

    async def read() -> None:
        async for _ in document.pieces():
            pass

    task = asyncio.create_task(read())
    assert await asyncio.to_thread(held.entered.wait, 10)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not held.closed.is_set()  # its thread still waits in it
    held.go_on.set()
    assert await asyncio.to_thread(held.closed.wait, 5)


class Lines:
    """An iterator that could be closed, but is no generator."""

    closed = False

    def __iter__(self) -> "Lines":
        return self

    def __next__(self) -> str:
        return "a" * PIECE_CHARS

    def close(self) -> None:
        self.closed = True


class AsyncLines:
    """The same, to be awaited."""

    closed = False

    def __aiter__(self) -> "AsyncLines":
        return self

    async def __anext__(self) -> str:
        return "a" * PIECE_CHARS

    async def aclose(self) -> None:
        self.closed = True


async def test_what_the_caller_opened_is_left_open(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a" * 3 * PIECE_CHARS)
    with (tmp_path / "a.txt").open("rb") as file:
        for source in (Lines(), AsyncLines(), file):
            pieces: Any = open_document(source).pieces()
            await anext(pieces)
            await pieces.aclose()
            assert not source.closed


def test_a_file_whose_name_is_no_text(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.txt"))
    path.write_text("Pierre weds Natasha.")
    document = open_document(path)
    assert document.name == f"{tmp_path}/bad\\udcff.txt"
    assert document.path == str(path)
    assert text_of(path) == "Pierre weds Natasha."
    with path.open("rb") as file:
        assert open_document(file).name == document.name
    assert open_document("text", name="\ud800").name == "\\ud800"
    missing = path.with_suffix(".gone")
    with pytest.raises(DocumentNotFound) as caught:
        open_document(missing)
    str(caught.value).encode()
