"""Finds files that commits of a Delta table name but this machine does not see (L3).

If a cluster worker has its own folder under the table's path, it writes files that nobody else
sees, and Delta commits their names all the same. This module reads the table's log, not its files,
and ignores files that a later commit removed. Not here: the check by tasks before a commit
(``spark.shared_folders``); what follows (``delta``)."""

import os
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from penstock.tables.delta.spec import LOG

_ADDS = (b'{"add"',)
_NAMES = (*_ADDS, b'{"cdc"')
_REMOVES = b'{"remove"'
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_UUID_TEXT = 20  # letters of a deletion vector's name, in Z85; a prefix may come before them


class MissingFiles(NamedTuple):
    """Lists the files of a table that this machine does not see. ``version``: the first commit that
    names one of ``files``; ``newest``: the table's newest version; ``named``: how many files were
    looked for."""

    version: int
    newest: int
    files: list[Path]
    named: int


class _Vector(msgspec.Struct):
    storageType: str = "i"
    pathOrInlineDv: str = ""


class _File(msgspec.Struct):
    path: str
    size: int | None = None
    deletionVector: _Vector | None = None


class _Action(msgspec.Struct):
    add: _File | None = None
    cdc: _File | None = None
    remove: _File | None = None


def missing_files(folder: Path, after: int, version: int) -> MissingFiles | None:
    """Returns the files named by the commits of the local table in ``folder`` after version
    ``after``, up to ``version``, that this machine does not see, or sees in another size; files
    that a later commit removed do not count. None: all are visible. ``named`` counts the files of
    these commits."""
    named: dict[Path, tuple[int, int | None]] = {}
    for number in range(after + 1, version + 1):
        for action in _actions(folder, number, _NAMES):
            for path, size in _files(folder, action.add or action.cdc):
                named[path] = number, size
    missing = {p: number for p, (number, size) in named.items() if not _seen(p, size)}
    if not missing:
        return None
    newest = max(_versions(folder), default=version)
    for number in range(version + 1, newest + 1):
        for action in _actions(folder, number, (_REMOVES,)):
            for path, _ in _files(folder, action.remove):
                missing.pop(path, None)
    if not missing:
        return None
    return MissingFiles(min(missing.values()), newest, sorted(missing), len(named))


def never_named(folder: Path, version: int, names: Collection[str]) -> bool:
    """Returns whether version ``version`` of the local table in ``folder`` exists and neither it
    nor a later one names a file in the folder that is among ``names``. False if unknown."""
    if not (folder / "_delta_log" / f"{version:020d}.json").is_file():
        return False
    newest = max(_versions(folder))
    return not any(
        action.add is not None and unquote(action.add.path) in names
        for number in range(version, newest + 1)
        for action in _actions(folder, number, _ADDS)
    )


def _seen(path: Path, size: int | None) -> bool:
    try:
        found = path.stat().st_size
    except OSError:
        return False
    return size is None or found == size


def _versions(folder: Path) -> Iterator[int]:
    for name in os.listdir(folder / LOG):
        stem, dot, kind = name.partition(".")
        if dot and kind == "json" and stem.isdigit():
            yield int(stem)


def _actions(folder: Path, version: int, wanted: tuple[bytes, ...]) -> Iterator[_Action]:
    try:
        with (folder / LOG / f"{version:020d}.json").open("rb") as lines:
            for line in lines:
                if line.startswith(wanted):
                    yield msgspec.json.decode(line, type=_Action)
    except FileNotFoundError:  # Delta's log cleanup removed it
        return


def _files(folder: Path, file: _File | None) -> Iterator[tuple[Path, int | None]]:
    """Yields the local files of an action, with their size if the action has it."""
    if file is None:
        return
    path = _local(folder, unquote(file.path))
    if path is not None:
        yield path, file.size
    vector = file.deletionVector
    if vector is None or vector.storageType == "i":
        return
    path = (
        _local(folder, unquote(vector.pathOrInlineDv))
        if vector.storageType == "p"
        else _vector_path(folder, vector.pathOrInlineDv)
    )
    if path is not None:
        yield path, None


def _local(folder: Path, path: str) -> Path | None:
    """Returns the local path of a file; None: it is on an object store, which all machines
    share."""
    url = urlsplit(path)
    if url.scheme == "file":
        return Path(url.path)
    return None if "://" in path else folder / path


def _vector_path(folder: Path, text: str) -> Path:
    """Returns the path of a deletion vector's file, whose name is a UUID (Delta's protocol,
    "Deletion Vector Descriptor Schema")."""
    prefix, encoded = text[:-_UUID_TEXT], text[-_UUID_TEXT:]
    number = b""
    for at in range(0, _UUID_TEXT, 5):
        value = 0
        for letter in encoded[at : at + 5]:
            value = value * 85 + _Z85.index(letter)
        number += value.to_bytes(4, "big")
    name: Any = uuid.UUID(bytes=number)
    return folder / prefix / f"deletion_vector_{name}.bin"
