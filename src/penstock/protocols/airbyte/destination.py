"""Implements the destination role with an Airbyte destination: problems and notes of a plan, and
the write.

Not here: the messages that are sent (``outgoing``, ``record_encoder``), the destination's output
(``destination_output``, ``state_echoes``), threads and timeouts (``protocols.stdio.write``),
``spec`` and ``check`` (``questions``). Source: specification, Destination; protocol, Destination.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.codec.json_schema import MAX_DEPTH
from penstock.errors import DestinationError
from penstock.model.catalog import (
    CheckResult,
    ConnectorSpec,
    DestinationSyncMode,
    StreamId,
)
from penstock.model.events import LogEvent, Tick
from penstock.model.types import DataType, Kind
from penstock.protocols.airbyte import outgoing, questions
from penstock.protocols.airbyte.destination_output import DestinationOutput
from penstock.protocols.airbyte.enums import WireStreamStatus
from penstock.protocols.airbyte.questions import PROTOCOL
from penstock.protocols.airbyte.retry import with_write_retries
from penstock.protocols.airbyte.source import DELETED_AT
from penstock.protocols.airbyte.state_echoes import PendingStates
from penstock.protocols.connection import EventSink
from penstock.protocols.contract import FixedSpec
from penstock.protocols.stdio.write import Chunk, converse
from penstock.protocols.writing import (
    Acks,
    Answer,
    Feed,
    Rows,
    StateMark,
    StreamDone,
    WriteRequest,
    WriteStream,
)
from penstock.runtimes.contract import Argument, PrivateFile, Runtime, RunTimeouts

if TYPE_CHECKING:
    from penstock.protocols.airbyte.record_encoder import RecordLines

_MODES = "supported_destination_sync_modes"


class AirbyteDestination(FixedSpec):
    """Writes to a destination (``contract.DestinationRole`` and
    ``connection.DestinationConversation`` of ``protocols``)."""

    described_once = True

    def spec(self, runtime: Runtime, timeouts: RunTimeouts, log: EventSink) -> ConnectorSpec:
        spec = questions.spec("destination", runtime, timeouts, log)
        if not spec.abilities.get(_MODES):
            text = f"the destination does not list its {_MODES}: any mode is taken as supported"
            log(LogEvent("WARN", text))
        return spec

    def check(
        self, runtime: Runtime, config: dict[str, Any], timeouts: RunTimeouts, log: EventSink
    ) -> CheckResult:
        return questions.check("destination", runtime, config, timeouts, log)

    def problems(self, spec: ConnectorSpec, streams: Sequence[WriteStream]) -> list[str]:
        supported = spec.abilities.get(_MODES) or []
        found: list[str] = []
        for stream in streams:
            mode = stream.configured.destination_sync_mode
            if supported and mode.value not in supported:
                listed = ", ".join(map(str, supported))
                found.append(
                    f"stream {stream.id}: the destination does not support"
                    f" destination_sync_mode {mode.value}; it supports: {listed}"
                )
            if mode is DestinationSyncMode.append_dedup and not stream.configured.primary_key:
                found.append(f"stream {stream.id}: append_dedup needs a primary key")
            if mode is DestinationSyncMode.append_dedup and stream.configured.replaces:
                found.append(
                    f"stream {stream.id}: a destination connector cannot both replace its rows "
                    "and keep one per key; use full_refresh_overwrite"
                )
        return found

    def fidelity(
        self,
        spec: ConnectorSpec,
        source_protocol: str,
        streams: Sequence[WriteStream],
        options: Mapping[str, Any],
    ) -> list[str]:
        notes = [
            "delivery is at least once: rows after the last state that the destination gave back"
            " are sent again by the next run",
            "a property that a record lacks is sent as null",
        ]
        if source_protocol != PROTOCOL:
            notes.append(
                f"states of the {source_protocol} source travel inside a GLOBAL state; the"
                " destination sees no state per stream"
            )
        return [*notes, *(n for s in streams for n in _stream_notes(s, source_protocol))]

    def write(
        self, runtime: Runtime, request: WriteRequest, feed: Iterator[Feed]
    ) -> Iterator[Answer]:
        """See ``DestinationConversation.write``. Exceeded timeouts and an early end come as an
        ``Error`` with a ``code`` (``destination.heartbeat``, ``destination.no_exit``,
        ``destination.timeout``, ``destination.closed_input``, ``destination.ended_early``), echoes
        of unsent states as ``destination.state_unknown``. Raises ``DestinationError``
        (``destination.new_stream``) for rows of a stream that the catalog lacks."""
        names = {s.target: s.id for s in request.streams}
        marks = PendingStates(names, strict=request.acks is Acks.strict)
        at_end = request.acks is Acks.at_end
        arguments: list[Argument] = [
            "write",
            "--config",
            PrivateFile("config.json", msgspec.json.encode(request.config)),
            "--catalog",
            PrivateFile("catalog.json", msgspec.json.encode(outgoing.catalog(request.streams))),
        ]
        chunks = _Outgoing(request, marks).chunks(feed)
        output = DestinationOutput(marks, at_end=at_end)
        conversation = converse(runtime, arguments, request.timeouts, request.tick, chunks, output)
        yield from with_write_retries(conversation, request)


class _Outgoing:
    """Encodes the feed as lines. Runs in the feeding thread."""

    def __init__(self, request: WriteRequest, marks: PendingStates) -> None:
        self._source, self._marks = request.source_protocol, marks
        self._streams = {s.id: s for s in request.streams}
        self._lines: dict[tuple[StreamId, int], RecordLines] = {}
        self._rows: dict[StreamId, int] = {}  # rows since the last state that covers them
        self._done: set[StreamId] = set()

    def chunks(self, feed: Iterator[Feed]) -> Generator[Chunk | None]:
        for item in feed:
            match item:
                case Rows():
                    stream = self._stream(item.stream).id
                    self._rows[stream] = self._rows.get(stream, 0) + item.batch.num_rows
                    yield self._encoder(item).encode(item.batch)
                case StateMark():
                    yield self._state(item)
                case StreamDone():
                    self._done.add(item.stream)
                    target = self._stream(item.stream).target
                    yield outgoing.status_line(target, WireStreamStatus.complete)
                case WriteStream():
                    self._stream(item.id)
                    self._streams[item.id] = item
                case Tick():
                    yield None
        for stream in sorted(self._streams.keys() - self._done):
            target = self._streams[stream].target
            yield outgoing.status_line(target, WireStreamStatus.incomplete)

    def _stream(self, stream: StreamId) -> WriteStream:
        known = self._streams.get(stream)
        if known is None:
            raise DestinationError(
                f"stream {stream} was not in the catalog that the destination was started with",
                code="destination.new_stream",
                hint="run again: what it was sent so far is kept, and the stream is known by then",
                stream=str(stream),
            )
        return known

    def _encoder(self, rows: Rows) -> "RecordLines":
        from penstock.protocols.airbyte.record_encoder import RecordLines

        key = (rows.stream, rows.version)
        lines = self._lines.get(key)
        if lines is None:
            stream = self._stream(rows.stream)
            schema = stream.schemas[rows.version]
            lines = RecordLines(stream.target, schema)
            self._lines[key] = lines
        return lines

    def _state(self, mark: StateMark) -> bytes:
        scope = mark.state.scope
        known = None if scope.stream is None else self._streams.get(scope.stream)
        covered = list(self._rows) if scope.stream is None else [scope.stream]
        rows = {s: self._rows.pop(s) for s in covered if s in self._rows}
        target = scope.stream if known is None else known.target
        total = sum(rows.values())
        message = outgoing.state(mark.state, self._source, target, mark.seq, total)
        self._marks.sent(mark.seq, scope.key, message, rows)
        return outgoing.state_line(message)


def _stream_notes(stream: WriteStream, source_protocol: str) -> Iterator[str]:
    configured, fields = stream.configured, stream.schemas[stream.latest].fields
    kinds = {k for f in fields for k in _kinds(f.type)}
    if Kind.decimal in kinds:
        yield (
            f"{stream.id}: decimals are sent as JSON numbers with all their digits; a destination"
            " that reads them as doubles keeps about 15"
        )
    if Kind.timestamp in kinds:
        yield f"{stream.id}: timestamps are sent in UTC, to the microsecond"
    times = outgoing.zoneless_times(stream.schemas[stream.latest], configured.stream.json_schema)
    if times:
        yield (f"{stream.id}: {', '.join(times)}: times without a declared zone are sent as text")
    if configured.destination_sync_mode is DestinationSyncMode.overwrite:
        yield (
            f"{stream.id}: whether the old rows stay until the new ones are complete depends on "
            "the destination: without generations it empties its table first"
        )
    deletes = any(f.source == DELETED_AT for f in fields)
    dedup = configured.destination_sync_mode is DestinationSyncMode.append_dedup
    if dedup and source_protocol != PROTOCOL and not deletes:
        yield f"{stream.id}: deletions are marked by {DELETED_AT}, which this source does not have"


def _kinds(data_type: DataType, depth: int = 0) -> Iterator[Kind]:
    yield data_type.kind
    inner = [f.type for f in data_type.fields] + ([data_type.item] if data_type.item else [])
    for one in inner if depth < MAX_DEPTH else []:
        yield from _kinds(one, depth + 1)
