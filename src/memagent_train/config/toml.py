"""Reads TOML with clear errors."""

import tomllib
from pathlib import Path
from typing import Any

from memagent.errors import ConfigError

Table = dict[str, Any]


def read_toml(file: Path) -> Table:
    """Reads a file's tables. A byte order mark and Windows line endings are accepted.

    Raises:
        ConfigError: it is missing, a folder, not UTF-8, or not TOML.
    """
    try:
        raw = file.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: not a valid path
        why = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"cannot read the settings {str(file)!r} ({why}): give a TOML file"
        ) from error
    try:
        return tomllib.loads(raw.decode("utf-8-sig").replace("\r\n", "\n"))
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{str(file)!r} is not UTF-8 (byte {error.start} is {raw[error.start]:#04x}): save it as UTF-8"
        ) from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{str(file)!r} is not TOML: {error}") from error
