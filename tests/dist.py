"""Builds the sdist and the wheel, checks what they contain, and uses the wheel outside the checkout.

python -m tests.dist              each Python that is found, without extras; README.md with [bench,serve];
                                  what the container's file installs, and its command
python -m tests.dist EXTRA...     only these extras of the wheel in dist/, on this Python, with their imports
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
CONSTRAINTS = ROOT / "constraints" / "dev.txt"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = [
    Path(path) for path in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
]
PREFIX = "Programming Language :: Python :: 3."
VERSIONS = [
    name.removeprefix("Programming Language :: Python :: ")
    for name in PROJECT["project"]["classifiers"]
    if name.startswith(PREFIX)
]
REQUIRED = (
    *(f"{package.name}/py.typed" for package in PACKAGES),
    "memagent/nano/model.safetensors",
    "memagent/prompts/boxed.toml",
    "memagent/prompts/plain.toml",
    "memagent/prompts/small.toml",
    "memagent/samples/war_and_peace.txt.gz",
    "memagent_engines/trained/adapter_model.safetensors",
    "memagent_engines/trained/prompts.toml",
    "memagent_viewer/page.css",
    "memagent_viewer/page.html",
    "memagent_viewer/page.js",
)
LICENCES = ("LICENSE", "NOTICE")
MAX_BYTES = 13_000_000
"""Of either file. The adapter of `smol` is 7.7 million of it; nano, the sample and the benchmarks' data 4.3 million."""
TEST_TOOLS = ("blockbuster", "hypothesis", "pytest", "pytest-asyncio", "pytest-timeout")
"""What tests/conftest.py and the settings of pytest need."""
IMPORTS = {
    "bench": "matplotlib, numpy, scipy, tiktoken, memagent_bench.cli, memagent_bench.games",
    "formats": "pypdfium2",
    "langchain": "memagent.integrations.langchain",
    "llm": "memagent_llm.plugin",
    "mcp": "memagent.tools.mcp, memagent_mcp.server, mcp",
    "openai-agents": "memagent.integrations.openai_agents",
    "otel": "memagent.integrations.opentelemetry",
    "peers": "memagent_bench.systems.langchain_refine, memagent_bench.systems.llamaindex_refine",
    "pydantic-ai": "memagent.integrations.pydantic_ai",
    "ray": "memagent.integrations.ray, ray.data",
    "schema": "memagent_schema.rows",
    "serve": "memagent_serve, memagent_serve.server",
    "tiktoken": "tiktoken",
    "train": "memagent_train.cli, memagent_train.trainer, memagent_bench.cli",
    "transformers": "memagent_engines.transformers.model",
}
"""What each extra is for; not those of this checkout, `dev` and `dist`."""
EVERY_NAME = "import memagent; [getattr(memagent, name) for name in memagent.__all__]"
TEXT = "Pierre came back from the war. Natasha married Pierre in the spring of 1813."
ANSWER = "Natasha married Pierre in the spring of 1813."


def run(*command: str | Path, cwd: Path, text: str = "", **environment: str) -> str:
    """What a command prints, in an environment without settings of memagent's and Python's; it must succeed."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MEMAGENT_", "OPENAI_", "PYTHON", "VIRTUAL_ENV"))
    }
    done = subprocess.run(
        command, cwd=cwd, env=kept | environment, input=text, text=True, check=False, timeout=900,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def build(scratch: Path) -> tuple[Path, Path]:
    """The sdist and the wheel made from it; the wheel made from the checkout has to be the same file."""
    shutil.rmtree(DIST, ignore_errors=True)
    tool = (sys.executable, "-m", "build", "--dependency-constraints-txt", CONSTRAINTS)
    run(*tool, "--outdir", DIST, ROOT, cwd=ROOT)
    run(*tool, "--wheel", "--outdir", scratch, ROOT, cwd=ROOT)
    (sdist,), (wheel,) = DIST.glob("*.tar.gz"), DIST.glob("*.whl")
    digests = {hashlib.sha256(path.read_bytes()).digest() for path in (wheel, scratch / wheel.name)}
    expect(len(digests) == 1, "the sdist and the checkout give different wheels")
    print(
        run(
            sys.executable, "-m", "twine", "--no-color", "check", "--strict", sdist, wheel, cwd=ROOT
        )
    )
    return sdist, wheel


def expect(holds: bool, otherwise: str) -> None:
    """Exits if something does not hold."""
    if not holds:
        sys.exit(otherwise)


def source_files() -> dict[str, bytes]:
    """What git would commit in the packages, by its path in the wheel."""
    listed = run(
        "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *PACKAGES, cwd=ROOT
    )
    paths = [Path(name) for name in listed.split("\0") if name and (ROOT / name).is_file()]
    return {
        path.relative_to(package.parent).as_posix(): (ROOT / path).read_bytes()
        for package in PACKAGES
        for path in paths
        if path.is_relative_to(package)
    }


def check_contents(sdist: Path, wheel: Path) -> None:
    """The packages' files and the licences, all of them and nothing else; no path of this machine."""
    sources = source_files()
    with zipfile.ZipFile(wheel) as archive:
        packed = {name: archive.read(name) for name in archive.namelist()}
    metadata = {name: packed.pop(name) for name in list(packed) if ".dist-info/" in name}
    expect(packed == sources, f"not the packages' files: {sorted(packed.keys() ^ sources.keys())}")
    expect(set(REQUIRED) <= packed.keys(), f"lacks {set(REQUIRED) - packed.keys()}")
    licences = {name.partition("/licenses/")[2] for name in metadata} - {""}
    expect(licences == set(LICENCES), f"the wheel's licences are {licences}")
    with tarfile.open(sdist) as archive:
        unpacked = {
            entry.name.partition("/")[2]: opened.read()
            for entry in archive
            if (opened := archive.extractfile(entry))
        }
    beside = {
        name for name in unpacked if not name.startswith(("src/", "benchmarks/memagent_bench/"))
    }
    print(f"in the sdist beside the packages: {', '.join(sorted(beside))}\n")
    folders = ("/tests/", "/experiments/", "/.venv", "/__pycache__/")
    for path, files in ((wheel, packed | metadata), (sdist, unpacked)):
        found = [
            name
            for name, content in files.items()
            if any(str(folder).encode() + b"/" in content for folder in (ROOT, Path.home()))
            or any(folder in f"/{name}" for folder in folders)
        ]
        expect(not found, f"{path.name} holds what it must not: {found}")
        size = path.stat().st_size
        print(f"{size:>11,}  {path.name}, {len(files)} files, the largest of them:")
        for name, content in sorted(files.items(), key=lambda file: -len(file[1]))[:5]:
            print(f"{len(content):>11,}    {name}")
        expect(size <= MAX_BYTES, f"{path.name} has more than {MAX_BYTES:,} bytes")


def find_python(version: str) -> str | None:
    """A Python of this version that runs, on PATH or among those of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for command in (f"python{version}", *sorted(pyenv.glob(f"{version}.*/bin/python"))):
        try:
            code = "import sys, venv; print(sys.executable)"
            done = subprocess.run([command, "-c", code], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            continue  # not there, or a shim that is not switched on
        return done.stdout.strip()
    return None


def install(place: Path, python: str, *what: str, constraints: Path = CONSTRAINTS) -> Path:
    """Installs packages into a virtual environment, made if need be; returns its folder of commands."""
    if not place.exists():
        run(python, "-m", "venv", "--without-pip", place, cwd=place.parent)
    # One pip for all, and only what is imported gets compiled: half the time.
    pip = (sys.executable, "-m", "pip", "--python", place / "bin" / "python", "install")
    options = (
        "--quiet",
        "--disable-pip-version-check",
        "--no-compile",
        "--constraint",
        constraints,
    )
    run(*pip, *options, *what, cwd=place.parent)
    return place / "bin"


def use(commands: Path, scratch: Path) -> None:
    """Runs what a newcomer runs first, none of it from the checkout."""
    version = run(
        commands / "python", "-c", "import memagent as m; print(m.__version__)", cwd=scratch
    )
    place = run(commands / "python", "-c", "import memagent as m; print(m.__file__)", cwd=scratch)
    expect(Path(place).is_relative_to(commands.parent), f"{place} is not the installed package")
    for name in ("memagent", "memagent-bench", "memagent-train"):
        expect("Usage" in run(commands / name, "--help", cwd=scratch), f"{name} --help")
        said = run(commands / name, "--version", cwd=scratch)
        expect(said == f"{name} {version}", f"{name} --version printed {said}")
    run(commands / "python", "-W", "error", "-c", EVERY_NAME, cwd=scratch)
    state = {"XDG_STATE_HOME": str(commands.parent / "state")}
    run(commands / "memagent", "demo", cwd=scratch, **state)
    ask = (commands / "memagent", "ask", "-", "When did Natasha marry?", "--model", "extractive")
    said = run(*ask, cwd=scratch, text=TEXT, **state)
    expect(ANSWER in said, f"memagent ask printed {said}")


def try_python(version: str, wheel: Path, scratch: Path) -> str:
    """Installs the wheel on a Python and uses it. Returns a line about it."""
    start = time.monotonic()
    python = find_python(version)
    if python is None:
        return f"Python {version}: NOT TESTED, there is none on this machine"
    commands = install(scratch / version, python, str(wheel))
    use(commands, scratch)
    full = run(
        commands / "python", "-c", "import platform as p; print(p.python_version())", cwd=scratch
    )
    return f"Python {full.strip()}: passed in {time.monotonic() - start:.0f} s"


def try_readme(wheel: Path, scratch: Path) -> str:
    """Runs the commands and the code of README.md with the wheel. Returns a line about it."""
    start = time.monotonic()
    commands = install(scratch / "readme", sys.executable, f"{wheel}[bench,serve]", *TEST_TOOLS)
    test = "tests/docs/test_snippets.py::test_examples_do_what_the_page_says[README.md]"
    print(run_test(commands, test, scratch))
    return f"README.md: passed in {time.monotonic() - start:.0f} s"


def run_test(commands: Path, test: str, scratch: Path) -> str:
    """What pytest prints. Of the checkout only the tests can be imported: the packages come from the wheel."""
    settings = ("-c", ROOT / "pyproject.toml", "-p", "no:cacheprovider", "-o", f"pythonpath={ROOT}")
    return run(commands / "python", "-m", "pytest", "-q", *settings, f"{ROOT}/{test}", cwd=scratch)


def try_container(wheel: Path, scratch: Path) -> str:
    """Installs what the container's file installs, and runs its command. Returns a line about it."""
    start = time.monotonic()
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    extras = text.partition("/*.whl)[")[2].partition("]")[0]
    expect(extras != "", "Containerfile has no step that installs the wheel with extras")
    version = text.partition("python:")[2].partition("-")[0]
    python = find_python(version)
    if python is None:
        return f"Containerfile: NOT TESTED, there is no Python {version} on this machine"
    commands = install(scratch / "container", python, f"{wheel}[{extras}]", *TEST_TOOLS)
    print(run_test(commands, "tests/serve/test_container.py", scratch))
    return f"Containerfile: its packages and its command passed in {time.monotonic() - start:.0f} s"


def try_extra(extra: str, wheel: Path, scratch: Path) -> str:
    """Installs the wheel with an extra, uses it, and imports what the extra is for. Returns a line about it."""
    start = time.monotonic()
    heavy = extra in ("train", "transformers")
    other = IMPORTS[extra].startswith("memagent.integrations.") or extra == "peers"
    name = "train" if heavy else "extra" if other else "dev"
    constraints = ROOT / "constraints" / f"{name}.txt"
    place = scratch / extra
    commands = install(place, sys.executable, f"{wheel}[{extra}]", constraints=constraints)
    use(commands, scratch)
    run(commands / "python", "-c", f"import {IMPORTS[extra]}", cwd=scratch)
    if heavy:
        state = {"XDG_STATE_HOME": str(place / "state"), "OMP_NUM_THREADS": "1"}
        run(
            commands / "memagent",
            "demo",
            "--model",
            "nano",
            "--tokens",
            "16k",
            cwd=scratch,
            **state,
        )
    shutil.rmtree(place)
    return f"memagent[{extra}]: passed in {time.monotonic() - start:.0f} s"


def main(extras: list[str]) -> None:
    """Prints what was tested; exits at the first thing that fails."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        if extras:
            (wheel,) = DIST.glob("*.whl")
            for extra in extras:
                print(try_extra(extra, wheel, scratch), flush=True)
            return
        sdist, wheel = build(scratch)
        check_contents(sdist, wheel)
        with ThreadPoolExecutor(2) as pool:
            jobs = [pool.submit(try_python, version, wheel, scratch) for version in VERSIONS]
            jobs += [
                pool.submit(attempt, wheel, scratch) for attempt in (try_readme, try_container)
            ]
            for job in jobs:
                print(job.result(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
