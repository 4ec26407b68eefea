"""Makes what the engine tests run: a venv for each engine, and the tiny model that they serve.

Run by `make engines`: python tests/engines/venvs.py [ENGINE...]. All of it lies in the user's cache
folder, under names that change with what it is made from: a finished folder is never made again, and
checkouts share it.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from filelock import FileLock

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ENGINES = ("vllm", "sglang")
# What people run on laptops: a suite of their own, with `smol` in place of the tiny model.
LAPTOPS = ("llamacpp", "transformers")
# What trains memagent's agents in the place of `memagent-train`; it serves nothing.
TRAINERS = ("verl",)
SHIMS = HERE / "shims"
# Written last: a folder without it is what an interrupted run left.
COMPLETE = ".complete"
KEY_LENGTH = 12
TINY_SOURCES = [
    HERE / "tiny_model.py",
    HERE.parent / "data" / "tokenizer" / "tokenizer.json",
    HERE.parent / "data" / "tokenizer" / "tokenizer_config.json",
]


class NotMade(Exception):
    """Something could not be made; the message has the remedy."""


def cache() -> Path:
    """Returns the folder that holds everything made here."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "memagent"


def lock_of(engine: str) -> Path:
    """Returns the list of an engine's packages."""
    return ROOT / "constraints" / f"{engine}.txt"


def venv_of(engine: str) -> Path:
    """Returns the folder of an engine's venv, which need not be there yet."""
    made_from = [lock_of(engine).read_bytes(), platform.python_version().encode()]
    return cache() / f"{engine}-{key(made_from)}"


def python_of(engine: str) -> Path:
    """Returns the interpreter of an engine's venv."""
    return venv_of(engine) / "bin" / "python"


def tiny_model() -> Path:
    """Returns the folder of the model that the engines serve, which need not be there yet."""
    return cache() / f"tiny-{key(path.read_bytes() for path in TINY_SOURCES)}"


def key(made_from: Iterable[bytes]) -> str:
    """Returns a name for what is made from these contents."""
    return hashlib.sha256(b"\0".join(made_from)).hexdigest()[:KEY_LENGTH]


def missing(engine: str) -> list[Path]:
    """Returns which folders an engine's tests still need."""
    folders = [venv_of(engine)] if engine in LAPTOPS else [venv_of(engine), tiny_model()]
    return [folder for folder in folders if not (folder / COMPLETE).exists()]


def remedy(engine: str, folders: list[Path]) -> str:
    """Returns what to say where these folders are missing."""
    names = " and ".join(str(folder) for folder in folders)
    return f"{engine} is not installed for the tests: {names} missing. Run: make engines ENGINES={engine}"


def make(folder: Path, build: Callable[[Path], None]) -> None:
    """Builds the folder, unless it is complete. Of two that want the same, one waits."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f"{folder.name}.lock")):
        if (folder / COMPLETE).exists():
            say(f"{folder.name}: there already ({folder})")
            return
        shutil.rmtree(folder, ignore_errors=True)
        started = time.monotonic()
        # In its final place, because a venv's paths are written into it.
        build(folder)
        (folder / COMPLETE).touch()
        took = time.monotonic() - started
        say(f"{folder.name}: made in {took:.0f} s ({folder})")


def make_venv(engine: str) -> None:
    """Installs an engine, exactly as its lock says."""
    lock = lock_of(engine).relative_to(ROOT)

    def build(folder: Path) -> None:
        say(f"{folder.name}: installing {lock}, a minute or more")
        run(
            [sys.executable, "-m", "venv", str(folder)],
            f"{engine}: `python -m venv {folder}` failed, see above. On Debian and Ubuntu the venv "
            "module is a package of its own: apt install python3-venv",
        )
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install"]
        # Twice quiet: errors only. Indexes that lack a package are warned of, one line for each.
        options = ["-qq", "--disable-pip-version-check", "--no-input", "--no-deps"]
        run(
            [*pip, *options, "-r", str(lock)],
            f"{engine}: pip could not install {lock}, see above. If the package index could not be "
            f"reached, try again: make engines ENGINES={engine}. If a version is gone from the "
            f"index or has no build for this machine, change its line in {lock} and try again.",
        )

    make(venv_of(engine), build)


def make_tiny_model(engine: str) -> None:
    """Makes the model with the engine's libraries, which are the same in all engines."""

    def build(folder: Path) -> None:
        run(
            [str(python_of(engine)), str(HERE / "tiny_model.py"), str(folder)],
            f"the tiny model could not be made with {engine}'s venv, see above. If the venv is "
            f"broken, remove {venv_of(engine)} and try again: make engines",
        )

    make(tiny_model(), build)


def run(command: list[str], remedy: str) -> None:
    """Runs a command, or raises NotMade with the remedy."""
    # SGLang's venv has a torchvision, and no import of transformers succeeds without the shims.
    environment = {**os.environ, "PYTHONPATH": str(SHIMS)}
    if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode != 0:
        raise NotMade(remedy)


def say(line: str) -> None:
    """Prints a line in one piece, whatever else is printed at the same time."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(engines: list[str]) -> int:
    """Makes all of it, the venvs at the same time: pip uses one core for each."""
    every = (*ENGINES, *LAPTOPS, *TRAINERS)
    unknown = [engine for engine in engines if engine not in every]
    if unknown:
        print(f"no such engine: {unknown}; choose from {every}", file=sys.stderr)
        return 2
    with ThreadPoolExecutor(len(every)) as pool:
        outcomes = [pool.submit(make_venv, engine) for engine in engines]
    try:
        for outcome in outcomes:
            outcome.result()
        if large := [engine for engine in engines if engine in ENGINES]:
            make_tiny_model(large[0])
    except NotMade as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(ENGINES)))
