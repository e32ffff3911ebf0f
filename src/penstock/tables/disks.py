"""Says whether a power cut can have damaged a file: whether its disk is this machine's own, and
whether the machine has started since the file was written.

Whoever takes away a file that another writer left must know that no other writer is still at it.
Clocks jump, so a file counts as older than the boot only where it is older than every sign of it:
the kernel's own time of the boot, and what was made in ``/dev``, ``/run`` and ``/sys`` since.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

_LOCAL = frozenset(
    ("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "xfs", "zfs")
)
_MOUNTS, _STAT = Path("/proc/self/mountinfo"), Path("/proc/stat")
_MADE_AT_BOOT = ("/dev", "/run", "/sys")
_MARGIN = 2.0  # seconds: of file systems that store whole seconds


def boot() -> str:
    """Identifies this start of the machine; empty where the kernel does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def on_own_disk(path: Path) -> bool:
    """Whether ``path``, which exists, is on a file system that only this machine writes to. False
    where that is not known."""
    if not sys.platform.startswith("linux"):
        return False
    place = os.path.realpath(path)
    found, kind = "", ""
    with suppress(OSError):
        for line in _MOUNTS.read_text("utf-8", "surrogateescape").splitlines():
            words, _, about = line.partition(" - ")
            mount = words.split()[4].encode("latin-1", "surrogateescape").decode("unicode_escape")
            below = mount == "/" or place == mount or place.startswith(f"{mount}/")
            if below and len(mount) >= len(found):  # of two at one place the later is on top
                found, kind = mount, about.split()[0]
    return kind in _LOCAL


def older_than_boot(path: Path) -> bool:
    """Whether ``path`` was last written before this machine started. False where that is not
    known."""
    booted = _booted_at()
    return booted is not None and path.stat().st_mtime < booted - _MARGIN


def _booted_at() -> float | None:
    """Seconds since 1970, by the clock as it is now or was since the boot, whichever is earlier."""
    try:
        lines = _STAT.read_text("ascii").splitlines()
    except OSError:
        return None
    told = [float(line.split()[1]) for line in lines if line.startswith("btime ")]
    if not told or not told[0]:
        return None
    for folder in _MADE_AT_BOOT:
        with suppress(OSError), os.scandir(folder) as entries:
            told += [entry.stat(follow_symlinks=False).st_ctime for entry in entries]
    return min(time for time in told if time > 0)
