"""A disk that can be full, or read-only."""

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

SIZE = 400 * 1024


@dataclass(frozen=True)
class SmallDisk:
    """A folder on a file system of 400 KiB where tests may mount (as root, as CI does), else one that acts like it."""

    folder: Path
    mounted: bool

    @contextmanager
    def full(self, room: int = SIZE) -> Iterator[None]:
        """Within it, no more than that can be written (where it is no file system: to a single file).

        Args:
            room: bytes.
        """
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        filler = self.folder / "filler"
        if self.mounted:
            free = os.statvfs(self.folder)
            filler.write_bytes(bytes(max(0, free.f_bavail * free.f_frsize - room)))
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            filler.unlink(missing_ok=True)

    def make_read_only(self, file: Path) -> None:
        """Makes the file system read-only, or the file."""
        if self.mounted:
            subprocess.run(["mount", "-o", "remount,ro", str(self.folder)], check=True)
        else:
            file.chmod(0o400)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    mounted = (
        os.geteuid() == 0 and not subprocess.run(mount, capture_output=True, check=False).returncode
    )
    yield SmallDisk(folder, mounted)
    if mounted:
        subprocess.run(["umount", str(folder)], check=True)
