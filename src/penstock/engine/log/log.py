"""Stores parts and rejects in files that are invisible until a manifest seals them, and verifies
that they are whole.

Decides nothing. Neighbours: ``engine.worker.sealer`` writes (next to the connector),
``engine.sync.sync`` lists and removes (on the driver), ``engine.log.memory`` is the in-memory twin.
The layout, one folder an epoch::

    epochs/00000007/CLAIM                      exclusive create: one source process an epoch (L4)
    epochs/00000007/parts/000003-1.parquet
    epochs/00000007/rejects/000001.jsonl
    epochs/00000007/seg-00000001.json          a manifest: complete by rename, checked by CRC (L2)
    unconfirmed/00000007                       its catalogue is not confirmed by a discovery yet
    given-up/                                  which rejects the source sends again (retries)
    OWNER, ID                                  which state store it belongs to, which log it is
"""

import re
import secrets
import shlex
import shutil
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec

from penstock.engine.log.rejects import rejects_path
from penstock.errors import LogError
from penstock.files import make_folder, private, replace, sync, sync_files, write_new
from penstock.model.segments import PartLayout, PartRef, Segment
from penstock.model.types import SEQ
from penstock.tasks.sealed_files import DIFFERS, MISSING, Finding, check
from penstock.tasks.storage import storage, unreadable

FORMAT_VERSION = 1
SYNC_BYTES = 1 << 20  # of records: a larger part is synced as it is written, smaller ones at a seal
_MANIFEST = re.compile(r"seg-\d{8,}\.json")  # not the copies that a sync tool leaves
DAMAGED_HINT = (
    "nothing was loaded from it and no state moved past it. Restore the file; or, to give it up, "
    "move the epoch's folder out of the log: the next run reads from the saved state again"
)


class Manifest(msgspec.Struct, frozen=True):
    """The content of a ``seg-*.json``: ``segments`` were sealed in one atomic step (L2)."""

    version: int
    segments: tuple[Segment, ...]


class Log(Protocol):
    """The contract of the log. ``rows`` is an Arrow table in :class:`FileLog`, any value with a
    length in ``MemoryLog``."""

    def claim(self, epoch: int, owner: str) -> None:
        """Makes this process the only one that runs the epoch's source (L4). Raises ``LogError``
        (``log.claimed``) where another process has claimed it: the loser must fail, never return an
        empty result."""
        ...

    def write_part(
        self,
        epoch: int,
        name: str,
        rows: Any,
        raw_bytes: int,
        layout: PartLayout | None = None,
    ) -> PartRef:
        """Writes rows as a part, which the next :meth:`seal` makes durable. ``raw_bytes``: size of
        the records as the source sent them. ``layout``: the part gets the shape of its table."""
        ...

    def write_rejects(self, epoch: int, name: str, lines: bytes) -> str:
        """Writes a file of rejects. Returns its path relative to the log."""
        ...

    def seal(self, epoch: int, segments: Sequence[Segment]) -> None:
        """Makes these segments part of the log, all or none (L2)."""
        ...

    def segments(self) -> list[Segment]:
        """Returns every sealed segment, by id. Raises ``LogError`` naming a manifest that is
        damaged."""
        ...

    def epochs(self) -> list[int]:
        """Returns the numbers of the epochs that have a folder, sorted."""
        ...

    def absolute(self, part: PartRef) -> str:
        """Returns the absolute path of a part's file, for readers that have no ``Log``."""
        ...

    def verify(self, parts: Sequence[PartRef]) -> None:
        """Compares each part's size and CRC with the manifest's. Raises ``LogError``
        (``log.corrupt``) naming the first part that is missing or differs."""
        ...

    def discard(self, segments: Sequence[Segment]) -> None:
        """Deletes the parts and rejects of these segments, and every manifest whose segments are
        all among them. Idempotent; a crash midway leaves files, never a wrong segment."""
        ...

    def drop_epochs(self, epochs: Sequence[int]) -> None:
        """Deletes the folders of epochs that are closed and drained."""
        ...

    def mark_unconfirmed(self, epoch: int, given: str) -> None:
        """Marks an epoch, before its source is started, whose catalogue no discovery has confirmed
        yet. Durable. ``given``: names what the catalogue gives to the source
        (``engine.plan.given_catalog``)."""
        ...

    def unconfirmed(self) -> dict[int, str]:
        """Returns the epochs that are marked, each with what its source was given."""
        ...

    def unmark(self, epochs: Iterable[int]) -> None:
        """Removes the marks of these epochs, durably."""
        ...


def _remove(paths: Iterable[Path]) -> None:
    """Deletes files and syncs their folders, so that no power failure brings them back."""
    folders: set[Path] = set()
    for path in paths:
        with storage(path, "remove"):
            path.unlink(missing_ok=True)
        folders.add(path.parent)
    for folder in folders:
        with storage(folder, "sync"), suppress(FileNotFoundError):
            sync(folder)


class FileLog:
    """Implements :class:`Log` in a folder; on a cluster, on storage that every worker shares."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._unsynced: list[Path] = []  # parts that the next seal makes durable

    def belong_to(self, state_id: str) -> None:
        """Binds this folder to one state store, in its file ``OWNER``: the ledger of another store
        does not have these segments, and would drain or drop them. Raises ``LogError``
        (``log.foreign``)."""
        path = self.root / "OWNER"
        with storage(path, "write"):
            make_folder(self.root, 0o700)
            try:
                write_new(path, state_id.encode(), durable=True)
            except FileExistsError:
                owner = path.read_text()
            else:
                return
        if owner not in ("", state_id):
            raise LogError(
                f"the log {self.root} belongs to another state store",
                code="log.foreign",
                where=str(self.root),
                hint="give this pipeline another `log.path` or name; if the other store is gone "
                "for good, so are its states: move the folder away",
            )

    def id(self) -> str:
        """Returns the id of this folder, drawn at the first call. A copy of the folder has the same
        id; another folder under the same path has another."""
        path = self.root / "ID"
        with storage(path, "write"), suppress(FileExistsError):
            write_new(path, secrets.token_hex(16).encode(), durable=True)
        with storage(path, "read"):
            return path.read_text()

    def _epoch(self, epoch: int) -> Path:
        return self.root / "epochs" / f"{epoch:08d}"

    def claim(self, epoch: int, owner: str) -> None:
        folder = self._epoch(epoch)
        with storage(folder, "create"):
            for sub in ("parts", "rejects"):
                (folder / sub).mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                write_new(folder / "CLAIM", owner.encode(), durable=True)
            except FileExistsError as e:
                raise LogError(
                    f"epoch {epoch} has run already",
                    code="log.claimed",
                    hint="a retried task never runs a source twice; the sync opens a new epoch",
                ) from e
            for above in (folder.parent, self.root):
                sync(above)

    def write_part(
        self,
        epoch: int,
        name: str,
        rows: Any,
        raw_bytes: int,
        layout: PartLayout | None = None,
    ) -> PartRef:
        from penstock.codec.parquet_parts import (
            write_part,  # PyArrow, which the driver does without
        )

        relative = f"epochs/{epoch:08d}/parts/{name}.parquet"
        path = self.root / relative
        with storage(path, "write"):
            size, crc = write_part(path, rows, layout, sync=raw_bytes >= SYNC_BYTES)
        if raw_bytes < SYNC_BYTES:
            self._unsynced.append(path)
        if layout is None:
            return PartRef(relative, rows.num_rows, raw_bytes, size, crc)
        first = rows.column(SEQ)[0].as_py() if rows.num_rows else None
        return PartRef(relative, rows.num_rows, raw_bytes, size, crc, layout.shape, first)

    def rejects_folder(self, epoch: int) -> Path:
        """Returns the folder for files of records that are too long for memory; a reject names such
        a file."""
        return self._epoch(epoch) / "rejects"

    def write_rejects(self, epoch: int, name: str, lines: bytes) -> str:
        relative = rejects_path(epoch, f"{name}.jsonl")
        path = self.root / relative
        with storage(path, "write"), private(path, "wb") as f:
            f.write(lines)
        return relative

    def seal(self, epoch: int, segments: Sequence[Segment]) -> None:
        folder = self._epoch(epoch)
        name = f"seg-{segments[0].id.seq:08d}.json"
        body = msgspec.json.encode(Manifest(FORMAT_VERSION, tuple(segments)))
        rejects = sorted({self.root / r for s in segments for r in s.rejects})
        with storage(folder / name, "seal"):
            sync_files([*self._unsynced, *rejects])
            self._unsynced = []
            sync(folder / "parts")
            if rejects:
                sync(folder / "rejects")
            replace(folder / name, b"%08x\n" % zlib.crc32(body) + body, durable=True)

    def _manifests(self) -> Iterator[tuple[Path, Manifest]]:
        for path in sorted((self.root / "epochs").glob("*/seg-*.json")):
            if not _is_epoch(path.parent) or not _MANIFEST.fullmatch(path.name):
                continue
            with storage(path, "read"):
                raw = path.read_bytes()
            yield path, _decode_manifest(path, raw)

    def segments(self) -> list[Segment]:
        return sorted((s for _, m in self._manifests() for s in m.segments), key=lambda s: s.id)

    def epochs(self) -> list[int]:
        folder = self.root / "epochs"
        found = folder.iterdir() if folder.is_dir() else ()
        return sorted(int(p.name) for p in found if _is_epoch(p))

    def verify(self, parts: Sequence[PartRef]) -> None:
        for part in parts:
            finding = check(str(self.root / part.path), part.size, part.crc)
            if finding is not None:
                raise part_error(self.root, part, finding)

    def absolute(self, part: PartRef) -> str:
        return str(self.root / part.path)

    def discard(self, segments: Sequence[Segment]) -> None:
        gone = {s.id for s in segments}
        manifests = list(self._manifests()) if gone else []
        # Manifests are deleted before their files: a manifest without its files means a damaged
        # log.
        _remove(p for p, m in manifests if all(s.id in gone for s in m.segments))
        left = [s for _, m in manifests for s in m.segments if s.id in gone]
        _remove(self.root / name for segment in left for name in _files(segment))

    def drop_epochs(self, epochs: Sequence[int]) -> None:
        for epoch in epochs:
            shutil.rmtree(self._epoch(epoch), ignore_errors=True)
        folder = self.root / "epochs"
        with storage(folder, "sync"), suppress(FileNotFoundError):
            sync(folder)

    def _mark(self, epoch: int) -> Path:
        return self.root / "unconfirmed" / f"{epoch:08d}"

    def mark_unconfirmed(self, epoch: int, given: str) -> None:
        path = self._mark(epoch)
        with storage(path, "write"):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            sync(self.root)
            replace(path, given.encode(), durable=True)

    def unconfirmed(self) -> dict[int, str]:
        folder = self.root / "unconfirmed"
        with storage(folder, "read"):
            found = [p for p in folder.iterdir() if _is_epoch(p)] if folder.is_dir() else []
            return {int(p.name): p.read_text() for p in sorted(found)}

    def unmark(self, epochs: Iterable[int]) -> None:
        _remove([self._mark(epoch) for epoch in epochs])


def _is_epoch(folder: Path) -> bool:
    """Whether the folder's name is a number; a folder that a user moved aside
    (``00000007.damaged``) is not an epoch."""
    return folder.name.isascii() and folder.name.isdigit()


def _files(segment: Segment) -> Iterator[str]:
    """Yields a segment's files, parts before rejects: as long as a part exists, so do the
    rejects."""
    yield from (p.path for s in segment.slices for p in s.parts)
    yield from segment.rejects


def _decode_manifest(path: Path, raw: bytes) -> Manifest:
    head, _, body = raw.partition(b"\n")
    try:
        if int(head, 16) != zlib.crc32(body):
            raise ValueError("checksum")
        manifest = msgspec.json.decode(body, type=Manifest)
    except (ValueError, msgspec.DecodeError) as e:
        raise _damaged(path, "is damaged") from e
    if manifest.version != FORMAT_VERSION:
        raise LogError(
            f"{path} was written by another version of Penstock (format {manifest.version})",
            code="log.version",
            hint="finish this pipeline with the version that began it",
        )
    return manifest


def part_error(root: Path, part: PartRef, finding: Finding) -> LogError:
    """Returns the error of a part that has changed since it was sealed. ``root``: the log's
    folder."""
    path, (what, number) = root / part.path, finding
    if what == MISSING:
        return _damaged(path, "is missing")
    if what == DIFFERS:
        return _damaged(path, f"is damaged ({number} bytes, {part.size} were sealed)")
    return unreadable(path, number)


def written_down_hint(pipeline: str) -> str:
    """Returns the hint for a damaged file whose load is in the ledger. A refresh does not give the
    load up: if the refresh is cancelled, the pipeline continues from the states behind it."""
    name = shlex.quote(pipeline)
    return (
        "nothing was loaded from it and no state moved past it: a recorded load waits for it, "
        "also in a run with `--recreate`. Bring the file back, from a backup or from where the "
        "log lay; homes that share a state store must share `log.path` too. If it is gone for "
        f"good: `penstock state reset {name}` gives the load up and forgets the states, and the "
        "next run reads every row from the start. Give that run `--recreate`, which replaces the "
        "rows of the tables: without it rows come twice (docs/recovery.md)"
    )


def _damaged(path: Path, what: str) -> LogError:
    return LogError(
        f"the log's file {path} {what}",
        code="log.corrupt",
        hint=DAMAGED_HINT,
        where=str(path),
    )
