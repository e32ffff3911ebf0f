"""Writes files so that they are private, complete and, on request, durable after a power cut.

Content appears under its name in one step (``replace``), or is created by the first caller
(``write_new``: claims), or grows in place (``private``: logs, parts, rejects). Mode 0600 by
default. Every function raises ``OSError``; the caller knows the file's purpose and which error of
``errors`` results. Not here: locks, moves of folders, what is in a file.
"""

import ctypes
import errno
import os
import secrets
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Literal

PRIVATE = 0o600
SHARED = 0o666
"""The mode of files in a lake; the umask and the folder restrict it."""
SYNC_FILES = 8  # synced one by one; above this number, their file system is synced at once
_NO_SYNC = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


def private(
    path: str | Path,
    mode: Literal["wb", "ab", "xb"],
    *,
    buffering: int = -1,
    permissions: int = PRIVATE,
) -> IO[bytes]:
    """Opens a file to write it in place. A new file has ``permissions`` less the umask; an existing
    one keeps its own."""

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags, permissions)

    return open(path, mode, buffering, opener=opener)


def write_new(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Creates a file that must not exist: of several callers one succeeds, the others get
    ``FileExistsError``. A reader may see the file before its content. ``durable``: file and name
    survive a power cut once the call returns."""
    with private(path, "xb") as file:
        file.write(content)
        if durable:
            sync_file(file)
    if durable:
        sync(path.parent)


def replace(
    path: Path, content: bytes | bytearray, *, durable: bool = False, permissions: int = PRIVATE
) -> None:
    """Puts ``content`` under ``path`` in one step. ``durable``: file and name survive a power cut
    once the call returns; without it, the old content, the new or none may remain after a power
    cut."""
    with replacing(path, permissions=permissions) as file:
        file.write(content)
        if durable:
            sync_file(file)
    if durable:
        sync(path.parent)


@contextmanager
def replacing(path: Path, *, permissions: int = PRIVATE) -> Generator[IO[bytes]]:
    """Writes a draft next to ``path`` that takes its name at the end; removes it on an exception.
    The draft has a unique hidden name, so that several processes may write one file."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with private(draft, "xb", permissions=permissions) as file:
            yield file
        os.replace(draft, path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise


def sync_file(file: IO[bytes]) -> None:
    """Makes what was written to an open file durable; its name becomes durable with its folder."""
    file.flush()
    try:
        os.fsync(file.fileno())
    except OSError as error:
        raise _of_file(error, file.name) from None


def sync(path: Path) -> None:
    """Makes a file's content, or the names in a folder, durable. A file system without a sync of
    folders keeps their names itself."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_SYNC or not stat.S_ISDIR(os.fstat(handle).st_mode):
            raise _of_file(error, str(path)) from None
    finally:
        os.close(handle)


def _of_file(error: OSError, name: str) -> OSError:
    """Adds the file's name to the error of a call that knows a file only by its descriptor."""
    return OSError(error.errno, error.strerror, name)


def sync_files(paths: Sequence[Path]) -> None:
    """Makes files and folders of one file system durable: one by one, or the whole file system
    where they are more than :data:`SYNC_FILES`: thousands of small files one by one would take
    minutes."""
    if len(paths) > SYNC_FILES:
        sync_file_system(paths[0].parent)
        return
    for path in paths:
        sync(path)


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Creates a folder and its missing parents, so that they and their content survive a power cut.
    Each has ``mode`` less the umask."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode, exist_ok=True)
    for folder in missing:
        try:
            sync(folder.parent)
        except PermissionError:  # it may be writable, but not readable
            sync_file_system(folder)
    if not missing:
        path.mkdir(mode, exist_ok=True)  # raises where it is not a folder


def sync_file_system(path: Path) -> None:
    """Makes everything written so far durable on the file system of ``path`` (one call for any
    number of files)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "syncfs"):
        os.sync()
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        if libc.syncfs(handle):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(handle)


def umask() -> int:
    """Returns this process's umask."""
    with suppress(OSError, ValueError, StopIteration), open("/proc/self/status") as lines:
        return int(next(x for x in lines if x.startswith("Umask:")).split()[1], 8)
    found = os.umask(PRIVATE ^ 0o777)  # the only way to read it; for a moment it is a private one
    os.umask(found)
    return found
