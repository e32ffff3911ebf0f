"""Writes arguments that hold secrets to files in a private folder, and removes it (L10).

A folder has mode 0700, its files 0600. It is in memory (``/dev/shm``) where that is a writable
tmpfs with room, else in the temporary directory. Its owner holds a lock on it, which the kernel
releases when the owner dies, in any process namespace. The next run or connector start of this user
removes every folder without a lock. Not here: what the files mean (``protocols``).
"""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from penstock.errors import ConnectorError
from penstock.files import write_new
from penstock.runtimes.contract import Argument, PrivateFile
from penstock.runtimes.owner import is_dead

_PREFIX = "penstock-held-"
_EARLIER = "penstock-private-"  # of earlier versions, with the owner's name instead of a lock
_SHM = Path("/dev/shm")
_CONTENT_BOUND = 64 << 20


class PrivateFolder:
    """Writes the files of arguments to a new private folder. ``arguments``: as text, with the
    files' paths; ``path``: the folder; None: no file is needed. A subclass may arrange its files
    differently (``_needed``, ``_write``). Raises ``ConnectorError``."""

    def __init__(self, arguments: Sequence[Argument]) -> None:
        self.path: Path | None = None
        self.arguments: list[str] = []
        self._files: dict[str, Path] = {}
        self._lock: int | None = None
        if not self._needed(arguments):
            self.arguments = [a for a in arguments if isinstance(a, str)]
            return
        failure: OSError | None = None
        for base in _bases():
            _sweep(base)
            try:
                self.path, self._lock = _held_folder(base)
                self.arguments = self._write(self.path, arguments)
                return
            except OSError as e:
                self.remove()
                failure = e
        raise ConnectorError(
            f"the connector's private files cannot be written: {failure}",
            code="connector.start_failed",
            hint="make room in the temporary directory, or point TMPDIR to one that has some",
        )

    def _needed(self, arguments: Sequence[Argument]) -> bool:
        return any(isinstance(a, PrivateFile) for a in arguments)

    def _write(self, folder: Path, arguments: Sequence[Argument]) -> list[str]:
        """Writes every file into ``folder``; returns the arguments, with the files' paths."""
        written: list[str] = []
        for number, argument in enumerate(arguments):
            if isinstance(argument, str):
                written.append(argument)
            else:
                written.append(str(self._put(folder, number, argument)))
        return written

    def _put(self, folder: Path, number: int, file: PrivateFile) -> Path:
        # The number distinguishes arguments of one name; the name is only for readers.
        path = folder / f"{number}-{os.path.basename(file.name)}"
        write_new(path, file.content)
        self._files.setdefault(file.name, path)
        return path

    def content(self, name: str) -> bytes | None:
        """Returns the content of the file of the argument ``name`` (of the first, if two have that
        name). None where it is gone, no longer a regular file, or larger than 64 MB: the connector
        may have replaced it by anything."""
        path = self._files.get(name)
        if path is None:
            return None
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(fd, "rb") as f:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    return None
                content = f.read(_CONTENT_BOUND + 1)
        except OSError:
            return None
        return content if len(content) <= _CONTENT_BOUND else None

    def remove(self) -> None:
        """Removes the folder. Idempotent."""
        if self.path is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            if not self.path.exists():
                self.path = None
        if self.path is None and self._lock is not None:
            os.close(self._lock)
            self._lock = None


def remove_left() -> None:
    """Removes this user's folders whose owner is dead. Never raises."""
    for base in _bases():
        _sweep(base)


def _bases() -> list[Path]:
    temporary = Path(tempfile.gettempdir())
    return [_SHM, temporary] if _in_memory() else [temporary]


@cache
def _in_memory() -> bool:
    try:
        mounts = Path("/proc/mounts").read_text()
    except OSError:
        return False
    return any(line.split()[1:3] == [str(_SHM), "tmpfs"] for line in mounts.splitlines()) and (
        os.access(_SHM, os.W_OK | os.X_OK)
    )


def _held_folder(base: Path) -> tuple[Path, int]:
    """Makes a folder and locks it; returns it and the lock's descriptor. Raises ``OSError``."""
    while True:
        # mkdtemp creates it with 0700 and never follows an existing link
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        with suppress(FileNotFoundError):  # another start took it for an unlocked one
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            if _try_lock(handle) is not False and path.exists():
                return path, handle
            os.close(handle)


def _try_lock(handle: int) -> bool | None:
    """Returns whether nobody else holds the lock; it is ours then. None where the file system has
    no locks, so that no folder there is known to be a dead owner's."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _sweep(base: Path) -> None:
    try:
        entries = [e for e in os.scandir(base) if e.name.startswith((_PREFIX, _EARLIER))]
    except OSError:
        return
    for entry in entries:
        with suppress(OSError):
            if entry.stat(follow_symlinks=False).st_uid != os.geteuid():
                continue
            if entry.name.startswith(_PREFIX):
                _remove_unheld(entry.path)
            elif is_dead(entry.name.removeprefix(_EARLIER).rpartition("-")[0]):
                shutil.rmtree(entry.path, ignore_errors=True)


def _remove_unheld(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if _try_lock(handle):
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(handle)
