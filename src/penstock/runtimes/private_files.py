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

_PREFIX = "penstock-private"
_SHM = Path("/dev/shm")
_CONTENT_BOUND = 64 << 20


class PrivateFolder:
    """Arguments with their files written; ``path`` None: there are none. ``remove`` may be called
    any number of times."""

    def __init__(self, arguments: Sequence[Argument]) -> None:
        self.path: Path | None = None
        self.arguments: list[str] = []
        self._files: dict[str, Path] = {}
        if not any(isinstance(a, PrivateFile) for a in arguments):
            self.arguments = [a for a in arguments if isinstance(a, str)]
            return
        failure: OSError | None = None
        for base in _bases():
            _sweep(base)
            try:
                return self._write(base, arguments)
            except OSError as e:
                self.remove()
                failure = e
        raise ConnectorError(
            f"the connector's private files cannot be written: {failure}",
            code="connector.start_failed",
            hint="make room in the temporary directory, or point TMPDIR to one that has some",
        )

    def _write(self, base: Path, arguments: Sequence[Argument]) -> None:
        # One prefix per owner; mkdtemp creates it 0700 and never follows what was there.
        self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}-{_owner()}-", dir=base))
        written: list[str] = []
        for number, argument in enumerate(arguments):
            if isinstance(argument, str):
                written.append(argument)
                continue
            # The number keeps two arguments of one name apart; the name is only for readers.
            path = self.path / f"{number}-{os.path.basename(argument.name)}"
            write_new(path, argument.content)
            self._files.setdefault(argument.name, path)
            written.append(str(path))
        self.arguments = written

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


def _owner() -> str:
    """boot, process namespace, pid, start time: enough to know later whether this process lives.
    Zeros where the system does not tell."""
    return "-".join((*_world(), str(os.getpid()), _started(os.getpid()) or "0"))


@cache
def _world() -> tuple[str, str]:
    """This boot, and the namespace in which a pid means something: containers may share a temporary
    directory, and a pid of one says nothing in another."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
        namespace = "".join(c for c in os.readlink("/proc/self/ns/pid") if c.isdigit())
    except OSError:
        return ("0", "0")
    return (boot, namespace)


def _started(pid: int) -> str | None:
    """Start time in clock ticks; None where there is no such process, or no ``/proc``."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return None


def _sweep(base: Path) -> None:
    """Remove this user's folders whose owner is dead."""
    try:
        entries = [e for e in os.scandir(base) if e.name.startswith(f"{_PREFIX}-")]
    except OSError:
        return
    for entry in entries:
        try:
            ours = entry.stat(follow_symlinks=False).st_uid == os.getuid()
            if ours and entry.is_dir(follow_symlinks=False) and _is_dead(entry.name):
                shutil.rmtree(entry.path, ignore_errors=True)
        except OSError:
            continue


def _is_dead(name: str) -> bool:
    parts = name.removeprefix(f"{_PREFIX}-").split("-")
    if len(parts) != 5 or not parts[2].isdigit():
        return False
    boot, namespace, pid, started, _ = parts
    here = _world()
    if boot != here[0]:
        return boot != "0" and here[0] != "0"
    if namespace != here[1]:
        return False
    if started != "0":
        return _started(int(pid)) != started
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
