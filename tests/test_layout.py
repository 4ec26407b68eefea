"""The repository's shape: mirrored tests, small files, light imports, no traces of a machine."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "memagent"
TRAINING = ROOT / "src" / "memagent_train"

MAX_LINES = 350
MAX_INIT_LINES = 60
VAGUE_NAMES = {"common", "helper", "helpers", "manager", "managers", "util", "utils"}
LAZY_IMPORTS = {"httpx", "jinja2", "openai", "regex", "rich", "tokenizers", "typer"}

# Path below src: why it has no test file of its own.
UNMIRRORED: dict[str, str] = {
    "memagent/compaction.py": "plain data, tested with the compactions and events that fill it",
    "memagent/__main__.py": "tests/cli runs it as a process",
    "memagent/cli/reading.py": "tests/cli/test_ask.py and test_resume.py run all of it",
    "memagent/runstore/rows.py": "part of a transaction of the store, tested with it",
    "memagent/runstore/records.py": "plain data, tested with the store that fills it",
    "memagent_train/__main__.py": "tests/train/cli runs it as a process",
    "memagent_train/smoke/__main__.py": "tests/train/smoke runs it as a process",
    "memagent_train/errors.py": "classes without code",
    "memagent_train/rollouts.py": "plain data, tested with the agents and rewards that fill it",
}

# Path below the root: why this __init__ is longer than MAX_INIT_LINES.
LONG_INITS: dict[str, str] = {
    "src/memagent/__init__.py": "each public name stands for type checkers, for `import *`, and for loading",
}

TEXT_FOLDERS = (
    ".ci",
    "benchmarks",
    "constraints",
    "docs",
    "examples",
    "experiments",
    "recipes",
    "src",
    "tests",
)
TEXT_SUFFIXES = {"", ".cfg", ".ini", ".j2", ".md", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml"}
# A folder of one particular machine, at the start of a path; not the same word inside a URL.
MACHINE_PATH = re.compile(r"(?<![\w.~*:/-])/(?:" + "|".join(("home", "root", "work")) + r")\b")


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def mirror_of(source: Path) -> Path:
    """Where the tests of a source file stand. A leading underscore is not part of the name."""
    package, tests = (
        (TRAINING, ROOT / "tests" / "train")
        if source.is_relative_to(TRAINING)
        else (PACKAGE, ROOT / "tests")
    )
    return tests / source.relative_to(package).parent / f"test_{source.stem.lstrip('_')}.py"


SOURCES = sorted([*PACKAGE.rglob("*.py"), *TRAINING.rglob("*.py")])
CODE = SOURCES + sorted(p for f in ("benchmarks", "experiments") for p in (ROOT / f).rglob("*.py"))
PROMPTS = sorted((PACKAGE / "prompts").rglob("*.toml"))
TEXTS = sorted(
    path
    for path in [*ROOT.iterdir(), *(p for f in TEXT_FOLDERS for p in (ROOT / f).rglob("*"))]
    if path.is_file() and path.suffix in TEXT_SUFFIXES and "__pycache__" not in path.parts
)


@pytest.mark.parametrize("source", [p for p in SOURCES if p.name != "__init__.py"], ids=relative)
def test_each_source_file_has_a_test_file_at_the_mirrored_path(source: Path) -> None:
    expected = mirror_of(source)
    if source.relative_to(ROOT / "src").as_posix() in UNMIRRORED:
        assert not expected.exists(), f"{relative(source)} has tests now: remove it from UNMIRRORED"
    else:
        assert expected.is_file(), f"{relative(source)} needs {relative(expected)}"


def test_exceptions_are_still_needed() -> None:
    assert [name for name in UNMIRRORED if not (ROOT / "src" / name).is_file()] == []
    assert [
        name for name in LONG_INITS if len((ROOT / name).read_text().splitlines()) <= MAX_INIT_LINES
    ] == []


@pytest.mark.parametrize("source", CODE, ids=relative)
def test_files_are_small(source: Path) -> None:
    lines = len(source.read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_LINES
    if source.name == "__init__.py" and relative(source) not in LONG_INITS:
        assert lines <= MAX_INIT_LINES


@pytest.mark.parametrize("source", CODE, ids=relative)
def test_names_say_what_is_inside(source: Path) -> None:
    parts = {part.strip("_") for part in Path(relative(source)).with_suffix("").parts}
    assert not parts & VAGUE_NAMES


@pytest.mark.parametrize("path", TEXTS, ids=relative)
def test_texts_name_no_folder_of_a_machine(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if MACHINE_PATH.search(line)] == []


@pytest.mark.parametrize("path", PROMPTS, ids=relative)
def test_prompt_sets_are_toml(path: Path) -> None:
    assert tomllib.loads(path.read_text(encoding="utf-8"))


def test_package_says_that_it_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()


def test_importing_memagent_loads_no_heavy_library() -> None:
    code = "import json, sys, memagent; print(json.dumps(list(sys.modules)))"
    loaded = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert loaded.returncode == 0, loaded.stderr
    assert LAZY_IMPORTS & set(json.loads(loaded.stdout)) == set()
