"""Folders with the files that a client may ask about."""

from collections.abc import Iterable
from pathlib import Path

from memagent.errors import ConfigError, DocumentNotFound
from memagent.texts import expand, quote


class Roots:
    """Allowed folders. Symbolic links are resolved first: the file's real location decides.

    Args:
        folders: at least one.

    Raises:
        ConfigError: there is no folder, or one isn't a folder.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        paths = list(folders)
        for folder in paths:
            if not expand(folder).is_dir():
                raise ConfigError(f"--root must be a folder, got {str(folder)!r}")
        self.folders = [expand(folder).resolve() for folder in paths]
        if not self.folders:
            raise ConfigError("name at least one folder whose documents may be read: --root DIR")

    def find(self, path: str) -> Path:
        """Returns the real path of a file, given by an absolute path or one relative to a root.

        Raises:
            DocumentNotFound: it isn't a regular file below a root. The message doesn't say if it exists elsewhere.
        """
        for folder in self.folders:
            try:
                file = (folder / path).resolve(strict=True)
                if any(map(file.is_relative_to, self.folders)) and file.is_file():
                    return file
            except (OSError, RuntimeError, ValueError):  # missing, a loop of links, a NUL
                continue
        roots = ", ".join(map(str, self.folders))
        raise DocumentNotFound(f"no document {quote(path)} below {roots}; name a file there")

    def holds(self, path: str) -> bool:
        """Returns whether `find` finds it: not a folder, nor a file that is gone, whose real location can't be told."""
        try:
            return bool(self.find(path))
        except DocumentNotFound:
            return False
