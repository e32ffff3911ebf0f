"""Publishes the staged files of loads that only append, so that a power cut never leaves a marker
that names a load with a missing file.

The order, for each table: its files are durable; they get their names in the table's folder; these
names and the draft of the marker are durable; the draft becomes the marker. The tables of one call
take each step together, so that thousands of them need few syncs. The caller (``parquet``) does the
last sync, before the ledger marks the loads. Not here: where the files come from (``parquet``,
``direct_parts``, ``small_loads``), loads that replace a folder."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from penstock.files import sync_files
from penstock.model.types import Field
from penstock.tables import conflicts
from penstock.tables.contract import TableLoad, already_committed
from penstock.tables.parquet.folders import (
    MARKER,
    Marker,
    Root,
    draft_marker,
    put_folder,
    read_marker,
    take_files,
)

TABLES = 64  # that are locked at a time


class StagedAppend(msgspec.Struct, frozen=True):
    """A load whose rows are in durable ``files`` on the root's file system. ``marker``: the table's
    when the load was planned; None: the table is new. ``target``: its columns."""

    index: int
    load: TableLoad
    folder: Path
    marker: Marker | None
    target: tuple[Field, ...]
    files: Sequence[Path]


def publish(
    root: Root, staging: Path, appends: Sequence[StagedAppend]
) -> Iterator[tuple[StagedAppend, Exception | None]]:
    """Makes the files part of their tables, all of which differ; yields each append with its error.
    ``staging``: a folder of the root for drafts."""
    ordered = sorted(appends, key=lambda append: root.lock_name(append.load.table))
    for first in range(0, len(ordered), TABLES):
        yield from _publish(root, staging, ordered[first : first + TABLES])


def _publish(
    root: Root, staging: Path, appends: Sequence[StagedAppend]
) -> Iterator[tuple[StagedAppend, Exception | None]]:
    """Publishes appends sorted in lock order, which every process follows."""
    placed: list[tuple[StagedAppend, Path]] = []
    done: list[StagedAppend] = []
    with ExitStack() as locks:
        for append in appends:
            try:
                locks.enter_context(root.lock(append.load.table))
                draft = _placed(append, staging)
            except Exception as failure:
                yield append, failure
                continue
            if draft is None:
                done.append(append)
            else:
                placed.append((append, draft))
        sync_files([path for append, draft in placed for path in _unsynced(append, draft)])
        for append, draft in placed:
            try:
                _appear(append, draft)
            except Exception as failure:
                yield append, failure
            else:
                done.append(append)
    yield from ((append, None) for append in done)


def _placed(append: StagedAppend, staging: Path) -> Path | None:
    """Puts the files into the table's folder, or into a new one. Returns the draft of its marker,
    or the new folder; None: the table has the load."""
    load, folder = append.load.load, append.folder
    marker = read_marker(folder)
    if marker is None and append.marker is None:
        fresh = staging / f"fresh-{append.index}"
        fresh.mkdir()
        take_files(append.files, fresh, load)
        draft_marker(fresh / MARKER, Marker(append.target).with_load(load))
        return fresh
    if marker is None or marker.columns != append.target:
        raise conflicts.conflict(append.load, 1)
    if already_committed(load, marker.last_load(load.key)) is not None:
        return None
    take_files(append.files, folder, load, marker)
    draft = staging / f"marker-{append.index}.json"
    draft_marker(draft, marker.with_load(load))
    return draft


def _unsynced(append: StagedAppend, draft: Path) -> tuple[Path, Path]:
    if draft.is_dir():
        return draft / MARKER, draft
    return draft, append.folder


def _appear(append: StagedAppend, draft: Path) -> None:
    if draft.is_dir():
        put_folder(draft, append.folder)
    else:
        os.replace(draft, append.folder / MARKER)
