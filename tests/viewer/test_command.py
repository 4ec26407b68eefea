import signal
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from tests.cli.conftest import Invoke, Started, book, invoke, made, only_json, start
from tests.disk import full_disk

from memagent import RunStore

__all__ = ["book", "invoke", "made", "start"]


def test_a_file_is_written(invoke: Invoke, made: str, tmp_path: Path) -> None:
    file = tmp_path / "run.html"
    done = invoke("show", made, "--html", file)
    assert done.exit_code == 0
    assert done.stdout == f"wrote {file} (0.1 MB)\n"
    assert file.read_text().startswith("<!doctype html>")
    said = only_json(invoke("show", made, "--html", file, "--json").stdout)
    assert said == {"html": str(file), "bytes": file.stat().st_size}


def test_a_full_disk_keeps_the_page_of_before(invoke: Invoke, made: str, tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    (file := folder / "run.html").write_text("of before")
    with full_disk(40_000):
        done = invoke("show", made, "--html", file)
    assert done.exit_code == 2
    assert f"cannot write '{file}' (File too large): name another --html" in done.stderr
    assert file.read_text() == "of before"
    assert list(folder.iterdir()) == [file]


def test_two_runs(invoke: Invoke, made: str, tmp_path: Path) -> None:
    file = tmp_path / "run.html"
    assert invoke("show", made, "--beside", made, "--html", file).exit_code == 0
    assert invoke("show", made, "--beside", "nosuch", "--html", file).exit_code == 5


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--html", "x.html", "--live"], "give one of them"),
        (["--beside", "made"], "--beside needs one of them"),
        (["--html", "x.html", "--question", "0"], "a page and --question can't be shown together"),
        (["--html", "no/such/folder/x.html"], "cannot write --html 'no/such/folder/x.html'"),
    ],
)
def test_wrong_options(invoke: Invoke, made: str, args: list[str], words: str) -> None:
    done = invoke("show", made, *args)
    assert done.exit_code == 2
    assert words in done.stderr


def test_the_page_is_not_written_over_the_document(
    invoke: Invoke, made: str, book: Path, tmp_path: Path
) -> None:
    before = book.read_bytes()
    refused = invoke("show", made, "--html", tmp_path / "." / book.name)
    assert refused.exit_code == 2
    assert "is read, and that would change it; name another file" in refused.stderr
    assert book.read_bytes() == before


@pytest.mark.parametrize("end", ["", "-wal", "-shm", "-journal"])
def test_the_page_is_not_written_over_the_store(invoke: Invoke, made: str, end: str) -> None:
    refused = invoke("show", made, "--html", f"{RunStore.default_path()}{end}")
    assert refused.exit_code == 2
    assert "it belongs to the run store" in refused.stderr
    assert invoke("show", made).exit_code == 0


@pytest.mark.parametrize("doc", ["letters", "letters/*.txt", "letters/**"])
def test_the_page_is_not_written_over_a_file_of_a_folder_or_pattern(
    invoke: Invoke, tmp_path: Path, doc: str
) -> None:
    (folder := tmp_path / "letters").mkdir()
    (letter := folder / "a.txt").write_text("Ada was born in London.")
    (folder / "b.txt").write_text("Ada moved to Somerset.")
    model = ("--model", "extractive", "--run-id", "several")
    assert invoke("ask", tmp_path / doc, "Where was Ada born?", *model).exit_code == 0
    (link := tmp_path / "link.html").symlink_to(letter)
    for page in (letter, link):
        refused = invoke("show", "several", "--html", page)
        assert refused.exit_code == 2
        assert f"{str(letter)!r} is read, and that would change it" in refused.stderr
    assert letter.read_text() == "Ada was born in London."
    for _ in range(2):  # which replaces a page
        assert invoke("show", "several", "--html", folder / "page.html").exit_code == 0
    folder.rename(tmp_path / "moved")
    for _ in range(2):  # the second replaces the first
        assert invoke("show", "several", "--html", tmp_path / "page.html").exit_code == 0


def test_live_serves_until_ctrl_c(invoke: Invoke, made: str, start: Callable[..., Started]) -> None:
    started = start("show", made, "--live")
    (line,) = started.lines(1)
    address, _, rest = line.partition(" ")
    assert rest.strip() == "(Ctrl-C ends it)"
    assert "Where was Ada Lovelace born?" in httpx.get(address, trust_env=False).text
    code, out, err = started.signal(signal.SIGINT)
    assert (code, out.strip(), err) == (0, "", "")
