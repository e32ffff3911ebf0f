"""Encodes the feed of a write as the lines that a Singer target reads: SCHEMA, RECORD, STATE and
ACTIVATE_VERSION.

Types are in upper case. No other types are sent: targets refuse or silently skip them (reference
§0.1). Runs in the thread that feeds. Not here: which state an echo acknowledges (``state_echoes``),
the schema's dialect (``outgoing_schema``), threads (``protocols.stdio.write``).
"""

import json
from collections.abc import Callable, Generator, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import Defect
from penstock.model.catalog import ConfiguredStream, DestinationSyncMode, StreamId
from penstock.model.events import Tick
from penstock.model.types import Field, Origin, RowSchema
from penstock.protocols.singer.outgoing_schema import json_schema
from penstock.protocols.singer.schema import DELETED_AT
from penstock.protocols.singer.state_echoes import SentStates
from penstock.protocols.stdio.write import Chunk
from penstock.protocols.writing import Feed, Rows, StateMark, StreamDone, WriteStream

if TYPE_CHECKING:
    from penstock.codec.json_lines_encoder import LineEncoder

AIRBYTES_DELETED_AT = "_ab_cdc_deleted_at"

CHUNK_BYTES = 8 << 20  # of columns; their text is about as large


def name_of(target: StreamId) -> str:
    """Returns a stream's name in messages. Singer has no namespaces; targets that write tables use
    the part before the last ``-`` as the database schema."""
    return target.name if target.namespace is None else f"{target.namespace}-{target.name}"


def key_properties(stream: WriteStream) -> list[str]:
    """Returns the key of a stream's SCHEMA; empty where rows are appended, since a target merges
    rows with equal keys."""
    if stream.configured.destination_sync_mode is DestinationSyncMode.append:
        return []
    return [path[0] for path in stream.configured.primary_key if path]


def with_deletions(stream: WriteStream, schema: RowSchema) -> RowSchema:
    """Returns the schema with ``_sdc_deleted_at`` added next to an Airbyte source's own column of
    deletes, where rows are merged. Targets that merge delete by that property (reference §1.7).
    Some drop it where they are not configured to delete, so the original column stays too."""
    fields = {f.source: f for f in schema.fields}
    deleted_at = fields.get(AIRBYTES_DELETED_AT)
    merges = stream.configured.destination_sync_mode is DestinationSyncMode.append_dedup
    if deleted_at is None or DELETED_AT in fields or not merges:
        return schema
    renamed = Field(deleted_at.name, DELETED_AT, deleted_at.type)
    whole = Origin.record  # such a record lacks the property, which is then an ordinary column
    replace = msgspec.structs.replace
    others = (replace(f, origin=None) if f.origin is whole else f for f in schema.fields)
    return RowSchema((*others, renamed), schema.version)


def version_of(stream: ConfiguredStream) -> int | None:
    """Returns the version of a stream's records: its generation, if that replaces older ones; else
    None."""
    generation, oldest = stream.generation_id, stream.minimum_generation_id
    if generation is None:
        return None
    replaces = stream.destination_sync_mode is DestinationSyncMode.overwrite
    return generation if (replaces if oldest is None else oldest == generation) else None


class Outgoing:
    """Encodes the feed as chunks of lines. ``versions``: whether the target supports
    ACTIVATE_VERSION; called at most once, and only where a stream has a version."""

    def __init__(
        self, streams: tuple[WriteStream, ...], marks: SentStates, versions: Callable[[], bool]
    ) -> None:
        self._marks, self._versions = marks, cache(versions)
        self._streams = {s.id: s for s in streams}
        self._encoders: dict[tuple[StreamId, int], LineEncoder] = {}
        self._schema_lines: dict[StreamId, bytes] = {}  # the current SCHEMA line

    def name(self, stream: StreamId) -> str:
        known = self._streams.get(stream)
        return name_of(stream if known is None else known.target)

    def chunks(self, feed: Iterator[Feed]) -> Generator[Chunk | None]:
        for item in feed:
            match item:
                case Rows():
                    yield from self._rows(item)
                case StateMark():
                    yield _state(self._marks.mark(item))
                case StreamDone(stream):
                    yield from self._done(stream)
                case WriteStream():
                    self._changed(item)
                case Tick():
                    yield None
        closing = self._marks.closing()
        if closing is not None:
            yield _state(closing)

    def _rows(self, rows: Rows) -> Iterator[Chunk]:
        yield from self._schema(rows.stream, rows.version)
        encoder = self._encoder(rows.stream, rows.version)
        size = max(1, rows.batch.num_rows * CHUNK_BYTES // max(1, rows.batch.nbytes))
        for start in range(0, rows.batch.num_rows, size):
            chunk = encoder.encode(rows.batch.slice(start, size))
            self._marks.fed(rows.stream)
            yield chunk

    def _done(self, stream: StreamId) -> Iterator[Chunk]:
        """Gives a stream without rows a table too."""
        of = self._stream(stream)
        if stream not in self._schema_lines:
            yield from self._schema(stream, of.latest)
        version = self._version(of)
        if version is not None:
            yield _line(type="ACTIVATE_VERSION", stream=name_of(of.target), version=version)

    def _schema(self, stream: StreamId, version: int) -> Iterator[Chunk]:
        of = self._stream(stream)
        row = self._row_schema(of, version)
        schema = json_schema(row.properties, of.required(version))
        message: dict[str, Any] = {
            "type": "SCHEMA",
            "stream": name_of(of.target),
            "schema": schema,
            "key_properties": key_properties(of),
        }
        cursor = of.configured.cursor_field
        if len(cursor) == 1 and cursor[0] in schema["properties"]:
            message["bookmark_properties"] = list(cursor)
        line = _line(**message)
        if self._schema_lines.get(stream) != line:
            self._schema_lines[stream] = line
            yield line

    def _encoder(self, stream: StreamId, version: int) -> "LineEncoder":
        from penstock.codec.json_lines_encoder import (  # DuckDB: only where rows are fed
            LineEncoder,
            Slot,
        )

        found = self._encoders.get((stream, version))
        if found is None:
            of = self._stream(stream)
            number = self._version(of)
            words = "" if number is None else f',"version":{number}'
            start = f'{{"type":"RECORD","stream":{_text(name_of(of.target))},"record":'
            template = [start, Slot.data, words + ',"time_extracted":', Slot.extracted_text, "}"]
            schema = self._row_schema(of, version)
            found = LineEncoder(schema, template, decimals_as_text=True, as_it_came=True)
            self._encoders[stream, version] = found
        return found

    def _changed(self, stream: WriteStream) -> None:
        self._streams[stream.id] = stream
        self._encoders = {k: e for k, e in self._encoders.items() if k[0] != stream.id}

    def _version(self, stream: WriteStream) -> int | None:
        version = version_of(stream.configured)
        return version if version is not None and self._versions() else None

    def _stream(self, stream: StreamId) -> WriteStream:
        if stream not in self._streams:
            raise Defect(f"stream {stream} was not announced", code="singer.stream")
        return self._streams[stream]

    def _row_schema(self, stream: WriteStream, version: int) -> RowSchema:
        if version not in stream.schemas:
            raise Defect(f"stream {stream.id} has no schema {version}", code="singer.schema")
        return with_deletions(stream, stream.schemas[version])


def _state(value: str) -> bytes:
    return b'{"type":"STATE","value":' + value.encode() + b"}\n"


def _line(**message: Any) -> bytes:
    try:
        return msgspec.json.encode(message) + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair in a property's name
        return json.dumps(message).encode() + b"\n"


def _text(name: str) -> str:
    return msgspec.json.encode(name).decode()
