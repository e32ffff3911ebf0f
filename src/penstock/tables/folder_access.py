"""Gives files and folders in a lake the access that its folders ask for: by the umask, a
set-group-ID bit and a default access list, as the kernel gives it to what is made there.

Needed for what is not made there, or is changed after: parts that are linked (``linked_parts``),
and folders that Spark makes, since Hadoop sets their mode, which cuts an access list. (Hadoop's
umask is set to this process's: ``spark.session``.) Not here: files that are simply written.
"""

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from penstock.files import SHARED, private

_ACL, _DEFAULT_ACL = "system.posix_acl_access", "system.posix_acl_default"


class FileAccess(msgspec.Struct, frozen=True):
    """The access of a new file of a folder. ``acl``: its access list, where it has one beside its
    mode."""

    mode: int
    group: int
    acl: bytes | None

    def give(self, file: Path) -> None:
        """Gives a file that was made elsewhere the same access. Raises ``OSError``."""
        if file.stat().st_gid != self.group:
            os.chown(file, -1, self.group)
        os.chmod(file, self.mode)
        if self.acl is not None:
            os.setxattr(file, _ACL, self.acl)


def of_new_file(probe: Path) -> FileAccess:
    """Returns the access of a file that is made under the path ``probe``, which must be free. It is
    removed. Raises ``OSError``."""
    with private(probe, "xb", permissions=SHARED) as file:
        made = os.fstat(file.fileno())
    acl = _access_list(probe, _ACL)
    probe.unlink()
    return FileAccess(made.st_mode & 0o777, made.st_gid, acl)


def inherit(folder: Path, parent: Path) -> None:
    """Gives a folder that Spark made the access list that it has by the default one of ``parent``.
    Does nothing where there is none, or the folder is another user's, who has done so."""
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
