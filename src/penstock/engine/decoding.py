"""Records to rows, stream by stream, as a lane was told of them; and what was odd in them, counted.

Neighbours: ``engine.child`` learns of streams, ``engine.sealer`` asks for rows; ``codec.decode``
does the work.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.codec.decode import RowDecoder
from penstock.engine.job import LaneJob, StreamJob
from penstock.model.catalog import StreamId
from penstock.model.types import SEQ_EPOCH_SHIFT

_SHOWN = 20


class Rows:
    """A decoder's answer in the sealer's terms."""

    def __init__(self, decoded: Any) -> None:
        self.rows = decoded.table
        self.count: int = decoded.table.num_rows
        self.rejects = [(r.index, r.reason, r.field) for r in decoded.rejects]


class Streams:
    """``jobs``: the streams of a lane, as they go on now. ``seconds``: spent decoding."""

    def __init__(self, job: LaneJob) -> None:
        self._job = job
        self.jobs = {s.id: s for s in job.streams}
        self.seconds = 0.0
        self._decoders: dict[StreamId, RowDecoder] = {}
        self._misfits = 0
        self._extra: dict[str, int] = {}

    def learn(self, stream: StreamJob) -> None:
        """A stream that is new, or goes on otherwise."""
        before = self.jobs.get(stream.id)
        self.jobs[stream.id] = stream
        if before is None or before.schema != stream.schema or before.key != stream.key:
            self._decoders.pop(stream.id, None)

    def decode(
        self,
        stream: StreamId,
        bodies: Sequence[Any],
        first_seq: int,
        times: Sequence[int],
        changes: Mapping[int, bytes],
    ) -> Rows:
        """``engine.sealer.Decode``."""
        began = time.monotonic()
        if self.jobs[stream].whole:
            bodies = [b'{"record":%b}' % bytes(body) for body in bodies]
        first = (self._job.epoch << SEQ_EPOCH_SHIFT) + first_seq
        decoded = self._decoder(stream).decode(bodies, first, times, changes)
        self._misfits += decoded.misfits
        for name, count in decoded.extra_fields.items():
            label = f"{stream}.{name}"
            self._extra[label] = self._extra.get(label, 0) + count
        self.seconds += time.monotonic() - began
        return Rows(decoded)

    def _decoder(self, stream: StreamId) -> RowDecoder:
        decoder = self._decoders.get(stream)
        if decoder is None:
            job = self.jobs[stream]
            decoder = self._decoders[stream] = RowDecoder(
                job.schema,
                strict=self._job.strict,
                key=job.key,
                words=self._job.change_words,
                ignored=job.ignored,
            )
        return decoder

    def notes(self) -> list[str]:
        notes: list[str] = []
        if self._misfits:
            notes.append(f"values that did not fit their type and became NULL: {self._misfits}")
        extra = sorted(self._extra.items(), key=lambda kv: -kv[1])
        notes += [f"field not in the schema, dropped: {name} ({n})" for name, n in extra[:_SHOWN]]
        return notes
