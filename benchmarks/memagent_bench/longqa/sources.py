"""Where data files are found: the options, else the folder that MEMAGENT_DATA names."""

from __future__ import annotations

import os
from pathlib import Path

from memagent.errors import ConfigError
from memagent_bench.longqa.data import Collection, hotpotqa, paragraphs, squad
from memagent_bench.options import DataOptions

FOLDER = "MEMAGENT_DATA"
HOTPOT_NAMES = ("*hotpot*distractor*.json", "*hotpot*distractor*.json.gz")
SQUAD_NAMES = ("*dev-v2*.json", "*dev-v2*.json.gz")
PARAGRAPH_NAMES = ("*corpus*.json", "*corpus*.json.gz", "*paragraphs*.json", "*paragraphs*.json.gz")


def hotpotqa_of(options: DataOptions) -> Collection:
    """Loads HotpotQA from the files in the options, else from the data folder.

    Raises:
        ConfigError: it wasn't found; the message names the flags.
        DocumentError: a file is unusable.
    """
    return hotpotqa(hotpotqa_files(options))


def hotpotqa_files(options: DataOptions) -> tuple[Path, ...]:
    """Returns the files of `hotpotqa_of`; raises ConfigError as it does."""
    files = options.hotpotqa or _find_files(HOTPOT_NAMES)
    if not files:
        raise ConfigError(
            "HotpotQA was not found: give --hotpotqa FILE (may be repeated), its development set in "
            "the distractor setting, published as hotpot_dev_distractor_v1.json, gzipped or not; for long "
            f"texts --paragraphs FILE too; or set {FOLDER} to a folder with such files"
        )
    return files


def squad_of(options: DataOptions) -> Collection:
    """Loads SQuAD from the file in the options, else from the data folder.

    Raises:
        ConfigError: it wasn't found, or was found twice; the message names the flags.
        DocumentError: the file is unusable.
    """
    return squad(squad_file(options))


def squad_file(options: DataOptions) -> Path:
    """Returns the file of `squad_of`; raises ConfigError as it does."""
    paths = _find_files(SQUAD_NAMES) if options.squad is None else (options.squad,)
    if len(paths) == 0:
        raise ConfigError(
            "SQuAD was not found: give --squad FILE, its development set, published as dev-v2.0.json, "
            "gzipped or not; for long texts --paragraphs FILE too; "
            f"or set {FOLDER} to a folder with such files"
        )
    if len(paths) > 1:
        files = ", ".join(str(path) for path in paths)
        raise ConfigError(f"{FOLDER} has several SQuAD files ({files}): name one with --squad")
    return paths[0]


def find_further(options: DataOptions) -> Collection:
    """Loads further paragraphs: the files in the options, else everything in the data folder, of any data set.

    Raises:
        ConfigError: the data folder isn't a folder.
        DocumentError: a file is unusable.
    """
    every = (*PARAGRAPH_NAMES, *HOTPOT_NAMES, *SQUAD_NAMES)
    return paragraphs(options.paragraphs or _find_files(every))


def _find_files(names: tuple[str, ...]) -> tuple[Path, ...]:
    """Finds files in the data folder and its subfolders, by pattern and in the order of their paths."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return ()
    root = Path(folder)
    if not root.is_dir():
        raise ConfigError(f"{FOLDER} is {folder!r}, which is not a folder; correct or unset it")
    paths = [p for name in names for p in sorted([*root.glob(name), *root.glob(f"*/{name}")])]
    return tuple(dict.fromkeys(path for path in paths if path.is_file()))
