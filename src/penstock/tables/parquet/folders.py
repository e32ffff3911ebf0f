"""Reads and changes the folders of Parquet tables on a local file system, in atomic steps.

A table is one folder of Parquet files and a marker, ``_penstock.json`` (its name hides it from
readers), which holds the table's columns and the highest number applied per load key (L3). The name
of a file that a load appended has the hash of the load's key and its number. Until the marker has
that number the load is unfinished: a rewrite of the table leaves its files out, and the next load
of any key removes them. The folder ``.penstock`` next to the tables holds locks and staging. Not
here: rows, Spark (``parquet``)."""

import ctypes
import errno
import fcntl
import hashlib
import os
import re
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
from penstock.files import SHARED, private, replace, sync
from penstock.model.catalog import DestinationSyncMode, FieldPath
from penstock.model.segments import Load
from penstock.model.types import Field
from penstock.tables.contract import LastLoad, TableName
from penstock.tables.folder_access import inherit, make_writable
from penstock.tables.parquet.spec import SPEC

MARKER = str(SPEC.mark)
OWN_FOLDER = ".penstock"
LOCK_SECONDS = 60.0
NOT_OURS = "destination.not_ours"
_SUFFIX = ".parquet"
_REWRITTEN = "t"  # instead of a key's hash: files of a rewritten table, always finished
_APPENDED = re.compile(r"[0-9a-f]{16}-\d{12}-\d{5,}\.parquet")  # the files of a load
_OURS = re.compile(rf"{_APPENDED.pattern}|{_REWRITTEN}-[0-9a-f]{{8}}-\d{{5,}}\.parquet")
_SWAP = 2  # RENAME_EXCHANGE of renameat2, RENAME_SWAP of renamex_np
_AT_FDCWD = -100
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


class Marker(msgspec.Struct, frozen=True):
    """The marker file, version 1. ``applied``: load key -> highest number; ``tokens``: load key ->
    token of the load with that number, if it has one. ``keyed``: the primary key of which the table
    has one row each, as its last load ensured; empty: unknown."""

    columns: tuple[Field, ...]
    applied: dict[str, int] = {}
    version: int = 1
    tokens: dict[str, str] = {}
    keyed: tuple[FieldPath, ...] = ()

    def last_load(self, key: str) -> LastLoad | None:
        """Returns the last load of ``key`` in this table; None: there is none."""
        number = self.applied.get(key)
        return None if number is None else LastLoad(number, self.tokens.get(key))

    def with_load(self, load: Load) -> "Marker":
        """Returns this marker after ``load`` is applied."""
        dedups = load.disposition.mode is DestinationSyncMode.append_dedup
        keyed = load.disposition.primary_key if dedups else ()
        tokens = {k: token for k, token in self.tokens.items() if k != load.key}
        if load.token:
            tokens[load.key] = load.token
        applied = {**self.applied, load.key: load.number}
        return Marker(self.columns, applied, tokens=tokens, keyed=keyed)


class DamagedMarker(DestinationError):
    """Raised for a marker that is not a complete JSON text, as a power cut may leave it."""

    default_code = "destination.marker_damaged"


def read_marker(folder: Path) -> Marker | None:
    """Reads the marker of ``folder``; None if there is no table. Raises ``DamagedMarker``, and
    ``DestinationError`` (``destination.not_ours``) for a folder with other content."""
    try:
        content = (folder / MARKER).read_bytes()
        return msgspec.json.decode(content, type=Marker)
    except FileNotFoundError:
        with suppress(FileNotFoundError):
            if any(folder.iterdir()):
                raise _not_ours(folder, f"has files but no {MARKER}") from None
        return None
    except NotADirectoryError as failure:
        raise _not_ours(folder, f"is not a table of ours ({failure})") from failure
    except msgspec.ValidationError as failure:  # complete JSON, of another program
        raise _not_ours(folder, f"is not a table of ours ({failure})") from failure
    except msgspec.DecodeError as failure:
        raise DamagedMarker(
            f"the marker of the table in {folder} is damaged ({failure}), as by a power cut",
            where=str(folder / MARKER),
            hint="the next `penstock run` that loads into the table rebuilds it, or shows why not",
        ) from failure


def _not_ours(folder: Path, reason: str) -> DestinationError:
    return DestinationError(
        f"{folder} {reason}: nothing is written there",
        code=NOT_OURS,
        where=str(folder),
        hint="move it away, or choose another path",
    )


def write_marker(folder: Path, marker: Marker) -> None:
    """Replaces the marker of ``folder`` in one durable step."""
    content = msgspec.json.encode(marker)
    replace(folder / MARKER, content, durable=True, permissions=SHARED)


def draft_marker(path: Path, marker: Marker) -> None:
    """Writes a new file that the caller syncs and turns into the marker."""
    with private(path, "xb", permissions=SHARED) as file:
        file.write(msgspec.json.encode(marker))


def finished_files(folder: Path, marker: Marker) -> list[str]:
    """Returns the paths of the files whose rows belong to the table, sorted by name, without files
    of unfinished loads and files that Penstock did not name."""
    applied = {key_hash(key): number for key, number in marker.applied.items()}

    def finished(name: str) -> bool:
        owner = file_owner(name)
        if owner is None or owner.rewrite:
            return owner is not None
        return owner.number <= applied.get(owner.key, -1)

    return sorted(str(folder / n) for n in parquet_files(folder) if finished(n))


def parquet_files(folder: Path) -> list[str]:
    """Returns the names of the Parquet files in ``folder``, without hidden ones; none if it is
    absent."""
    with suppress(FileNotFoundError):
        return sorted(n for n in os.listdir(folder) if n.endswith(_SUFFIX) and n[0] not in "._")
    return []


def take_files(
    staged: Sequence[Path], folder: Path, load: Load, marker: Marker | None = None
) -> None:
    """Moves a load's files into a table's folder, and removes those of every unfinished load: of an
    earlier try of this one, and of loads that are given up (``state reset``) or will be repeated.
    ``marker``: the table's, which does not have this load yet; None: the table is new."""
    stem = f"{key_hash(load.key)}-{load.number:012d}-"
    unfinished = set() if marker is None else _unfinished_files(folder, marker)
    for index, file in enumerate(staged):
        target = f"{stem}{index:05d}{_SUFFIX}"
        os.replace(file, folder / target)
        unfinished.discard(target)
    for name in unfinished:
        os.unlink(folder / name)


def _unfinished_files(folder: Path, marker: Marker) -> set[str]:
    """Returns the names of the files appended by loads whose number ``marker`` lacks. Once it has a
    higher number, such a file counts as finished."""
    finished = {Path(path).name for path in finished_files(folder, marker)}
    return {n for n in parquet_files(folder) if _APPENDED.fullmatch(n)} - finished


class FileOwner(msgspec.Struct, frozen=True):
    """Identifies, from its name, which load wrote a table's file. ``key``: the hash of its load's
    key, or the result of :func:`rewrite_token`; ``number``: of its load, 0 for a ``rewrite``."""

    key: str
    number: int
    rewrite: bool


def file_owner(name: str) -> FileOwner | None:
    """Parses the name of a file in a table's folder; None: no load wrote it."""
    if not _OURS.fullmatch(name):
        return None
    first, second, *_ = name.split("-")
    if first == _REWRITTEN:
        return FileOwner(second, 0, rewrite=True)
    return FileOwner(first, int(second), rewrite=False)


def rewrite_token(key: str, number: int) -> str:
    """Returns the part of a rewritten file's name that identifies the load that wrote it, if the
    table knows no other key."""
    return hashlib.sha256(f"{key}\0{number}".encode()).hexdigest()[:8]


def _refuse_others(folder: Path, table: Path) -> None:
    """Proves that ``folder``, which is or was a table's at path ``table``, has nothing from another
    program or another table that would be deleted with it; hidden files do not count. Raises
    ``DestinationError`` (``destination.not_ours``)."""
    with suppress(FileNotFoundError), os.scandir(folder) as found:
        for entry in found:
            hidden = entry.name[0] in "._" and not entry.is_dir()
            if not hidden and not _OURS.fullmatch(entry.name):
                raise _not_ours(table / entry.name, "is another program's file in a table's folder")


def name_rewritten(folder: Path, marker: Marker, load: Load) -> None:
    """Renames the files that a load wrote into ``folder`` as files of a rewritten table, and
    deletes all others (checksums, ``_SUCCESS``). ``marker``: the folder's."""
    # rows of another pipeline may be in them: then no load of this one accounts for the files
    alone = set(marker.applied) <= {load.key}
    token = rewrite_token(load.key, load.number) if alone else secrets.token_hex(4)
    for index, name in enumerate(parquet_files(folder)):
        os.rename(folder / name, folder / f"{_REWRITTEN}-{token}-{index:05d}{_SUFFIX}")
    for name in os.listdir(folder):
        if not name.endswith(_SUFFIX) or name.startswith("."):
            os.unlink(folder / name)


def key_hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:16]


class Root:
    """The folder that holds a destination's tables, with its locks and staging in ``.penstock``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.own = path / OWN_FOLDER

    def folder(self, table: TableName) -> Path:
        return self.path / (table.namespace or "") / table.name

    def prepare(self) -> None:
        """Creates missing folders and proves that files can be written there. Raises
        ``DestinationError``."""
        make_writable(self.own)

    def lock_name(self, table: TableName) -> str:
        """Returns the name of the table's lock file. Several locks are taken in the order of these
        names."""
        name = msgspec.json.encode([table.namespace, table.name])
        return f"{hashlib.sha256(name).hexdigest()[:16]}.lock"

    @contextmanager
    def lock(self, table: TableName) -> Generator[None]:
        """Locks the table against other processes and threads; waits :data:`LOCK_SECONDS` at most.
        Raises ``DestinationError`` (``destination.table_locked``)."""
        path = self.own / self.lock_name(table)
        handle = _open_lock(path)
        deadline = time.monotonic() + LOCK_SECONDS
        try:
            while not _try_lock(handle) or not _is_at(handle, path):
                if time.monotonic() > deadline:
                    raise DestinationError(
                        f"another process holds table {table.name} for more than "
                        f"{LOCK_SECONDS:.0f} s",
                        code="destination.table_locked",
                        where=str(self.folder(table)),
                        hint="wait for the other run to end, then run again",
                    )
                time.sleep(0.02)
                if not _is_at(handle, path):
                    gone, handle = handle, _open_lock(path)
                    os.close(gone)
            with suppress(PermissionError):  # another user's file
                os.utime(handle)  # cleaners of old files spare it
            yield
        finally:
            os.close(handle)

    @contextmanager
    def staging(self) -> Generator[Path]:
        """Creates a private folder on the tables' file system, removed at the end; first removes
        the staging folders of dead processes."""
        self._sweep()
        while True:
            token = secrets.token_hex(8)
            alive = self.own / f"{token}.alive"
            handle = os.open(alive, os.O_RDWR | os.O_CREAT | os.O_EXCL, SHARED)
            if _try_lock(handle) and os.fstat(handle).st_nlink:
                break
            os.close(handle)
        folder = self.own / f"{token}.staging"
        try:
            folder.mkdir()
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):  # the next one removes it; an error inside must show
                alive.unlink()
            os.close(handle)

    def _sweep(self) -> None:
        for folder in self.own.glob("*.staging"):  # a task that outlived its driver wrote there
            if not folder.with_suffix(".alive").exists():
                shutil.rmtree(folder, ignore_errors=True)
        for alive in self.own.glob("*.alive"):
            with suppress(OSError):  # another user of the lake may have it to himself
                handle = os.open(alive, os.O_RDONLY)
                try:
                    if _try_lock(handle):
                        shutil.rmtree(alive.with_suffix(".staging"), ignore_errors=True)
                        alive.unlink(missing_ok=True)
                finally:
                    os.close(handle)


def _open_lock(path: Path) -> int:
    """Opens the file of a lock, which every user of the folder may take. A user who may not write
    it (an earlier version made it for its owner alone) can still lock it."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, SHARED)
    except PermissionError:
        return os.open(path, os.O_RDONLY)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(handle: int, path: Path) -> bool:
    """Returns whether the open file is still the one at ``path``: a cleaner of old files may have
    removed it, and then others lock a new one."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), os.stat(path))
    return False


def put_folder(new: Path, target: Path) -> None:
    """Makes ``new`` the folder at path ``target`` in one step. Afterwards the old folder is at
    ``new`` and may be deleted: the exchange is durable.

    Raises ``DestinationError`` (``destination.no_exchange``) if the file system does not support
    it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    inherit(new, target.parent)
    if not target.exists():
        os.rename(new, target)
        return
    number = _exchange(new, target)
    if not number:
        for parent in (target.parent, new.parent):
            sync(parent)
        return
    if number not in _UNSUPPORTED:
        raise OSError(number, os.strerror(number), str(target))
    raise DestinationError(
        f"the file system of {target} cannot exchange two folders in one step",
        code="destination.no_exchange",
        where=str(target),
        hint="use a local file system (ext4, xfs, btrfs, apfs), or a delta table",
    )


def replace_folder(new: Path, target: Path) -> None:
    """Replaces a table's folder by ``new`` and deletes the old one, unless the old one has content
    that is not the table's, before or after the exchange: then it stays. Raises
    ``DestinationError`` (``destination.not_ours``)."""
    _refuse_others(target, target)
    put_folder(new, target)
    try:
        _refuse_others(new, target)  # content that came meanwhile; nothing can come any more
    except DestinationError:
        put_folder(new, target)
        raise
    shutil.rmtree(new, ignore_errors=True)


def can_exchange(folder: Path) -> bool:
    """Returns whether the file system of ``folder`` (or of its nearest existing parent) can
    exchange two folders in one step. Tries it with two temporary folders, which are removed."""
    nearest = next(p for p in (folder, *folder.parents) if p.exists())
    with tempfile.TemporaryDirectory(prefix=".penstock-try-", dir=nearest) as folder_name:
        one, other = Path(folder_name, "one"), Path(folder_name, "other")
        one.mkdir()
        other.mkdir()
        return not _exchange(one, other)


def _exchange(new: Path, target: Path) -> int:
    """Exchanges two folders by the kernel's call; returns 0 or the error number."""
    libc = ctypes.CDLL(None, use_errno=True)
    old, fresh = os.fsencode(target), os.fsencode(new)
    if sys.platform == "darwin":
        failed = libc.renamex_np(fresh, old, _SWAP)
    elif hasattr(libc, "renameat2"):
        failed = libc.renameat2(_AT_FDCWD, fresh, _AT_FDCWD, old, _SWAP)
    else:
        failed = ctypes.set_errno(errno.ENOSYS) or 1
    return ctypes.get_errno() if failed else 0
