"""The origin of benchmark and training results: code, packages and machine, without secrets or host names."""

import os
import platform
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from importlib import metadata
from pathlib import Path


def source_state(file: Path) -> tuple[str | None, bool | None]:
    """Returns the commit of `file`'s git work tree, and whether its code has uncommitted changes.

    The code is the folder of `file`, and memagent's if it is in the same tree: results elsewhere in the tree don't
    count. Both are None without such a tree or git, and if the file is in an unrelated tree: a virtual
    environment inside another project.
    """
    folder, core = file.resolve().parent, Path(__file__).resolve().parents[1]
    if _git(folder, "ls-files", "--error-unmatch", file.name) is None:
        return None, None
    root = _git(folder, "rev-parse", "--show-toplevel")
    code = [folder, *([core] if root and core.is_relative_to(root) else [])]
    changes = _git(folder, "status", "--porcelain", "--", *map(str, code))
    return _git(folder, "rev-parse", "HEAD"), None if changes is None else bool(changes)


def _git(folder: Path, *arguments: str) -> str | None:
    """Returns the output of git; None if it fails."""
    # Inspecting a tree must not write to it: others may be working there.
    environment = os.environ | {"GIT_OPTIONAL_LOCKS": "0"}
    command = ["git", "-C", str(folder), *arguments]
    with suppress(OSError, subprocess.SubprocessError):
        quiet = subprocess.DEVNULL
        output = subprocess.check_output(command, stderr=quiet, env=environment, timeout=10)
        return output.decode(errors="replace").strip()
    return None


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Returns the versions of those of the packages that are installed."""
    package_versions: dict[str, str] = {}
    for name in packages:
        with suppress(metadata.PackageNotFoundError):
            package_versions[name] = metadata.version(name)
    return package_versions


def machine() -> str:
    """Describes the machine: processor, cores, Python."""
    name = platform.processor() or platform.machine()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        name = next(iter(names), name)
    system, python = platform.system(), platform.python_version()
    return f"{name}, {os.cpu_count()} cores, {system}, Python {python}"
