"""Encodes a stream's rows as lines that a destination reads, and sets aside those that do not fit
its row type.

Runs in the thread that draws the feed. Not here: the other lines (``messages``), processes
(``session``).
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.codec.json_lines_encoder import LineEncoder, Slot
from penstock.errors import Defect, DestinationError
from penstock.model.catalog import DestinationSyncMode, StreamId
from penstock.model.events import Reject
from penstock.model.types import DataType, RowSchema
from penstock.protocols.syncmaven.key_split import KeySplit
from penstock.protocols.syncmaven.messages import ROW_END, ROW_START, StreamSpec
from penstock.protocols.syncmaven.row_check import RowCheck, key_of
from penstock.protocols.syncmaven.sessions import SessionLines
from penstock.protocols.syncmaven.stream_specs import mapped, unknown_mark
from penstock.protocols.writing import Rows, WriteStream

CHUNK_BYTES = 2 << 20  # of columns; their text is about as large
_BEFORE, _BETWEEN = ROW_START.encode(), (ROW_END + "\n" + ROW_START).encode()
_AFTER = (ROW_END + "\n").encode()
ROW_EDGES = len(ROW_START), len(ROW_END)


@dataclass(slots=True)
class Encoded:
    """Lines of rows, by process, made from ``fed`` rows. ``left_out``: misfits that are dropped.
    ``doubtful``: what the destination may misinterpret (:meth:`RowCheck.doubtful`). ``ends``: a
    checkpoint follows. ``fault``: the stream cannot go on."""

    stream: StreamId
    shares: list[SessionLines]
    fed: int
    rejects: list[Reject]
    left_out: int = 0
    doubtful: Counter[str] = field(default_factory=Counter[str])
    ends: bool = False
    fault: DestinationError | None = None

    @property
    def sent(self) -> int:
        return sum(share.rows for share in self.shares)

    @property
    def size(self) -> int:
        return sum(len(s.lines) for s in self.shares) + sum(len(r.raw) for r in self.rejects)


class StreamEncoder:
    """Encodes one stream. ``checkpoint_every``: rows between two checkpoints; None: only one at the
    end. ``on_data_error``: dlq, skip or fail. ``most_rows``: of one item; None: bounded only by its
    size. ``parallelism``: the number of processes among which rows are divided.

    A single process gets the rows up to the first checkpoint where it gets the flag that these are
    all (:func:`tells_full_refresh`), as it may remove what others get meanwhile."""

    def __init__(
        self,
        stream: WriteStream,
        spec: StreamSpec,
        *,
        nulls: str,
        on_data_error: str,
        checkpoint_every: int | None,
        most_rows: int | None = None,
        parallelism: int = 1,
    ) -> None:
        self._stream, self._spec, self._nulls = stream, spec, nulls
        self.most_rows = most_rows
        self._on_data_error, self._every = on_data_error, checkpoint_every
        self._since = 0  # rows since the last checkpoint
        self._split = None
        if parallelism > 1:
            self._split = KeySplit(stream.configured.primary_key, parallelism)
        self._alone = tells_full_refresh(stream)  # until the first checkpoint
        self._key_types: tuple[DataType, ...] = ()  # by which rows are divided
        self._encoders: dict[int, tuple[RowCheck, LineEncoder, LineEncoder, LineEncoder]] = {}

    def changed(self, stream: WriteStream) -> None:
        self._stream = stream

    @property
    def undivided(self) -> str | None:
        """Returns why a single process gets the first rows, though several are wanted."""
        if self._split is None:
            return None
        if tells_full_refresh(self._stream):
            return "up to the first checkpoint, because it is configured to replace all rows"
        if not self._split.types(self._schema(self._stream.latest)):
            return "since the stream has no primary key of columns with one value each"
        return None

    def encode(self, rows: Rows) -> Iterator[Encoded]:
        """Yields items of some megabytes at most, each ending at a checkpoint if it has one."""
        batch, split = rows.batch, None if self._alone else self._split
        types = () if split is None else split.types(self._schema(rows.version))
        if types != self._key_types:  # another process may have had rows with the same keys
            self._key_types, self._since = types, 0
            yield Encoded(self._stream.id, [], 0, [], ends=True)
        size = max(1, batch.num_rows * CHUNK_BYTES // max(1, batch.nbytes))
        size = min(size, self.most_rows or size)
        start = 0
        while start < batch.num_rows:
            left = size if self._every is None else min(size, self._every - self._since)
            item = self._divided(rows.version, batch.slice(start, left))
            start += item.fed
            self._since += item.sent
            if self._since == self._every:
                item.ends, self._since = True, 0
            yield item
            if item.fault is not None:
                return
            if item.ends and self._alone and self._split is not None:
                self._alone = False
                yield from self.encode(Rows(rows.stream, rows.version, batch.slice(start)))
                return

    def _divided(self, version: int, batch: Any) -> Encoded:
        """Returns the rows of a batch for each of its processes."""
        if self._split is None or not self._key_types:
            return self._encoded(version, batch)
        item = Encoded(self._stream.id, [], batch.num_rows, [])
        for part, rows in self._split.divided(self._schema(version), batch):
            made = self._encoded(version, rows, part)
            item.shares += made.shares
            item.rejects += made.rejects
            item.left_out += made.left_out
            item.doubtful += made.doubtful
            item.fault = item.fault or made.fault
        return item

    def _encoded(self, version: int, batch: Any, part: int = 0) -> Encoded:
        check, whole, bare, original = self._encoder(version)
        count, doubtful = batch.num_rows, check.doubtful(batch)
        if check.proves(batch):
            share = SessionLines(part, whole.encode(batch), count)
            return Encoded(self._stream.id, [share], count, [], doubtful=doubtful)
        bodies = bytes(bare.encode(batch)).split(b"\n")[:-1]
        decode = msgspec.json.Decoder().decode
        fitting: list[bytes] = []
        cast_failures: dict[int, dict[str, Any]] = {}
        for index, body in enumerate(bodies):
            row = decode(body)
            if check.fits(row):
                fitting.append(body)
            else:
                cast_failures[index] = row
        if cast_failures:
            bodies = bytes(original.encode(batch)).split(b"\n")
        rejects = [self._reject(check, row, bodies[i]) for i, row in cast_failures.items()]
        lines = _BEFORE + _BETWEEN.join(fitting) + _AFTER
        shares = [SessionLines(part, lines, len(fitting))] if fitting else []
        item = Encoded(self._stream.id, shares, count, rejects, doubtful=doubtful)
        if rejects and self._on_data_error == "fail":
            item.fault = DestinationError(
                f"a row does not fit: {rejects[0].reason}",
                code="destination.row_type",
                hint="`on_data_error: dlq` keeps such rows where `penstock rejects` shows them",
                stream=str(self._stream.id),
            )
        elif self._on_data_error == "skip":
            item.left_out, item.rejects = len(rejects), []
        return item

    def _reject(self, check: RowCheck, row: dict[str, Any], body: bytes) -> Reject:
        reason, field = check.reason(row)
        return self.reject(row, reason, body, field)

    def reject(
        self, row: dict[str, Any], reason: str, body: bytes, field: str | None = None
    ) -> Reject:
        """Returns a reject with the primary key of a row as sent: in words, and by the columns'
        original names. It has no key where the stream has none, or the key is not sent."""
        fields = {column: field for field, column in self._stream.mapping.items()}
        sent = [
            (path[0], (fields.get(path[0], path[0]), *path[1:]))
            for path in self._stream.configured.primary_key
            if not fields or path[0] in fields
        ]
        said = key_of(row, (path for _, path in sent))
        key = {column: row.get(path[0]) for column, path in sent}
        words = f"{reason} ({said})" if said else reason
        return Reject(self._stream.id, words, body, field, key=key or None)

    def _encoder(self, version: int) -> tuple[RowCheck, LineEncoder, LineEncoder, LineEncoder]:
        """Returns how rows of a schema are checked and written: as lines, as bodies, and as bodies
        under their original names."""
        found = self._encoders.get(version)
        if found is None:
            schema = self._schema(version)
            sent = mapped(schema, self._stream.mapping)
            unknown = unknown_mark(self._spec, self._stream)
            check = RowCheck(self._spec.row_type, sent, self._nulls, unknown)
            texts = {f.source for f in sent.fields} - check.as_numbers
            whole, bare = [
                LineEncoder(
                    sent,
                    t,
                    decimals_as_text=texts,
                    omit_nulls=check.omitted,
                    casts=check.casts,
                    zoned=True,
                )
                for t in ([ROW_START, Slot.data, ROW_END], [Slot.data])
            ]
            original = LineEncoder(schema, [Slot.data], decimals_as_text=True)
            found = self._encoders[version] = (check, whole, bare, original)
        return found

    def _schema(self, version: int) -> RowSchema:
        schema = self._stream.schemas.get(version)
        if schema is None:
            raise Defect(f"stream {self._stream.id} has no schema {version}")
        return schema


def tells_full_refresh(stream: WriteStream) -> bool:
    """Returns whether the first process of a write gets the flag that its rows are complete."""
    mode = stream.configured.destination_sync_mode
    replaces = stream.configured.replaces or mode is DestinationSyncMode.overwrite
    return replaces or stream.full_refresh


def bodies_of(lines: Any) -> list[bytes]:
    """Returns the lines, one by one, with their newlines."""
    return [line + b"\n" for line in bytes(lines).split(b"\n")[:-1]]


def row_of(line: bytes) -> bytes:
    """Returns the row's object in a line of :func:`bodies_of`."""
    before, after = ROW_EDGES
    return line[before : -(after + 1)]
