"""Decodes a lane's records into rows, stream by stream, and counts values that were changed or
dropped.

Neighbours: ``engine.worker.lane_events`` adds streams, ``engine.worker.sealer`` requests rows;
``codec.decode`` does the work.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from penstock.codec.columns import ColumnDecoder, Columns
from penstock.codec.decode import DecodedBatch, RowDecoder
from penstock.engine.specs.lane import LaneJob, StreamJob
from penstock.model.catalog import FieldPath, StreamId, default_cursor
from penstock.model.events import Batch
from penstock.model.type_words import type_text
from penstock.model.types import (
    SEQ_EPOCH_SHIFT,
    DataType,
    Field,
    Kind,
    MissingColumns,
    Origin,
    RowSchema,
)
from penstock.runtimes.masking import Masker
from penstock.short_texts import shown

_SHOWN = 20
_WORDS = (
    "numbers with more digits than their type keeps, rounded and listed in their rows",
    "times with more than 6 digits of a second, cut to the microsecond",
    "cursors among these, whose text is in their row's change list",
    "field not in the schema, dropped",
    "field not in the schema, kept",
    "field not in the schema, given to the transforms, whose rows do not have its column",
    "deletes whose mark did not fit its column, which has the extraction time, true, 1 or nulls"
    " instead",
    "delete marks of rows that are not deleted, sent as null",
)


class ChangedValueCounts:
    """Counts, by field, values that decoding set to NULL, rounded, cut or dropped."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, int]] = {words: {} for words in _WORDS}
        self._misfits: dict[tuple[str, str, bool], int] = {}
        self._incomplete: dict[StreamId, set[str]] = {}

    def count(
        self,
        stream: StreamId,
        decoded: DecodedBatch,
        schema: RowSchema,
        *,
        texts: bool,
        kept: bool = True,
    ) -> None:
        """Adds the counts of one batch that was decoded by ``schema``. ``texts``: the entries of
        its values have the source's text. ``kept``: undeclared properties get to the table."""
        if decoded.nulled:
            types = dict(_types(schema.fields))
            for name, count in decoded.nulled.items():
                misfit = (f"{stream}.{name}", types.get(name, "its type"), texts)
                self._misfits[misfit] = self._misfits.get(misfit, 0) + count
        listed = decoded.listed if texts else {}
        found = (
            decoded.rounded, decoded.cut, listed, decoded.extra_fields,
            decoded.kept if kept else {}, {} if kept else decoded.kept,
            decoded.filled_marks, decoded.cleared_marks,
        )  # fmt: skip
        for words, counts in zip(_WORDS, found, strict=True):
            known = self._found[words]
            for name, count in counts.items():
                label = f"{stream}.{name}"
                known[label] = known.get(label, 0) + count
        if decoded.incomplete:
            self._incomplete.setdefault(stream, set()).update(decoded.incomplete)

    def notes(self) -> list[str]:
        """Returns a note for each field, those with the highest counts first, and how to keep
        values inside objects."""
        notes = [*self._misfit_notes()]
        for words, counts in self._found.items():
            ordered = sorted(counts.items(), key=lambda kv: -kv[1])
            notes += [f"{words}: {shown(name)} ({n})" for name, n in ordered[:_SHOWN]]
            left = sum(n for _, n in ordered[_SHOWN:])
            if left:
                notes.append(f"{words}: {len(ordered) - _SHOWN} more fields ({left})")
        for stream, columns in sorted(self._incomplete.items()):
            types = ", ".join(f"{shown(column)}: json" for column in sorted(columns)[:_SHOWN])
            notes.append(
                f"{stream}: `types: {{ {types} }}` for the stream keeps such fields of its objects "
                "(a table that exists gets the new types by `penstock run --recreate`)"
            )
        return notes

    def _misfit_notes(self) -> Iterator[str]:
        ordered = sorted(self._misfits.items(), key=lambda kv: -kv[1])
        for (name, kind, texts), count in ordered[:_SHOWN]:
            where = "; their text is in the row's change list" if texts else ""
            values = f"{count:,} value{'s' * (count != 1)} of {shown(name)} did not fit {kind}"
            yield f"{values} and became NULL{where}"
        if left := ordered[_SHOWN:]:
            yield f"values that became NULL: {len(left)} more fields ({sum(n for _, n in left)})"


def _types(fields: Sequence[Field], above: str = "") -> Iterator[tuple[str, str]]:
    """Yields the type of each value by its dotted path of original names."""
    for field in fields:
        path, kind = above + field.source, field.type
        yield path, type_text(kind)
        while kind.kind is Kind.array:
            path, kind = f"{path}[]", kind.item or DataType(Kind.json)
            yield path, type_text(kind)
        yield from _types(kind.fields, f"{path}.")


class ArrowRows:
    """A decoder's result in the form that the sealer takes (``stream_buffers.DecodedRows``)."""

    def __init__(self, decoded: Any) -> None:
        self.rows = decoded.table
        self.count: int = decoded.table.num_rows
        self.rejects = [(r.index, r.reason, r.field) for r in decoded.rejects]
        self.missing: MissingColumns | None = decoded.missing


class StreamDecoders:
    """The streams of a lane with their decoders. ``jobs``: as the driver last planned them.
    ``seconds``: spent decoding."""

    def __init__(self, job: LaneJob) -> None:
        self._job = job
        self.jobs = {s.id: s for s in job.streams}
        self.seconds = 0.0
        self._decoders: dict[tuple[StreamId, bool], RowDecoder | ColumnDecoder] = {}
        self._given: dict[tuple[StreamId, bool, int], tuple[RowSchema, Any]] = {}
        self._odd = ChangedValueCounts()
        masker = Masker(job.secrets)
        self._mask = masker.mask if masker else None

    def learn(self, stream: StreamJob) -> None:
        """Adds a stream, or replaces its plan."""
        before = self.jobs.get(stream.id)
        self.jobs[stream.id] = stream
        if before is None or _decoding(before) != _decoding(stream):
            for columnar in (True, False):
                self._decoders.pop((stream.id, columnar), None)
            for key in [k for k in self._given if k[0] == stream.id]:
                del self._given[key]

    def decode(
        self,
        stream: StreamId,
        bodies: Any,
        first_seq: int,
        times: Sequence[int],
        changes: Mapping[int, bytes],
    ) -> ArrowRows:
        """Decodes records into the rows of a part (``engine.worker.stream_buffers.Decode``)."""
        began = time.monotonic()
        columnar = isinstance(bodies, Columns)
        first = (self._job.epoch << SEQ_EPOCH_SHIFT) + first_seq
        decoded = self._decoder(stream, columnar).decode(bodies, first, times, changes)
        self.seconds += time.monotonic() - began
        job = self.jobs[stream]
        listed = self._job.change_lists and job.texts
        return self._counted(stream, decoded, job.schema, texts=listed)

    def rows(self, batch: Batch, schema: RowSchema, place: int) -> ArrowRows:
        """Decodes a batch into the columns that a transform takes; their sequence numbers have no
        meaning. ``place``: of the transform's stage; only the first stage gets source records. NULL
        keys are checked in the transform's output, not here, so that a transform can fill them
        in."""
        began = time.monotonic()
        columnar = isinstance(batch.bodies, Columns)
        job, bodies = self.jobs[batch.stream], cast(Any, batch.bodies)
        key = (batch.stream, columnar, place)
        known = self._given.get(key)
        if known is None or known[0] != schema:
            made = self._made(columnar, job, schema, (), first=True, sent=place == 0)
            known = self._given[key] = (schema, made)
        decoded = known[1].decode(bodies, 0, batch.extracted_at, batch.changes)
        self.seconds += time.monotonic() - began
        return self._counted(batch.stream, decoded, schema, texts=False)

    def _counted(
        self, stream: StreamId, decoded: DecodedBatch, schema: RowSchema, *, texts: bool
    ) -> ArrowRows:
        """Counts what decoding changed, unless the rows are decoded again with more columns."""
        if decoded.missing is None:
            job = self.jobs[stream]
            final = {f.name for f in job.schema.fields}
            undeclared = {f.name for f in schema.fields if f.origin is Origin.undeclared}
            kept = job.given is None or bool(undeclared & final)
            self._odd.count(stream, decoded, schema, texts=texts, kept=kept)
        return ArrowRows(decoded)

    def _decoder(self, stream: StreamId, columnar: bool) -> Any:
        decoder = self._decoders.get((stream, columnar))
        if decoder is None:
            job = self.jobs[stream]
            sent = job.given is None
            decoder = self._made(columnar, job, job.schema, job.key, texts=job.texts, sent=sent)
            self._decoders[stream, columnar] = decoder
        return decoder

    def _made(
        self,
        columnar: bool,
        job: StreamJob,
        schema: RowSchema,
        key: tuple[FieldPath, ...],
        *,
        texts: bool = False,
        first: bool = False,
        sent: bool,
    ) -> Any:
        """Returns a decoder. ``texts``: of records as the table gets them. The input of a transform
        has no texts in its entries: the transform may hash or drop the value. ``first``: transforms
        follow, and get delete marks as they were sent. ``sent``: the columns are the source's, not
        a transform's, in which JSON is JSON already."""
        marks = job.deletes
        if marks is not None and first:
            marks = msgspec.structs.replace(marks, null_if_live=False)
        job_wide: dict[str, Any] = {
            "strict": self._job.strict, "words": self._job.change_words, "deletes": marks,
            "exact": job.exact,
        }  # fmt: skip
        if texts:
            cursor = default_cursor(job.configured) if job.lane.disposition.cursor else ()
            job_wide |= {"texts": True, "cursor": cursor, "mask": self._mask}
        if columnar:
            job_wide["json_texts"] = job.json_texts if sent else ()
            return ColumnDecoder(schema, key=key, ignored=job.ignored, **job_wide)
        return RowDecoder(
            schema,
            key=key,
            ignored=job.ignored,
            whole=job.whole,
            undeclared=job.undeclared,
            closed=job.closed,
            mark=job.mark,
            **job_wide,
        )

    def notes(self) -> list[str]:
        """Returns the notes of :class:`ChangedValueCounts`."""
        return self._odd.notes()


def _decoding(job: StreamJob) -> tuple[Any, ...]:
    """Returns the inputs of a decoder."""
    return (
        job.schema, job.given, job.key, job.exact, job.whole, job.ignored, job.undeclared,
        job.closed, job.mark, job.deletes, job.json_texts, job.texts,
        default_cursor(job.configured), bool(job.lane.disposition.cursor),
    )  # fmt: skip
