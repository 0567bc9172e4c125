"""Which process holds the chip, as far as /proc tells.

libtpu's lock file is never opened here: closing it would give the lock of this process away.
"""

from __future__ import annotations

import os
import pwd
import re
import time
from pathlib import Path
from typing import NamedTuple

_LOCKS = ("/tmp/libtpu_lockfile", "/tmp/libtpu_lock_{uid}/libtpu_lockfile", "{home}/libtpu_lockfile")
_CHIPS = re.compile(r"/dev/(?:vfio/\d+|accel\d+|accel/accel\d+)")
_CONNECTION = re.compile(r"kernel-[\w-]+\.json")


class Process(NamedTuple):
    """A process, for people."""

    pid: int
    user: str
    command: str
    started: float | None
    #: The notebook it is the kernel of, where that is known.
    notebook: str = ""

    @property
    def words(self) -> str:
        """In one clause."""
        what = f"`{_short(self.command)}`"
        if self.notebook:
            what = f"the kernel of `{self.notebook}`"
        elif _CONNECTION.search(self.command):
            what = "the kernel of a notebook"
        age = f", started {_ago(time.time() - self.started)} ago" if self.started else ""
        return f"process {self.pid} of {self.user}, {what}{age}"


def process(pid: int) -> Process:
    """What is known of a process; it may have ended."""
    folder = Path("/proc", str(pid))
    try:
        user = pwd.getpwuid(folder.stat().st_uid).pw_name
    except (OSError, KeyError):
        user = "an unknown user"
    try:
        command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        command = ""
    return Process(
        pid, user, command, _started(folder), _notebook(folder) if _CONNECTION.search(command) else ""
    )


def holder() -> Process | None:
    """Who has libtpu's lock, else who has the chip's device file open, another process first."""
    pids = [*_of_locks(), *_of_devices()]
    others = [pid for pid in pids if pid != os.getpid()]
    return process((others or pids)[0]) if pids else None


def _of_locks() -> list[int]:
    wanted = set()
    for path in _LOCKS:
        try:
            status = os.stat(path.format(uid=os.getuid(), home=os.path.expanduser("~")))
        except OSError:
            continue
        wanted.add((os.major(status.st_dev), os.minor(status.st_dev), status.st_ino))
    pids = []
    try:
        locks = Path("/proc/locks").read_text()
    except OSError:
        return []
    # As `1: POSIX  ADVISORY  WRITE 4711 08:01:1234 0 EOF`; device numbers in hexadecimal.
    for pid, major, minor, inode in re.findall(r"WRITE (\d+) (\w+):(\w+):(\d+) ", locks):
        if (int(major, 16), int(minor, 16), int(inode)) in wanted:
            pids.append(int(pid))
    return pids


def _of_devices() -> list[int]:
    pids = []
    for folder in Path("/proc").glob("[0-9]*/fd"):
        try:
            if any(_CHIPS.fullmatch(os.readlink(entry.path)) for entry in os.scandir(folder)):
                pids.append(int(folder.parent.name))
        except OSError:
            continue  # another user's, or it has ended
    return pids


def _started(folder: Path) -> float | None:
    try:
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        booted = re.search(r"^btime (\d+)", Path("/proc/stat").read_text(), re.MULTILINE)
        return int(booted[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK") if booted else None
    except (OSError, ValueError, IndexError):
        return None


def _notebook(folder: Path) -> str:
    """Jupyter tells a kernel which file it was started for; only to this user."""
    try:
        found = re.search(rb"(?:^|\0)JPY_SESSION_NAME=([^\0]+)", (folder / "environ").read_bytes())
    except OSError:
        return ""
    # A notebook's name, an id behind it or not.
    return found[1].decode("utf-8", "replace").rpartition("/")[2] if found else ""


def _short(command: str) -> str:
    return command if len(command) <= 60 else command[:59] + "…" if command else "unknown program"


def _ago(seconds: float) -> str:
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return "less than a minute"
