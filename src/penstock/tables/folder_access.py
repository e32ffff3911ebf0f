"""Gives files and folders in a lake the access that their parent folders prescribe: by the umask, a
set-group-ID bit and a default access list, as the kernel does for files created there.

Needed for files that are not created there, or change later: linked parts (``linked_parts``), and
folders that Spark creates, since Hadoop sets their mode, which restricts an access list. (Hadoop's
umask is set to this process's: ``spark.session``.) Also proves that a folder is writable, before
rows are read (``check``) and before a load. Not here: files that are simply written."""

import errno
import os
import tempfile
from contextlib import suppress
from pathlib import Path

import msgspec

from penstock.errors import DestinationError
from penstock.files import SHARED, private

_ACL, _DEFAULT_ACL = "system.posix_acl_access", "system.posix_acl_default"


class FileAccess(msgspec.Struct, frozen=True):
    """Holds the access of a new file in a folder. ``acl``: its access list, if it has one in
    addition to its mode."""

    mode: int
    group: int
    acl: bytes | None

    def give(self, file: Path) -> None:
        """Gives a file that was created elsewhere the same access. Raises ``OSError``."""
        if file.stat().st_gid != self.group:
            os.chown(file, -1, self.group)
        os.chmod(file, self.mode)
        if self.acl is not None:
            os.setxattr(file, _ACL, self.acl)


def of_new_file(probe: Path) -> FileAccess:
    """Returns the access of a file that is created at the path ``probe``, which must be free, and
    then removed. Raises ``OSError``."""
    with private(probe, "xb", permissions=SHARED) as file:
        made = os.fstat(file.fileno())
    acl = _access_list(probe, _ACL)
    probe.unlink()
    return FileAccess(made.st_mode & 0o777, made.st_gid, acl)


def inherit(folder: Path, parent: Path) -> None:
    """Gives a folder that Spark created the access list that the default one of ``parent``
    prescribes. Does nothing if there is none, or if the folder belongs to another user, who has
    done so."""
    acl = _access_list(parent, _DEFAULT_ACL)
    if acl is not None:
        with suppress(OSError):
            os.setxattr(folder, _ACL, acl)


def _access_list(path: Path, name: str) -> bytes | None:
    if not hasattr(os, "getxattr"):
        return None
    with suppress(OSError):  # no such list, or a file system without them
        return os.getxattr(path, name)
    return None


def prove_writable(folder: Path) -> None:
    """Proves that ``folder`` can be written to, or created: writes a temporary file into it or its
    nearest existing parent. (Permission bits are no proof for root, nor on a read-only file
    system.) Leaves nothing behind. Raises ``DestinationError`` (``destination.not_writable``)."""
    try:
        nearest = next(p for p in (folder, *folder.parents) if p.exists())
        if not nearest.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        _try_file(nearest)
    except OSError as failure:
        raise _not_writable(folder, failure) from failure


def make_writable(folder: Path) -> None:
    """Creates ``folder`` and proves by a temporary file that it can be written to. Raises
    ``DestinationError`` (``destination.not_writable``)."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _try_file(folder)
    except OSError as failure:
        raise _not_writable(folder, failure) from failure


def _try_file(folder: Path) -> None:
    with tempfile.TemporaryFile(dir=folder):
        pass


def _not_writable(folder: Path, failure: OSError) -> DestinationError:
    if failure.errno in (errno.ENOSPC, errno.EDQUOT):
        return DestinationError(
            f"the disk that holds {folder} is full",
            code="destination.disk_full",
            where=str(folder),
            hint="make room there, or choose a folder on another disk, then run again",
        )
    return DestinationError(
        f"{folder} is not writable: {failure.strerror}",
        code="destination.not_writable",
        where=str(folder),
        hint="choose a folder that this user may write to",
    )
