"""Table folders on a local file system: what they hold, and how they change in one step.

A table is one folder of Parquet files and a marker, ``_penstock.json`` (hidden from readers by its
name), which holds the table's columns and the highest number applied per load key (L3). Files of an
appended load bear its key's hash and number; while the marker does not know that number the load is
unfinished, and whoever rewrites the table leaves its files out. ``.penstock`` beside the tables
holds locks and staging. Not here: rows, Spark (``parquet``).
"""

import ctypes
import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from penstock.errors import DestinationError
from penstock.files import replace
from penstock.model.segments import Load
from penstock.model.types import Field
from penstock.tables.contract import Held, TableName

MARKER = "_penstock.json"
OWN_FOLDER = ".penstock"
LOCK_SECONDS = 60.0
_SUFFIX = ".parquet"
_REWRITTEN = "t"  # instead of a key's hash: files of a rewritten table, always finished
_SWAP = 2  # RENAME_EXCHANGE of renameat2, RENAME_SWAP of renamex_np
_AT_FDCWD = -100
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


class Marker(msgspec.Struct, frozen=True):
    """Version 1 of the marker. ``applied``: load key -> highest number; ``tokens``: load key ->
    token of the load with that number, where it has one."""

    columns: tuple[Field, ...]
    applied: dict[str, int] = {}
    version: int = 1
    tokens: dict[str, str] = {}

    def held(self, key: str) -> Held | None:
        number = self.applied.get(key)
        return None if number is None else Held(number, self.tokens.get(key))

    def with_load(self, load: Load) -> "Marker":
        tokens = {k: token for k, token in self.tokens.items() if k != load.key}
        if load.token:
            tokens[load.key] = load.token
        return Marker(self.columns, {**self.applied, load.key: load.number}, tokens=tokens)


def read_marker(folder: Path) -> Marker | None:
    """None where there is no table. Raises ``DestinationError`` (``destination.not_ours``) for a
    folder with other content."""
    try:
        return msgspec.json.decode((folder / MARKER).read_bytes(), type=Marker)
    except FileNotFoundError:
        with suppress(FileNotFoundError):
            if any(folder.iterdir()):
                raise _not_ours(folder, f"has files but no {MARKER}") from None
        return None
    except (msgspec.DecodeError, NotADirectoryError) as failure:
        raise _not_ours(folder, f"is not a table of ours ({failure})") from failure


def _not_ours(folder: Path, reason: str) -> DestinationError:
    return DestinationError(
        f"{folder} {reason}: nothing is written there",
        code="destination.not_ours",
        where=str(folder),
        hint="move it away, or choose another path",
    )


def write_marker(folder: Path, marker: Marker) -> None:
    replace(folder / MARKER, msgspec.json.encode(marker), permissions=0o666)


def finished_files(folder: Path, marker: Marker) -> list[str]:
    """The files whose rows the table has, in the order of their names."""
    applied = {_key_hash(key): number for key, number in marker.applied.items()}

    def finished(name: str) -> bool:
        owner, _, rest = name.partition("-")
        if owner == _REWRITTEN or owner not in applied:
            return owner == _REWRITTEN
        return int(rest.split("-")[0]) <= applied[owner]

    return sorted(str(folder / n) for n in parquet_files(folder) if finished(n))


def parquet_files(folder: Path) -> list[str]:
    with suppress(FileNotFoundError):
        return sorted(n for n in os.listdir(folder) if n.endswith(_SUFFIX) and n[0] not in "._")
    return []


def take_files(staged: Sequence[Path], folder: Path, key: str, number: int) -> None:
    """Move a load's files into a table, replacing exactly those of an earlier try."""
    stem = f"{_key_hash(key)}-{number:012d}-"
    earlier = {n for n in parquet_files(folder) if n.startswith(stem)}
    for index, file in enumerate(staged):
        target = f"{stem}{index:05d}{_SUFFIX}"
        os.replace(file, folder / target)
        earlier.discard(target)
    for name in earlier:
        os.unlink(folder / name)


def name_rewritten(folder: Path) -> None:
    """Give what Spark wrote into ``folder`` the names of a rewritten table; drop what it added."""
    token = secrets.token_hex(4)
    for index, name in enumerate(parquet_files(folder)):
        os.rename(folder / name, folder / f"{_REWRITTEN}-{token}-{index:05d}{_SUFFIX}")
    for name in os.listdir(folder):
        if not name.endswith(_SUFFIX) or name.startswith("."):
            os.unlink(folder / name)


def prove_writable(folder: Path) -> None:
    """Whether ``folder`` is, or could be made, a folder to write to: by a file in what there is of
    it, which leaves nothing behind (permission bits say nothing to root, or of a read-only file
    system). Raises ``DestinationError`` (``destination.not_writable``)."""
    try:
        nearest = next(p for p in (folder, *folder.parents) if p.exists())
        if not nearest.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        _try_file(nearest)
    except OSError as failure:
        raise _not_writable(folder, failure) from failure


def make_writable(folder: Path) -> None:
    """Create ``folder`` and write a file there, which leaves nothing behind. Raises
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
    return DestinationError(
        f"{folder} is not writable: {failure.strerror}",
        code="destination.not_writable",
        where=str(folder),
        hint="choose a folder that this user may write to",
    )


def _key_hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:16]


class Root:
    """The folder that holds a destination's tables."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.own = path / OWN_FOLDER

    def folder(self, table: TableName) -> Path:
        return self.path / (table.namespace or "") / table.name

    def prepare(self) -> None:
        """Create what is missing and prove that files can be written. ``DestinationError``."""
        make_writable(self.own)

    @contextmanager
    def lock(self, table: TableName) -> Generator[None]:
        """Hold the table against other processes and threads; waits 60 s at most."""
        name = hashlib.sha256(msgspec.json.encode([table.namespace, table.name])).hexdigest()[:16]
        handle = os.open(self.own / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o644)
        deadline = time.monotonic() + LOCK_SECONDS
        try:
            while not _try_lock(handle):
                if time.monotonic() > deadline:
                    raise DestinationError(
                        f"another process holds table {table.name} for more than "
                        f"{LOCK_SECONDS:.0f} s",
                        code="destination.table_locked",
                        where=str(self.folder(table)),
                        hint="wait for the other run to end, then run again",
                    )
                time.sleep(0.02)
            yield
        finally:
            os.close(handle)

    @contextmanager
    def staging(self) -> Generator[Path]:
        """A private folder on the tables' file system, removed at the end; what dead processes left
        is removed first."""
        self._sweep()
        while True:
            token = secrets.token_hex(8)
            alive = self.own / f"{token}.alive"
            handle = os.open(alive, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
            if _try_lock(handle) and os.fstat(handle).st_nlink:
                break
            os.close(handle)
        folder = self.own / f"{token}.staging"
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            alive.unlink(missing_ok=True)
            os.close(handle)

    def _sweep(self) -> None:
        for alive in self.own.glob("*.alive"):
            with suppress(FileNotFoundError):
                handle = os.open(alive, os.O_RDWR)
                try:
                    if _try_lock(handle):
                        shutil.rmtree(alive.with_suffix(".staging"), ignore_errors=True)
                        alive.unlink(missing_ok=True)
                finally:
                    os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def put_folder(new: Path, place: Path) -> None:
    """Make ``new`` the folder at ``place`` in one step; what was there is at ``new`` afterwards.

    Raises ``DestinationError`` (``destination.no_exchange``) where the file system cannot."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.exists():
        os.rename(new, place)
        return
    number = _exchange(new, place)
    if not number:
        return
    if number not in _UNSUPPORTED:
        raise OSError(number, os.strerror(number), str(place))
    raise DestinationError(
        f"the file system of {place} cannot exchange two folders in one step",
        code="destination.no_exchange",
        where=str(place),
        hint="use a local file system (ext4, xfs, btrfs, apfs), or a delta table",
    )


def can_exchange(folder: Path) -> bool:
    """Whether the file system that ``folder`` is, or would be, on can exchange two folders in one
    step: tried with two of our own, which are removed."""
    nearest = next(p for p in (folder, *folder.parents) if p.exists())
    with tempfile.TemporaryDirectory(prefix=".penstock-try-", dir=nearest) as tried:
        one, other = Path(tried, "one"), Path(tried, "other")
        one.mkdir()
        other.mkdir()
        return not _exchange(one, other)


def _exchange(new: Path, place: Path) -> int:
    """0, or the number of the error."""
    libc = ctypes.CDLL(None, use_errno=True)
    old, fresh = os.fsencode(place), os.fsencode(new)
    if sys.platform == "darwin":
        failed = libc.renamex_np(fresh, old, _SWAP)
    elif hasattr(libc, "renameat2"):
        failed = libc.renameat2(_AT_FDCWD, fresh, _AT_FDCWD, old, _SWAP)
    else:
        failed = ctypes.set_errno(errno.ENOSYS) or 1
    return ctypes.get_errno() if failed else 0
