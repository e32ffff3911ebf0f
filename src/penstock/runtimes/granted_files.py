"""Opens files that a connector names in its messages, if they lie in folders granted to it.

Penstock may read more than a connector may: a container sees only its mounted folders. So a name in
a message must not make Penstock read other files. Each component of a path is opened below the one
before it, without following links. Only a regular file is opened, without waiting: no pipe and no
device. Files that the connector's own user may not open stay closed. Not here: what a file holds
(``protocols``), the files that Penstock makes for a connector (``private_files``). Neighbour:
``contract.SharedFolders`` names the folders.
"""

import os
import stat
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import IO, Self

from penstock.runtimes.contract import SharedFolders

_FOLDER = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class NotGranted(Exception):
    """Raised for a path that the connector may not name, or that is not a regular file."""


class GrantedFiles:
    """Opens files below the folders ``shared`` and ``more``, of which relative ones begin in
    ``shared.cwd``. A context manager. Links in the name of a folder itself belong to its owner, and
    the connector may use the name with or without them. A folder that exists on entry stays the
    granted one, even if its name is reused later; one that the connector makes itself is opened
    with its first file."""

    def __init__(self, shared: SharedFolders, more: Iterable[str] = ()) -> None:
        self._cwd, self._user = shared.cwd, shared.user
        found = [self._full(folder) for folder in (*shared.paths, *more)]
        self._folders = [folder for folder in dict.fromkeys(found) if folder is not None]
        named = {os.path.realpath(f): f for f in self._folders} | {f: f for f in self._folders}
        self._names = sorted(named.items(), key=lambda item: len(item[0]), reverse=True)
        self._opened: dict[str, int] = {}

    def __enter__(self) -> Self:
        for folder in self._folders:
            if os.path.isdir(folder):
                self._folder(folder)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        opened, self._opened = self._opened, {}
        for fd in opened.values():
            os.close(fd)

    @property
    def folders(self) -> tuple[str, ...]:
        """Returns the full paths of the folders."""
        return tuple(self._folders)

    @property
    def isolated(self) -> bool:
        """Returns whether the connector has a file system of its own, and so shares only these
        folders."""
        return self._cwd is None

    def open(self, name: str) -> IO[bytes]:
        """Opens the file ``name`` to read. Raises :class:`NotGranted`; ``OSError`` where it is
        missing or may not be read."""
        path = self._full(name)
        if path is None:
            raise NotGranted("it is not the full path of a file")
        for name_of_folder, folder in self._names:
            start = name_of_folder.rstrip("/") + "/"
            if path.startswith(start) and path != start:
                return os.fdopen(self._walk(folder, path[len(start) :].split("/")), "rb")
        raise NotGranted("it does not lie in a folder that the connector was given")

    def _full(self, name: str) -> str | None:
        """Returns the full path, without ``.`` and ``..``; None where ``name`` is not a path."""
        if not name or "\0" in name or (self._cwd is None and not name.startswith("/")):
            return None
        try:
            os.fsencode(name)
        except UnicodeEncodeError:
            return None
        return os.path.normpath("/" + os.path.join(self._cwd or "/", name).lstrip("/"))

    def _folder(self, path: str) -> int:
        fd = self._opened.get(path)
        if fd is None:
            fd = self._opened[path] = os.open(path, _FOLDER)
        return fd

    def _walk(self, folder: str, names: list[str]) -> int:
        """Opens the file that ``names`` lead to below ``folder``, folder by folder."""
        start = at = self._folder(folder)
        try:
            for name in names[:-1]:
                _refuse_unless(stat.S_ISDIR, name, at)
                inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=at)
                if at != start:
                    os.close(at)
                at = inner
                self._refuse_to_strangers(name, os.fstat(at), stat.S_IXUSR, stat.S_IXOTH)
            return self._regular(names[-1], at)
        finally:
            if at != start:
                os.close(at)

    def _regular(self, name: str, at: int) -> int:
        # Opening a device may have effects, so a file is checked before and after.
        _refuse_unless(stat.S_ISREG, name, at)
        fd = os.open(name, _FILE, dir_fd=at)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise NotGranted(f"{name!r} is not a regular file")
            self._refuse_to_strangers(name, found, stat.S_IRUSR, stat.S_IROTH)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _refuse_to_strangers(
        self, name: str, found: os.stat_result, owner: int, others: int
    ) -> None:
        """Raises :class:`NotGranted` for a file that the connector's own user may not open. Group
        membership is unknown."""
        needed = owner if found.st_uid == self._user else others
        if self._user is not None and not found.st_mode & needed:
            raise NotGranted(f"the connector's own user may not open {name!r}")


def _refuse_unless(kind: Callable[[int], bool], name: str, at: int) -> None:
    """Raises :class:`NotGranted` where ``name`` in the folder ``at`` is of another kind."""
    mode = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
    if kind(mode):
        return
    if stat.S_ISLNK(mode):
        raise NotGranted(f"{name!r} is a symbolic link, which is not followed")
    raise NotGranted(f"{name!r} is not a {'folder' if kind is stat.S_ISDIR else 'regular file'}")
