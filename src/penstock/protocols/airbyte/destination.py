"""An Airbyte destination's conversation: spec, check, write.

Not here: what is sent (``outgoing``, ``records``), what comes back (``replies``, ``acks``), threads
and limits (``protocols.feeding``). ``spec`` and ``check`` are a source's, in a destination's words.
Source: specification, Destination; protocol, Destination; reference, airbyte §2.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from penstock.codec.json_schema import MAX_DEPTH
from penstock.errors import DestinationError, PenstockError, SourceError
from penstock.model.catalog import (
    CheckResult,
    ConnectorSpec,
    DestinationSyncMode,
    StreamId,
)
from penstock.model.events import Log, Tick
from penstock.model.types import DataType, Kind
from penstock.protocols.airbyte import outgoing
from penstock.protocols.airbyte.acks import Marks
from penstock.protocols.airbyte.enums import WireStreamStatus
from penstock.protocols.airbyte.replies import Replies
from penstock.protocols.airbyte.source import DELETED_AT, PROTOCOL, AirbyteSource
from penstock.protocols.contract import (
    Acks,
    Answer,
    EventSink,
    Feed,
    Rows,
    StateMark,
    StreamDone,
    WriteRequest,
    WriteStream,
)
from penstock.protocols.feeding import Chunk, converse, of_destination
from penstock.runtimes.contract import Argument, PrivateFile, Runtime, Timeouts

if TYPE_CHECKING:
    from penstock.protocols.airbyte.records import RecordLines

A = TypeVar("A")
_MODES = "supported_destination_sync_modes"
_OUR_WORDS = frozenset(
    f"source.{kind}" for kind in ("heartbeat", "start_timeout", "timeout", "no_exit")
)
_HINTS = {
    "source.exited": "is this an Airbyte destination? Run its command by hand to see what it does",
    "source.no_answer": "is this an Airbyte destination? Run its command by hand to see what it"
    " does",
}


class AirbyteDestination:
    """``DestinationRole`` of ``protocols.contract``."""

    told_once = True

    def __init__(self) -> None:
        self._questions = AirbyteSource()

    def spec(self, runtime: Runtime, timeouts: Timeouts, log: EventSink) -> ConnectorSpec:
        spec = _asked(lambda: self._questions.spec(runtime, timeouts, log))
        if not spec.abilities.get(_MODES):
            text = f"the destination does not list its {_MODES}: any mode is taken as supported"
            log(Log("WARN", text))
        return spec

    def check(
        self, runtime: Runtime, config: dict[str, Any], timeouts: Timeouts, log: EventSink
    ) -> CheckResult:
        return _asked(lambda: self._questions.check(runtime, config, timeouts, log))

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
        return found

    def fidelity(self, source_protocol: str, streams: Sequence[WriteStream]) -> list[str]:
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
        """See ``DestinationRole.write``. Limits come as an ``Error`` whose ``raw`` has its
        ``code`` (``destination.heartbeat``, ``destination.no_exit``, ``destination.timeout``,
        ``destination.closed_input``, ``destination.ended_early``), states given back out of order
        or unasked as ``destination.state_skipped`` and ``destination.state_unknown``. Raises
        ``DestinationError`` (``destination.new_stream``) for rows of a stream that the catalog
        lacks."""
        names = {s.target: s.id for s in request.streams}
        marks = Marks(names, strict=request.acks is Acks.strict)
        at_end = request.acks is Acks.at_end
        arguments: list[Argument] = [
            "write",
            "--config",
            PrivateFile("config.json", msgspec.json.encode(request.config)),
            "--catalog",
            PrivateFile("catalog.json", msgspec.json.encode(outgoing.catalog(request.streams))),
        ]
        chunks = _Outgoing(request, marks).chunks(feed)
        hearing = Replies(None if at_end else marks)
        conversation = converse(
            runtime, arguments, request.timeouts, request.tick, chunks, hearing, at_end=at_end
        )
        try:
            yield from conversation
        except SourceError as e:  # a runtime's, which knows no roles
            raise _translated(e) from None


class _Outgoing:
    """The feed as bytes. Runs in the thread that feeds."""

    def __init__(self, request: WriteRequest, marks: Marks) -> None:
        self._source, self._marks = request.source_protocol, marks
        self._streams = {s.id: s for s in request.streams}
        self._lines: dict[tuple[StreamId, int], RecordLines] = {}
        self._rows = dict.fromkeys(self._streams, 0)  # since the last state that covers them
        self._done: set[StreamId] = set()

    def chunks(self, feed: Iterator[Feed]) -> Generator[Chunk | None]:
        for item in feed:
            match item:
                case Rows():
                    self._rows[self._stream(item.stream).id] += item.batch.num_rows
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
        from penstock.protocols.airbyte.records import RecordLines

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
        rows = sum(self._rows.get(s, 0) for s in covered)
        self._rows.update((s, 0) for s in covered if s in self._rows)
        target = scope.stream if known is None else known.target
        message = outgoing.state(mark.state, self._source, target, mark.seq, rows)
        self._marks.sent(mark.seq, scope.key, message)
        return outgoing.state_line(message)


def _asked(question: Callable[[], A]) -> A:
    try:
        return question()
    except SourceError as e:
        raise _translated(e) from None


def _translated(e: SourceError) -> PenstockError:
    """The same failure as a destination's. The connector's own words are left as they are."""
    error = of_destination(e)
    if e.code in _OUR_WORDS:
        error.message = e.message.replace("the source", "the destination", 1)
        error.args = (error.message,)
    error.hint = _HINTS.get(e.code, e.hint)
    return error


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
        yield (
            f"{stream.id}: {', '.join(times)}: times that are not said to have a zone are sent as"
            " text"
        )
    if configured.destination_sync_mode is DestinationSyncMode.overwrite:
        yield (
            f"{stream.id}: whether the old rows stay until the new ones are complete is the"
            " destination's doing: one that knows no generations empties its table first"
        )
    deletes = any(f.source == DELETED_AT for f in fields)
    dedup = configured.destination_sync_mode is DestinationSyncMode.append_dedup
    if dedup and source_protocol != PROTOCOL and not deletes:
        yield f"{stream.id}: deletions are told by {DELETED_AT}, which this source does not have"


def _kinds(data_type: DataType, depth: int = 0) -> Iterator[Kind]:
    yield data_type.kind
    inner = [f.type for f in data_type.fields] + ([data_type.item] if data_type.item else [])
    for one in inner if depth < MAX_DEPTH else []:
        yield from _kinds(one, depth + 1)
