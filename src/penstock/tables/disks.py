"""Decides whether a power cut can have damaged a file: whether its disk belongs to this machine
alone, and whether the machine has started since the file was written.

A caller that removes a file which another writer left must know that no other writer still uses it.
Clocks jump, so a file counts as older than the boot only if it is older than every sign of the
boot: the kernel's own boot time, and what has been created in ``/dev``, ``/run`` and ``/sys``
since."""

import os
import re
import sys
from contextlib import suppress
from pathlib import Path

_LOCAL = frozenset(
    ("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "xfs", "zfs")
)
_MOUNTS, _STAT = Path("/proc/self/mountinfo"), Path("/proc/stat")
_MADE_AT_BOOT = (Path("/dev"), Path("/run"), Path("/sys"))
_MEMORY = frozenset(("devtmpfs", "sysfs", "tmpfs"))
_OCTAL = re.compile(r"\\([0-7]{3})")  # how a space is written in a mount's path
_MARGIN = 2.0  # seconds: of file systems that store whole seconds


def boot() -> str:
    """Identifies this start of the machine; empty if the kernel does not give an id."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def on_own_disk(path: Path) -> bool:
    """Returns whether ``path``, which exists, is on a file system that only this machine writes to.
    False if unknown."""
    if not sys.platform.startswith("linux"):
        return False
    return _kind_of(path) in _LOCAL


def _kind_of(path: Path) -> str:
    """Returns the type of the file system of ``path``; empty: not known."""
    place = os.path.realpath(path)
    found, kind = "", ""
    with suppress(OSError):
        for line in _MOUNTS.read_text("utf-8", "surrogateescape").splitlines():
            words, _, about = line.partition(" - ")
            mount = _OCTAL.sub(lambda code: chr(int(code[1], 8)), words.split()[4])
            below = mount == "/" or place == mount or place.startswith(f"{mount}/")
            if below and len(mount) >= len(found):  # of two at one place the later is on top
                found, kind = mount, about.split()[0]
    return kind


def older_than_boot(path: Path) -> bool:
    """Returns whether ``path`` was last written before this machine started. False if unknown."""
    booted = booted_at()
    return booted is not None and path.stat().st_mtime < booted - _MARGIN


def booted_at() -> float | None:
    """Returns the time of this machine's start in seconds since 1970, by its clock now or at an
    earlier moment since, whichever is earlier; None: unknown."""
    try:
        lines = _STAT.read_text("ascii").splitlines()
    except OSError:
        return None
    times = [float(line.split()[1]) for line in lines if line.startswith("btime ")]
    if not times or not times[0]:
        return None
    for folder in _MADE_AT_BOOT:
        if _kind_of(folder) not in _MEMORY:
            continue  # of an image, which may be years old
        with suppress(OSError), os.scandir(folder) as entries:
            times += [entry.stat(follow_symlinks=False).st_ctime for entry in entries]
    return min(time for time in times if time > 0)
