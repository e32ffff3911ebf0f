"""Keeps the primary keys of a compared model's rejected rows, so that later runs send them again,
and never remove a row that the destination did not take.

A model's snapshot (``engine.query.model_diff``) is sets of changes by epoch. Next to an epoch's set
lie the keys of its rejected rows, and the keys that it retried::

    snapshots/STREAM/00000007/rejected/000001.jsonl    {"key": ["5"], "attempt": 1, "again": true}
    snapshots/STREAM/00000007/tried_again.jsonl        the same, of the attempts before

A key is a list of texts, in the order of the primary key. A file of ``rejected`` is written whole
and durable before the state that covers its rows is saved, so no crash loses a row; a file that is
written twice names the same keys. Neighbours: ``kept_rejects`` writes here, ``model_diff`` reads.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from penstock.engine.log.rejects import RejectLine
from penstock.files import make_folder, replace
from penstock.model.catalog import StreamId
from penstock.tasks.storage import storage

MOST_KEYS = 100_000  # of one epoch's rows; rows that are rejected after these count as sent
REJECTED, TRIED_AGAIN = "rejected", "tried_again.jsonl"


class RejectedKey(msgspec.Struct, frozen=True):
    """The key of a rejected row. ``attempt``: in how many consecutive runs this row was rejected.
    ``again``: the next run retries it."""

    key: tuple[str, ...]
    attempt: int
    again: bool = True


class RetriedRejects(msgspec.Struct, frozen=True):
    """How a stream's rejected rows are retried. ``key``: the properties of its primary key.
    ``most``: after this many further attempts a row is not retried."""

    key: tuple[str, ...]
    most: int


def folder_of(stream: StreamId) -> str:
    """Returns the name of the folder of a stream's snapshots."""
    return hashlib.sha256(stream.key.encode()).hexdigest()[:16]


def rejected_files(epoch: Path) -> tuple[str, ...]:
    """Returns the files of an epoch's rejected keys, by the epoch's folder."""
    return tuple(sorted(str(p) for p in (epoch / REJECTED).glob("*.jsonl")))


def write_tried_again(epoch: Path, keys: Iterable[RejectedKey]) -> None:
    """Writes which keys an epoch retries, with their attempts so far."""
    replace(epoch / TRIED_AGAIN, b"".join(msgspec.json.encode(k) + b"\n" for k in keys))


class RejectedKeys:
    """Records the rejects of one run. ``home``: the folder of the snapshots. ``streams``: those
    whose rejected rows are recorded."""

    def __init__(self, home: Path, streams: Mapping[StreamId, RetriedRejects]) -> None:
        self._home, self._streams = home, streams
        self._before: dict[Path, dict[tuple[str, ...], int]] = {}
        self._count: dict[Path, int] = {}

    def record(self, lines: Iterable[RejectLine], epochs: Sequence[int]) -> Iterator[RejectLine]:
        """Yields the lines with the number of their attempt. Records the keys of their rows once
        all lines were taken. ``epochs``: possible epochs of the rows. Raises ``LogError``."""
        found: dict[Path, list[RejectedKey]] = {}
        for line in lines:
            stream = None if line.name is None else StreamId(line.namespace, line.name)
            again = None if stream is None else self._streams.get(stream)
            key = None if again is None else _key(line, again.key)
            if stream is None or again is None or key is None:
                yield line
                continue
            folders = [self._home / folder_of(stream) / f"{epoch:08d}" for epoch in epochs]
            attempt = 1 + max((self._attempts(f).get(key, 0) for f in folders), default=0)
            rejected = RejectedKey(key, attempt, again=attempt <= again.most)
            for folder in folders:
                found.setdefault(folder, []).append(rejected)
            yield msgspec.structs.replace(line, attempt=attempt)
        for folder, keys in found.items():
            self._write(folder, keys)

    def _attempts(self, epoch: Path) -> Mapping[tuple[str, ...], int]:
        known = self._before.get(epoch)
        if known is None:
            path = epoch / TRIED_AGAIN
            with storage(path, "read"):
                raw = path.read_bytes() if path.exists() else b""
            decoded = msgspec.json.Decoder(RejectedKey).decode_lines(raw)
            known = self._before[epoch] = {k.key: k.attempt for k in decoded}
        return known

    def _write(self, epoch: Path, keys: Sequence[RejectedKey]) -> None:
        """Writes an epoch's rejected keys. Without the epoch's set there is nothing to subtract
        from."""
        if not epoch.is_dir():
            return
        with storage(epoch, "write to"):
            files = rejected_files(epoch)
            if epoch not in self._count:
                self._count[epoch] = sum(Path(f).read_bytes().count(b"\n") for f in files)
            keys = keys[: max(0, MOST_KEYS - self._count[epoch])]
            if not keys:
                return
            self._count[epoch] += len(keys)
            folder = epoch / REJECTED
            make_folder(folder, 0o700)
            body = b"".join(msgspec.json.encode(k) + b"\n" for k in keys)
            replace(folder / f"{len(files) + 1:06d}.jsonl", body, durable=True)


def _key(line: RejectLine, names: Sequence[str]) -> tuple[str, ...] | None:
    """Returns the key of the line's row as texts; None: it is unknown, or a part of it is null."""
    row = line.key
    if row is None:
        if line.encoding != "utf-8" or line.file is not None:
            return None
        try:
            decoded = _ROW.decode(line.body)
        except msgspec.DecodeError:
            return None
        row = cast(dict[str, Any], decoded) if isinstance(decoded, dict) else {}
    values = [row.get(name) for name in names]
    if any(value is None for value in values):
        return None
    return tuple(v if isinstance(v, str) else msgspec.json.encode(v).decode() for v in values)


_ROW = msgspec.json.Decoder(float_hook=str)
