"""Texts that left are found again, by programs and by models."""

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest

from memagent.errors import BadArguments, UnknownHandle
from memagent.session.context.archive import FileArchive, read_archived
from memagent.tokens.byte_bound import ByteBound
from memagent.tools.base import Run


@pytest.mark.parametrize(
    "text",
    ["", "plain", "\ud800 half", "\x00\u4e2d" * 5000],
    ids=["empty", "plain", "surrogate", "long"],
)
def test_a_text_is_given_back_as_it_was(text: str) -> None:
    archive = FileArchive()
    handle = archive.put(text)
    assert archive.put(text) == handle
    assert archive.get(handle) == text
    archive.close()
    assert FileArchive().put(text) == handle  # the same in every process


def test_an_unknown_handle_is_named() -> None:
    archive = FileArchive()
    with pytest.raises(UnknownHandle, match=r"'t12'.*use a handle"):
        archive.get("t12")
    handle = archive.put("gone")
    archive.close()
    with pytest.raises(UnknownHandle):
        archive.get(handle)
    archive.close()


def test_no_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQLITE_TMPDIR", str(tmp_path))
    archive = FileArchive()
    for number in range(200):
        archive.put(f"{number} " * 50_000)
    archive.close()
    assert list(tmp_path.iterdir()) == []


def test_memory_does_not_grow_with_it() -> None:
    resource = pytest.importorskip("resource")

    def peak() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB

    archive = FileArchive()
    block = "".join(hashlib.sha256(bytes([i])).hexdigest() for i in range(256)) * 16
    for number in range(40):
        archive.put(f"{number}{block}")
    before = peak()
    for number in range(400):
        archive.put(f"more {number}{block}")
    assert peak() - before < 40_000  # of 105 MB
    archive.close()


@pytest.fixture
def reading() -> tuple[Run, str, str]:
    archive = FileArchive()
    text = "".join(f"line {number}\n" for number in range(200))
    return read_archived(archive, ByteBound(), 300).run, archive.put(text), text


async def test_a_span_is_read_as_it_is(reading: tuple[Run, str, str]) -> None:
    run, handle, text = reading
    assert await run({"handle": handle, "start": 5, "end": 25}) == text[5:25]
    assert await run({"handle": handle, "start": len(text) - 9, "end": 10**9}) == text[-9:]


async def test_a_long_span_is_read_in_parts_by_what_it_says(
    reading: tuple[Run, str, str],
) -> None:
    run, handle, text = reading
    parts, start = list[str](), 0
    for _ in range(100):
        part = await run({"handle": handle, "start": start})
        assert ByteBound().count(part) <= 300
        body, _, note = part.partition("\n[continues: ")
        parts.append(body)
        if not note:
            break
        start = int(note.split("start=")[1].split(",")[0])
    assert "".join(parts) == text


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"handle": "t0"}, UnknownHandle, "nothing is kept as 't0'"),
        ({}, BadArguments, "handle"),
        ({"handle": 7}, BadArguments, "handle"),
        ({"start": "first"}, BadArguments, "start"),
        ({"end": 1.5}, BadArguments, "end"),
        ({"start": -1}, ValueError, "there is nothing from -1"),
        ({"start": 9, "end": 9}, ValueError, "from 9 to 9"),
        ({"start": 10**9}, ValueError, "the text has 1690 characters"),
    ],
    ids=str,
)
async def test_what_cannot_be_read_is_said(
    reading: tuple[Run, str, str],
    arguments: dict[str, Any],
    error: type[Exception],
    says: str,
) -> None:
    run, handle, _ = reading
    given = arguments if "handle" in arguments or not arguments else {"handle": handle} | arguments
    with pytest.raises(error, match=says):
        await run(given)


async def test_many_threads_use_it_at_once() -> None:
    archive = FileArchive()
    texts = [f"text {number}" for number in range(200)]
    handles = await asyncio.gather(*(asyncio.to_thread(archive.put, text) for text in texts))
    found = await asyncio.gather(*(asyncio.to_thread(archive.get, handle) for handle in handles))
    assert found == texts
    await asyncio.to_thread(archive.close)
