"""The repository's shape: small files with plain names, light imports, no traces of a machine."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "memagent"

MAX_LINES = 350
MAX_INIT_LINES = 60
MAX_RUNTIME_LINES = 23_697
"""Of all of src/memagent: it calls itself light. Raised only by a feature, and with all that is planned at most 24,000:
documents and tool sessions alone took 20,458; since then adapters 130, read-ahead 190, many documents 270, the origin
of records 70, asking again 30, conversations 790, sessions that count what is new 150, what hostile users found in
sessions 200, and feeding a buffer 450 with three frameworks' loops 330; a search for what could go took 326
off, and `extractive` moved out with 350. Branches of a run took 350, Ollama and llama.cpp 60, traces and chains 270,
reading again 240, and ninety
defects that reviewers proved (locks, encodings, links, tools, settings, servers that fail) 340; other searches took
280 off. The converters of formats moved out with 1,190. Settings of policies that use tools took 20,
messages that stay whole 40, and defects that hostile users found 190."""
LONG_INITS = {"src/memagent/__init__.py"}
"""Each public name stands there for type checkers, for `import *`, and for loading."""
VAGUE_NAMES = {"common", "helper", "helpers", "manager", "managers", "util", "utils"}
LAZY_IMPORTS = {"httpx", "jinja2", "openai", "regex", "rich", "tokenizers", "typer"}

CODE_FOLDERS = ("src", "benchmarks", "experiments", "examples")
TEXT_FOLDERS = (*CODE_FOLDERS, ".ci", "constraints", "docs", "recipes", "tests")
TEXT_SUFFIXES = {"", ".cfg", ".ini", ".j2", ".md", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml"}
# A folder of one particular machine, at the start of a path; not the same word inside a URL.
MACHINE_PATH = re.compile(r"(?<![\w.~*:/-])/(?:" + "|".join(("home", "root", "work")) + r")\b")


def files(folders: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    """Each file below the folders, with its path from the root."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path.relative_to(ROOT).as_posix(), path


def code() -> Iterator[tuple[str, int]]:
    """Each source file with its number of lines."""
    for name, path in files(CODE_FOLDERS):
        if path.suffix == ".py":
            yield name, len(path.read_text(encoding="utf-8").splitlines())


def test_files_are_small() -> None:
    assert [(name, lines) for name, lines in code() if lines > MAX_LINES] == []


def test_package_files_hold_no_code() -> None:
    long = {n for n, lines in code() if n.endswith("__init__.py") and lines > MAX_INIT_LINES}
    assert long == LONG_INITS


def test_the_runtime_is_light() -> None:
    lines = sum(lines for name, lines in code() if name.startswith("src/memagent/"))
    assert lines <= MAX_RUNTIME_LINES


def test_names_say_what_is_inside() -> None:
    vague = [
        name
        for name, _ in code()
        if {part.strip("_") for part in Path(name).with_suffix("").parts} & VAGUE_NAMES
    ]
    assert vague == []


def test_texts_name_no_folder_of_a_machine() -> None:
    # In a work tree of git beside the first one, .git is a file that names a folder.
    top = ((p.name, p) for p in sorted(ROOT.iterdir()) if p.is_file() and p.name != ".git")
    found = [
        (name, line)
        for name, path in (*top, *files(TEXT_FOLDERS))
        if path.suffix in TEXT_SUFFIXES
        for line in path.read_text(encoding="utf-8").splitlines()
        if MACHINE_PATH.search(line)
    ]
    assert found == []


def test_package_says_that_it_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()


@pytest.mark.parametrize(
    "name", sorted(path.parent.name for path in (ROOT / "src").glob("*/__init__.py"))
)
def test_any_package_can_be_imported_first(name: str) -> None:
    code = f"import {name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_importing_memagent_loads_no_heavy_library() -> None:
    code = "import json, sys, memagent; print(json.dumps(list(sys.modules)))"
    loaded = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert loaded.returncode == 0, loaded.stderr
    assert LAZY_IMPORTS & set(json.loads(loaded.stdout)) == set()
