"""Writes arguments that hold secrets to files in a private folder, and removes it (L10).

A folder has mode 0700, its files 0600. It is made in memory (``/dev/shm``) where that is a writable
tmpfs with room, else in the temporary directory. Its name identifies the owning process, so that a
later run removes the folders of killed ones. Not here: what the files mean (``protocols``).
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from penstock.errors import ConnectorError
from penstock.files import write_new
from penstock.runtimes.contract import Argument, PrivateFile
from penstock.runtimes.owner import is_dead, this_owner

_PREFIX = "penstock-private"
_SHM = Path("/dev/shm")
_CONTENT_BOUND = 64 << 20


class PrivateFolder:
    """Writes the files of arguments to a new private folder. ``arguments``: as text, with the
    files' paths; ``path``: the folder; None: no file is needed. A subclass may lay its files out
    otherwise (``_needed``, ``_write``). Raises ``ConnectorError``."""

    def __init__(self, arguments: Sequence[Argument]) -> None:
        self.path: Path | None = None
        self.arguments: list[str] = []
        self._files: dict[str, Path] = {}
        if not self._needed(arguments):
            self.arguments = [a for a in arguments if isinstance(a, str)]
            return
        failure: OSError | None = None
        for base in _bases():
            _sweep(base)
            try:
                # One prefix per owner; mkdtemp creates it 0700 and never follows what was there.
                made = tempfile.mkdtemp(prefix=f"{_PREFIX}-{this_owner()}-", dir=base)
                self.path = Path(made)
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
        # The number keeps two arguments of one name apart; the name is only for readers.
        path = folder / f"{number}-{os.path.basename(file.name)}"
        write_new(path, file.content)
        self._files.setdefault(file.name, path)
        return path

    def content(self, name: str) -> bytes | None:
        """Returns the content of the file of the argument ``name`` (of the first one, where two
        have that name). None where it is gone, no longer a regular file, or larger than 64 MB: the
        connector may have put anything in its place."""
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


def _sweep(base: Path) -> None:
    """Removes this user's folders whose owner is dead."""
    try:
        entries = [e for e in os.scandir(base) if e.name.startswith(f"{_PREFIX}-")]
    except OSError:
        return
    for entry in entries:
        try:
            ours = entry.stat(follow_symlinks=False).st_uid == os.getuid()
            if ours and entry.is_dir(follow_symlinks=False) and is_dead(_owner_of(entry.name)):
                shutil.rmtree(entry.path, ignore_errors=True)
        except OSError:
            continue


def _owner_of(name: str) -> str:
    return name.removeprefix(f"{_PREFIX}-").rpartition("-")[0]
