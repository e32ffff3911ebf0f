"""Writes files so that they are private, whole and, where asked, there after a power cut.

What is written appears under its name in one step (``replace``), or is created by whoever comes
first (``write_new``: claims), or grows in place (``private``: logs, parts, rejects). Mode 0600
unless said otherwise. Every function raises ``OSError``; the caller knows what the file was for and
which error of ``errors`` that makes. Not here: locks, moves of folders, what is in a file.
"""

import ctypes
import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Literal

PRIVATE = 0o600
SHARED = 0o666
"""Of files in a lake, for whomever the umask and the folder let in."""


def private(
    path: str | Path,
    mode: Literal["wb", "ab", "xb"],
    *,
    buffering: int = -1,
    permissions: int = PRIVATE,
) -> IO[bytes]:
    """Open a file to write it in place. One that it creates has ``permissions`` less the umask; one
    that exists keeps its own."""

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags, permissions)

    return open(path, mode, buffering, opener=opener)


def write_new(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Create a file that must not exist: of several callers one succeeds, the others get
    ``FileExistsError``. A reader may meet it before its content is there. ``durable``: file and
    name survive a power cut once the call returns."""
    with private(path, "xb") as file:
        file.write(content)
        if durable:
            sync_file(file)
    if durable:
        sync(path.parent)


def replace(
    path: Path, content: bytes | bytearray, *, durable: bool = False, permissions: int = PRIVATE
) -> None:
    """Put ``content`` under ``path`` in one step. ``durable``: file and name survive a power cut
    once the call returns; without it the old content, the new or none may be there after one."""
    with replacing(path, permissions=permissions) as file:
        file.write(content)
        if durable:
            sync_file(file)
    if durable:
        sync(path.parent)


@contextmanager
def replacing(path: Path, *, permissions: int = PRIVATE) -> Generator[IO[bytes]]:
    """Write a draft beside ``path`` that takes its name at the end; removed on an exception. Its
    hidden name is its own, so that several processes may write one file."""
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
    """Make what was written to an open file durable; its name is its folder's."""
    file.flush()
    os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Make a file's content, or the names in a folder, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file_system(path: Path) -> None:
    """Make everything written so far durable on the file system of ``path`` (one call for any
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
    """Return this process's umask."""
    with suppress(OSError, ValueError, StopIteration), open("/proc/self/status") as lines:
        return int(next(x for x in lines if x.startswith("Umask:")).split()[1], 8)
    found = os.umask(PRIVATE ^ 0o777)  # no other way to ask; for a moment it is a private one
    os.umask(found)
    return found
