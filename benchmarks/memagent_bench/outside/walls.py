"""Builds a sandbox and becomes the program in it. A script of its own: the interpreter runs it with `-I -S`.

`python -I -S walls.py SETTINGS`, with the program's source on a line of standard input before its requests.

A process cannot leave a process-id namespace, and a root without the rest of the disk has nothing to write to, so
both are made before anything foreign is read. Order matters: mounts need privileges, limits and the user id take
them away. The first line of output says whether the walls stand: `{"up": true}` or `{"unavailable": "..."}`.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

NEW_USER, NEW_NET, NEW_PID, NEW_MOUNTS, NEW_IPC, NEW_NAMES = (
    *(0x10000000, 0x40000000, 0x20000000, 0x00020000, 0x08000000, 0x04000000),
)
PRIVATE, RECURSIVE, BIND, NO_SUID, NO_DEVICES, NO_PROGRAMS = 1 << 18, 1 << 14, 1 << 12, 2, 4, 8
DETACH = 2
PIVOT_ROOT, MOUNT_SETATTR = {"aarch64": (41, 442)}.get(os.uname().machine, (155, 442))
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
READ_ONLY = 1
DIE_WITH_PARENT, DROP_CAPABILITY, NO_NEW_PRIVILEGES = 1, 24, 38
CAPABILITIES = 64
"""More capabilities than any kernel has; dropping one that doesn't exist fails, which is harmless."""
NOBODY = 65534
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
SCRATCH = "/tmp"

libc = ctypes.CDLL(None, use_errno=True)


class Attributes(ctypes.Structure):
    """`struct mount_attr`."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "user")]


def check(result: int, what: str) -> None:
    """Raises OSError for a system call that failed."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """`mount(2)`."""
    result = libc.mount(
        source.encode(), target.encode(), kind and kind.encode(), flags, data.encode() or None
    )
    check(result, f"mount {target}")


def forbid_writes(path: str, *, below: bool) -> None:
    """Makes a mount read-only, with those below it if wanted."""
    wanted = Attributes(READ_ONLY | NO_SUID, 0, 0, 0)
    flags = AT_RECURSIVE if below else 0
    result = libc.syscall(
        MOUNT_SETATTR, AT_FDCWD, path.encode(), flags, ctypes.byref(wanted), ctypes.sizeof(wanted)
    )
    check(result, f"mount {path} read-only")


def enter_namespaces() -> int:
    """Leaves the machine's network, processes, mounts and users; returns the user id that the program gets.

    Linux does not count processes of the real root, so root becomes another user. Only a process outside may
    write that mapping.
    """
    privileged = os.geteuid() == 0
    inner = NOBODY if privileged else 0
    maps = f"0 {os.geteuid()} 1\n", f"0 {os.getegid()} 1\n"
    if privileged:
        maps = tuple(f"{line}{NOBODY} {NOBODY} 1\n" for line in maps)
    ours, theirs = os.pipe()
    outside, pid = os.getpid(), os.fork()
    if pid == 0:
        os.close(theirs)
        os.read(ours, 1)
        with suppress(OSError):
            for name, lines in zip(("uid_map", "gid_map"), maps, strict=True):
                Path(f"/proc/{outside}/{name}").write_text(lines)
        os._exit(0)
    check(
        libc.unshare(NEW_USER | NEW_NET | NEW_PID | NEW_MOUNTS | NEW_IPC | NEW_NAMES),
        "user and network namespaces",
    )
    if not privileged:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(maps[0])
        Path("/proc/self/gid_map").write_text(maps[1])
    os.write(theirs, b".")
    os.waitpid(pid, 0)
    os.setgid(0)
    os.setuid(0)
    return inner


def build_root(root: str, settings: dict[str, Any]) -> None:
    """Fills an empty folder with what the program may read, and a scratch folder in memory."""
    mount("none", "/", None, RECURSIVE | PRIVATE)
    mount("tmpfs", root, "tmpfs", NO_SUID | NO_DEVICES, "size=16m,mode=755")
    # First, since readable folders can be inside it.
    Path(root + SCRATCH).mkdir()
    mount(
        "tmpfs",
        root + SCRATCH,
        "tmpfs",
        NO_SUID | NO_DEVICES,
        f"size={settings['scratch']},mode=1777",
    )
    for path in settings["read"]:
        outside, inside = Path(path), Path(root + path)
        inside.parent.mkdir(parents=True, exist_ok=True)
        if outside.is_symlink():
            inside.symlink_to(outside.readlink())
        elif not inside.exists():
            inside.mkdir() if outside.is_dir() else inside.touch()
            mount(path, str(inside), None, BIND | RECURSIVE)
            forbid_writes(str(inside), below=True)
    for path in DEVICES:
        inside = Path(root + path)
        inside.parent.mkdir(exist_ok=True)
        inside.touch()
        mount(path, str(inside), None, BIND)
    Path(root, "program.py").write_text(settings["source"])
    Path(root, "proc").mkdir()


def move_in(root: str) -> None:
    """Makes the folder the root, and the rest of the disk unreachable."""
    # Where a container hides parts of its /proc, mounting a new one is refused; the program does without.
    with suppress(OSError):
        mount("proc", root + "/proc", "proc", NO_SUID | NO_DEVICES | NO_PROGRAMS)
    os.chdir(root)
    check(libc.syscall(PIVOT_ROOT, b".", b"."), "pivot_root")
    check(libc.umount2(b".", DETACH), "umount")
    os.chdir("/")
    with suppress(OSError):
        Path("/proc/sys/user/max_user_namespaces").write_text("0")
    forbid_writes("/", below=False)
    os.chdir(SCRATCH)


def give_up_rights(user: int, limits: dict[str, int]) -> None:
    """Sets the limits, then drops every privilege."""
    for name, limit in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))
    for capability in range(CAPABILITIES):
        libc.prctl(DROP_CAPABILITY, capability, 0, 0, 0)
    if user:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    check(libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0), "no_new_privs")
    # After the change of user, which resets it.
    check(libc.prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0), "parent-death signal")


def become(root: str, user: int, settings: dict[str, Any]) -> NoReturn:
    """Replaces this process with the program."""
    move_in(root)
    give_up_rights(user, settings["limits"])
    say({"up": True})
    nowhere = os.open("/dev/null", os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.execve(settings["python"], [settings["python"], "-I", "/program.py"], settings["env"])


def say(line: dict[str, Any]) -> None:
    """Writes one line to the process that built the sandbox."""
    os.write(1, json.dumps(line).encode() + b"\n")


def watch(pid: int) -> None:
    """Waits for the program, and ends it when nobody is listening any more."""
    ended, hung_up = os.pidfd_open(pid), select.POLLHUP | select.POLLRDHUP
    both = select.poll()
    both.register(ended, select.POLLIN)
    both.register(0, hung_up)
    both.poll()
    # The first process of a namespace: killing it kills them all.
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def main() -> None:
    """See the top of the file."""
    root, settings = sys.argv[1], json.loads(sys.stdin.buffer.readline())
    try:
        user = enter_namespaces()
        build_root(root, settings)
        pid = os.fork()
        if pid == 0:
            become(root, user, settings)
    except (OSError, ValueError) as error:
        say({"unavailable": str(error)})
        os._exit(1)
    watch(pid)


main()
