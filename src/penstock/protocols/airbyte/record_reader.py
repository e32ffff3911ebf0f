"""Converts chunks of whole lines of a source's stdout into events, in the order they were sent.

A chunk of only plain records costs no Python step per record. A chunk with one good message on
every line is decoded in one call; any other chunk line by line. An ``emitted_at`` that is not a
time is replaced by the time of arrival. Records are grouped by stream until a state or status of
their scope, or the end of a block. Not here: framing (``codec.framing``), typed columns
(``codec.decode``), timeouts and the process (``protocols.stdio.read``), other messages and unparsed
output (``side_messages``), which stream is meant (``stream_lookup``).
"""

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import msgspec

from penstock.codec.packed_bodies import Packed
from penstock.model.catalog import StreamId
from penstock.model.events import (
    Batch,
    DoubtfulEnd,
    Error,
    Estimate,
    Event,
    LogEvent,
    RecordCountMismatch,
    Reject,
    State,
    Status,
    StreamStatus,
    UnconfiguredRecords,
)
from penstock.model.state import StateScope, StateType
from penstock.protocols.airbyte.enums import MESSAGE_TYPES, MessageType
from penstock.protocols.airbyte.logged_errors import LoggedErrors
from penstock.protocols.airbyte.messages import (
    ABSENT,
    FIRST_MILLIS,
    LAST_MILLIS,
    Line,
    LineAbout,
    LineChange,
    LineMeta,
    LineName,
    LineOther,
    PlainLine,
    PlainRecord,
)
from penstock.protocols.airbyte.side_messages import SideMessages
from penstock.protocols.airbyte.state import record_count, scope_of, streams_with_entries
from penstock.protocols.airbyte.stream_lookup import StreamLookup
from penstock.protocols.stdio.json_lines import (
    FAULTS,
    OPEN,
    is_json,
    line_in,
    masked,
    one_a_line,
    streams_named,
    the_one,
    unmasked,
    utf8_escapes,
    with_letters,
)
from penstock.protocols.stdio.spread_messages import PART, SpreadMessage

_LINE = msgspec.json.Decoder(Line, float_hook=float)
_PLAIN = msgspec.json.Decoder(PlainLine)
_ABOUT = msgspec.json.Decoder(LineAbout, float_hook=float)
_OTHER = msgspec.json.Decoder(LineOther)
_OBJECT = msgspec.json.Decoder(LineName)
_META = msgspec.json.Decoder(LineMeta | None)
_CHANGES = msgspec.json.Decoder(list[LineChange])

_STREAM_OF = attrgetter("stream", "namespace")
_RECORD: str = MessageType.record.value
# These need no more than their decoded fields.
_WITHOUT_RAW = frozenset(
    (MessageType.state, MessageType.log, MessageType.trace, MessageType.control)
)

# A line that matches is never taken for plain text: it is, or should be, a RECORD.
_RECORD_MARK = re.compile(rb'"type"\s*:\s*"RECORD"|"record"\s*:\s*\{')


class _Group:
    """Records of one stream, configured or not, since it was last flushed. ``bare``: how many came
    without the stream's namespace."""

    __slots__ = ("bare", "bodies", "changes", "stream", "times")

    def __init__(self, stream: StreamId) -> None:
        self.stream = stream
        self.bare = 0
        self.bodies: list[msgspec.Raw] = []
        self.times: list[int] = []
        self.changes: dict[int, bytes] = {}


class AirbyteReader:
    """Converts the lines of one read (``Reader`` of ``protocols.stdio.read``). ``beats`` grows with
    every RECORD and STATE. ``others``: streams of the catalog that are not configured.
    ``trusts_exit``: as in ``LoggedErrors``."""

    def __init__(
        self,
        configured: Iterable[StreamId],
        others: Iterable[StreamId] = (),
        *,
        trusts_exit: bool = False,
    ) -> None:
        self.beats = 0
        configured = tuple(configured)
        self._errors = LoggedErrors(configured, trusts_exit=trusts_exit)
        self._streams = StreamLookup(configured, others)
        self._side_messages = SideMessages()
        self._spread = SpreadMessage()
        self._open: dict[tuple[str, str | None], _Group] = {}  # with records, not yet yielded
        # good chunks since the last flush
        self._seen: list[tuple[Sequence[Line | PlainLine], bytes]] = []
        self._half = False
        self._received: dict[StreamId, int] = {}  # records since the last state that covers them
        self._state_type: StateType | None = None
        self._mixed = False
        self._files = False
        self._passed: dict[StreamId, bool] = {}  # not configured, with records; value: reported
        self._met: set[StreamId] = set()  # configured, with records
        self._unclaimed: set[StreamId] = set()  # not configured; maybe records of configured ones
        self._unclear: set[StreamId] = set()  # configured, without records; may own unclaimed ones

    def chunk(self, data: bytes, *, terminated: bool = True) -> Iterator[Event]:
        """Converts complete lines, each with its newline; ``terminated`` False: the output ended
        inside the last one. Records may be buffered until :meth:`flush`."""
        lines: list[Line] | None = None
        if not self._spread.lines:
            if self._plain(data):
                return
            with suppress(*FAULTS):
                lines = _LINE.decode_lines(data)
        if lines is not None and one_a_line(data, len(lines)):
            self._seen.append((lines, data))
            yield from self._take(lines, data)
            return
        whole = data.split(b"\n")
        for raw in whole[:-1]:
            yield from self._line(raw)
        self._half = not terminated
        if whole[-1]:
            yield from self._line(whole[-1])

    def flush(self) -> Iterator[Event]:
        """Yields everything that is buffered: the records of every stream, then the counts."""
        yield from self._flush_all()
        self._seen.clear()
        yield from self._side_messages.counted()

    def rest(self) -> Iterator[Event]:
        """Yields what is left where the output ended inside a message, at the source's end."""
        yield from self._given_up()
        yield from self.flush()

    def ended(self) -> Iterator[Event]:
        """Reports, after exit code 0, streams that must not be taken for empty."""
        yield from self._report_unclear(None)

    def doubts(self, exit_code: int | None) -> tuple[DoubtfulEnd, ...]:
        """Returns the streams whose end is in doubt, at the source's end."""
        return tuple(self._errors.doubts(exit_code))

    def oversized(self, size: int, head: bytes, file: Path | None) -> Iterator[Event]:
        """Reports a line that is too long to decode: ``head`` is its beginning, ``file`` has the
        whole line."""
        about = None if file is None else line_in(file, _ABOUT)
        is_object = about is not None or (file is not None and line_in(file, _OBJECT) is not None)
        named = about is not None and about.type == _RECORD
        yield from self._given_up()
        if named if is_object else _is_marked(head):
            self.beats += 1
            reason = f"a RECORD line of {size} bytes is larger than max_record_bytes"
            refused = self._refused(self._stream_named(head, about), reason, head)
            yield refused if file is None else replace(refused, spool=str(file), size=size)
        else:
            if file is not None:
                file.unlink(missing_ok=True)
            yield from self._side_messages.report("oversized_line", head)

    # -- good lines

    def _plain(self, data: bytes) -> bool:
        """Takes a chunk of plain records. False: it has other lines, and nothing was taken."""
        try:
            lines = _PLAIN.decode_lines(data)
        except FAULTS:
            return False
        if not lines or not one_a_line(data, len(lines)):
            return False
        self._seen.append((lines, data))
        records = [line.record for line in lines]
        of, count = records[0], len(records)
        if [r.stream for r in records].count(of.stream) == count and (
            [r.namespace for r in records].count(of.namespace) == count
        ):
            self._gather(records)
        else:
            for _, run in groupby(records, _STREAM_OF):
                self._gather(list(run))
        return True

    def _gather(self, records: list[PlainRecord]) -> None:
        """Adds records of one stream to its group."""
        group, bare = self._group(records[0].stream, records[0].namespace)
        group.bare += len(records) if bare else 0
        group.bodies += [r.data for r in records]
        group.times += [r.emitted_at for r in records]

    def _take(self, lines: Sequence[Line], data: bytes) -> Iterator[Event]:
        """Takes decoded lines. ``data``: their bytes."""
        raws: list[bytes] = []
        name: str | None = None
        namespace: str | None = None
        group, bare = _Group(StreamId(None, "")), False
        for index, line in enumerate(lines):
            record = line.record
            if record is None or line.type != _RECORD:
                name = None  # its group may be yielded by then
                if line.type in _WITHOUT_RAW:
                    yield from self._other(line)
                    continue
                raws = raws or data.split(b"\n")
                if line.type == _RECORD:
                    yield from self._reject(raws[index], "record is missing")
                else:
                    yield from self._other(line, raws[index])
                continue
            if record.stream != name or record.namespace != namespace:
                name, namespace = record.stream, record.namespace
                group, bare = self._group(name, namespace)
            group.bare += bare
            if record.meta is not ABSENT:
                self._meta(group, record.meta)
            if record.file_reference is not ABSENT:
                yield from self._file(group.stream, record.file_reference)
            group.bodies.append(record.data)
            at = record.emitted_at
            if type(at) is not int or not FIRST_MILLIS <= at <= LAST_MILLIS:
                at = self._emitted(at)
            group.times.append(at)

    def _emitted(self, value: object) -> int:
        """Returns the epoch milliseconds of an ``emitted_at`` that is not an integer in range: the
        number in a float or a text of digits, else the time of arrival, which is counted."""
        try:
            at = int(float(value)) if isinstance(value, float | str) else LAST_MILLIS + 1
        except (ValueError, OverflowError):
            at = LAST_MILLIS + 1
        if FIRST_MILLIS <= at <= LAST_MILLIS:
            return at
        self._side_messages.count(
            "emitted_at_missing" if value is None else "emitted_at_unreadable"
        )
        return time.time_ns() // 1_000_000

    def _group(self, name: str, namespace: str | None) -> tuple[_Group, bool]:
        """Returns the group of records that name this stream, and whether they omit the stream's
        namespace."""
        self.beats += 1
        meant, bare = self._streams.resolved(namespace, name)
        key = (name, meant.namespace)
        group = self._open.get(key)
        if group is None:
            group = self._open[key] = _Group(meant)
            if meant not in self._streams.configured and self._streams.candidates(meant):
                self._unclaimed.add(meant)
        return group, bare

    def _meta(self, group: _Group, raw: msgspec.Raw) -> None:
        try:
            meta = _META.decode(raw)
            if meta is None or meta.changes is ABSENT:
                return
            text = bytes(meta.changes)
            if text not in (b"null", b"[]") and _CHANGES.decode(text):
                group.changes[len(group.bodies)] = text
        except FAULTS:
            self._side_messages.count("malformed:meta")

    def _file(self, stream: StreamId, reference: msgspec.Raw) -> Iterator[Event]:
        """Counts a file that a record refers to, and reports once that files are not taken."""
        if bytes(reference) == b"null":
            return
        self._side_messages.count(f"file_not_taken:{stream}")
        if not self._files:
            self._files = True
            yield LogEvent(
                "WARN",
                f"{stream}: its records refer to files, which are not read: only the rows are",
            )

    def _flush_all(self) -> Iterator[Event]:
        groups, self._open = self._open, {}
        for group in groups.values():
            yield from self._give(group)

    def _flush(self, stream: StreamId) -> Iterator[Event]:
        group = self._open.pop((stream.name, stream.namespace), None)
        if group is not None:
            yield from self._give(group)

    def _give(self, group: _Group) -> Iterator[Event]:
        if group.stream not in self._streams.configured:
            if self._streams.is_ambiguous(group.stream):
                yield from self._reject_ambiguous(group)
            else:
                self._pass_over(group.stream, len(group.bodies))
            return
        if not group.bodies:
            return
        if group.bare:
            self._side_messages.count(f"namespace_missing:{group.stream}", group.bare)
        self._met.add(group.stream)
        self._received[group.stream] = self._received.get(group.stream, 0) + len(group.bodies)
        packed = Packed.of(group.bodies)
        if packed.first_bytes() != {OPEN}:
            yield from self._reject_non_objects(group)
            if not group.bodies:
                return
            packed = Packed.of(group.bodies)
        yield Batch(group.stream, packed, group.times, group.changes, packed.size)

    def _pass_over(self, stream: StreamId, count: int) -> None:
        self._side_messages.count(f"stream_not_configured:{stream}", count)
        self._passed.setdefault(stream, False)

    def _passed_over(self) -> Iterator[Event]:
        """Reports streams that are not configured and had records, before a state that covers all
        streams. (The state of a single stream that is not configured is not saved.)"""
        for stream in [s for s, reported in self._passed.items() if not reported]:
            self._passed[stream] = True
            yield UnconfiguredRecords(stream)

    def _report_unclear(self, stream: StreamId | None) -> Iterator[Event]:
        """Reports configured streams (``stream``, or all) without a record, where records came that
        may be theirs. Such a stream's state is not saved, and it is not complete (L1, L6)."""
        for unclaimed in sorted(self._unclaimed):
            for one in self._streams.candidates(unclaimed):
                if stream not in (None, one) or one in self._met or one in self._unclear:
                    continue
                self._unclear.add(one)
                unnamed = unclaimed.namespace is None
                such = "which name no namespace" if unnamed else "a stream that no catalog has"
                yield Error(
                    f"{one}: none of its records came, but records of {unclaimed}, {such}: they may"
                    " be its own",
                    "system_error",
                    one,
                    code="source.unclear_stream",
                    hint="its table and its state stay as they were; report it to the connector's"
                    " maintainers: a RECORD names its stream's namespace as the catalog does",
                )

    def _is_unclear(self, stream: StreamId | None) -> bool:
        """Returns whether the stream, or any stream (None), was reported as unclear."""
        return bool(self._unclear) if stream is None else stream in self._unclear

    def _reject_ambiguous(self, group: _Group) -> Iterator[Event]:
        streams = ", ".join(map(str, self._streams.candidates(group.stream)))
        reason = f"the record has no namespace, and may belong to several streams: {streams}"
        origins = self._origins(group.bodies)
        for body in group.bodies:
            yield Reject(None, reason, origins[id(body)])

    def _reject_non_objects(self, group: _Group) -> Iterator[Event]:
        keep = [i for i, b in enumerate(group.bodies) if memoryview(b)[0] == OPEN]
        kept = set(keep)
        bad = [body for i, body in enumerate(group.bodies) if i not in kept]
        origins = self._origins(bad)
        for body in bad:
            reason = "record of the wrong shape: data is not an object"
            yield Reject(group.stream, reason, origins[id(body)])
        index = {old: new for new, old in enumerate(keep)}
        group.bodies = [group.bodies[i] for i in keep]
        group.times = [group.times[i] for i in keep]
        group.changes = {index[i]: c for i, c in group.changes.items() if i in index}

    def _origins(self, wanted: Sequence[object]) -> dict[int, bytes]:
        """Returns the bytes of the lines whose bodies are these objects, by ``id``."""
        ids = set(map(id, wanted))
        found: dict[int, bytes] = {}
        for lines, data in self._seen:
            raws: list[bytes] = []
            for index, line in enumerate(lines):
                one = id(_body(line))
                if one in ids:
                    raws = raws or data.split(b"\n")
                    found[one] = raws[index]
        return found

    # -- everything else

    def _other(self, line: LineOther, raw: bytes | None = None) -> Iterator[Event]:
        if line.type == MessageType.state:
            self.beats += 1
            yield from self._state(line.state)
            return
        for event in self._side_messages.other(line, raw):
            if isinstance(event, StreamStatus | Error | Estimate) and event.stream is not None:
                event.stream = self._streams.of(event.stream)
            if isinstance(event, StreamStatus):
                if event.stream not in self._streams.configured:
                    self._side_messages.count(f"status_not_configured:{event.stream}")
                    continue
                self._errors.status(event.stream, event.status)
                yield from self._flush(event.stream)
                if event.status is Status.complete:
                    yield from self._report_unclear(event.stream)
                    if self._is_unclear(event.stream):
                        continue
            elif isinstance(event, LogEvent):
                self._errors.log(event.level, event.message)
            else:
                yield from self._flush_all()
            yield event

    def _state(self, raw: msgspec.Raw) -> Iterator[Event]:
        try:
            text = bytes(raw).decode()
            scope = scope_of(text)
        except (ValueError, RecursionError) as e:
            self._side_messages.count("malformed:STATE")
            yield LogEvent("ERROR", f"a STATE message that cannot be read is not saved: {e}")
            return
        if scope.stream is not None:
            scope = StateScope(scope.type, self._streams.of(scope.stream))
        if scope.stream is not None and scope.stream not in self._streams.configured:
            self._side_messages.count(f"state_not_configured:{scope.stream}")
            return
        before = self._state_type
        if before not in (None, StateType.legacy, scope.type):
            yield from self._mixed_types(before, scope)
            return
        self._state_type = scope.type
        if scope.stream is None:
            yield from self._flush_all()
            yield from self._passed_over()
        else:
            yield from self._flush(scope.stream)
        yield from self._miscounted(scope.stream, text)
        yield from self._report_unclear(scope.stream)
        if not self._is_unclear(scope.stream):
            yield State(scope, text, named=self._named(scope, text))

    def _named(self, scope: StateScope, text: str) -> frozenset[StreamId] | None:
        """Returns the streams that a GLOBAL state names. None: it is of another type, names none,
        or cannot be read so far."""
        if scope.type is not StateType.global_:
            return None
        try:
            named = streams_with_entries(text)
        except ValueError:
            return None
        return frozenset(map(self._streams.of, named)) or None

    def _miscounted(self, stream: StreamId | None, text: str) -> Iterator[Event]:
        """Compares the records since the last state with the source's number (protocol 0.18,
        AirbyteStateStats)."""
        received = sum(self._received.values()) if stream is None else self._received.get(stream, 0)
        if stream is None:
            self._received.clear()
        else:
            self._received[stream] = 0
        sent = record_count(text)
        if sent is not None and sent != received:
            yield RecordCountMismatch(stream, sent, received)

    def _mixed_types(self, before: StateType | None, scope: StateScope) -> Iterator[Event]:
        """Reports a state of a second type: the first one as an error, the others as counts. None
        is saved."""
        self._side_messages.count(f"mixed_state:{scope.type.value}")
        if not self._mixed:
            self._mixed = True
            yield from self._flush_all()
            words = f"{before.value if before else ''} and then {scope.type.value}"
            message = f"the source sent states of two types in one run, {words}"
            yield Error(message, "system_error", scope.stream, code="source.mixed_state")

    # -- a line on its own

    def _line(self, raw: bytes) -> Iterator[Event]:
        if self._spread.lines:
            if not _is_message(raw) and self._spread.goes_on(raw):
                yield from self._spread_over_lines()
                return
            yield from self._given_up()
        try:
            line = _LINE.decode(raw)
        except FAULTS as e:
            yield from self._odd(raw, str(e))
            return
        record = line.record
        if line.type != _RECORD:
            yield from self._other(line, raw)
        elif record is None:
            yield from self._reject(raw, "record is missing")
        else:
            yield from self._take_one(line, raw)

    def _take_one(self, line: Line, raw: bytes) -> Iterator[Event]:
        self._seen.append(((line,), raw))
        yield from self._take((line,), raw)

    def _odd(self, raw: bytes, fault: str) -> Iterator[Event]:
        """Converts a line that cannot be decoded: unparsed output, another message with a stray
        ``record``, a RECORD with NaN, or a reject."""
        if not raw.strip():
            self._side_messages.count("blank_line")
            return
        try:
            other = _OTHER.decode(raw)
        except FAULTS:
            yield from self._no_message(raw, fault)
            return
        if other.type == _RECORD:
            yield from self._reject(raw, fault)
        else:
            yield from self._other(other, raw)

    def _no_message(self, raw: bytes, fault: str) -> Iterator[Event]:
        line = _with_python_values(raw)
        if line is not None:
            yield from self._not_quite_json(line, raw)
        elif is_json(raw):
            yield from self._side_messages.report("not_a_message", raw)
        elif not self._spread.begins(raw):
            yield from self._no_json(raw, fault)

    def _spread_over_lines(self) -> Iterator[Event]:
        """Converts a message whose last line has come. It is not a valid message (protocol,
        Interface Invariants): it is counted, and a RECORD becomes a reject, so that no row is lost
        silently (L8)."""
        if not self._spread.ended():
            return
        lines = self._spread.release()
        whole = b"\n".join(lines)
        try:
            type = _OTHER.decode(whole).type
        except FAULTS:
            if is_json(whole):
                yield from self._side_messages.report("not_a_message", whole)
            else:
                for line in lines:
                    yield from self._no_json(line, "not JSON")
            return
        self._side_messages.count(PART, len(lines) - 1)
        yield from self._side_messages.report(PART, whole)
        if type == _RECORD:
            self.beats += 1
            reason = f"a RECORD spread over {len(lines)} lines: a message is one line"
            yield self._refused(self._stream_named(whole), reason, whole)

    def _given_up(self) -> Iterator[Event]:
        """Converts the lines of an object that did not end, each on its own."""
        for line in self._spread.release():
            yield from self._no_json(line, "it ends within an object")

    def _no_json(self, raw: bytes, fault: str) -> Iterator[Event]:
        """Converts a line that is not JSON: text, or a reject where a RECORD was intended (L8)."""
        if not _is_marked(raw):
            yield from self._side_messages.report("text_line", raw)
            return
        self.beats += 1
        cut = "the output ended inside it: " if self._half else ""
        reason = f"a line that holds a RECORD and is not exactly one message: {cut}{fault}"
        yield self._refused(self._stream_named(raw), reason, raw)

    def _not_quite_json(self, line: Line, raw: bytes) -> Iterator[Event]:
        """Converts a message with values that JSON does not have. A state (not JSON) and a
        configuration (which would change) cannot be kept."""
        if line.type == _RECORD:
            if line.record is None:
                yield from self._reject(raw, "record is missing")
            else:
                yield from self._take_one(line, raw)
        elif line.type in (MessageType.state, MessageType.control):
            self._side_messages.count(f"malformed:{line.type}")
            text = f"a {line.type} message with a value that JSON does not have is not saved"
            yield LogEvent("ERROR", text)
        else:
            text = utf8_escapes(raw)
            yield from self._other(_OTHER.decode(masked(text) or text), raw)

    def _reject(self, raw: bytes, fault: str) -> Iterator[Event]:
        self.beats += 1
        yield self._refused(self._stream_named(raw), f"record of the wrong shape: {fault}", raw)

    def _refused(self, stream: StreamId | None, reason: str, raw: bytes) -> Reject:
        """Returns the reject for a line that is, or should be, one record; it counts as
        received."""
        if stream is not None:
            self._met.add(stream)
            self._received[stream] = self._received.get(stream, 0) + 1
        return Reject(stream, reason, raw)

    def _stream_named(self, raw: bytes, about: LineAbout | None = None) -> StreamId | None:
        """Returns the configured stream of a broken record: the one that it names, or, in a line
        that is not JSON, the only candidate; else None. ``about``: what is known about the whole
        line, if ``raw`` is only its beginning."""
        if about is None:
            with suppress(*FAULTS):
                about = _ABOUT.decode(raw)
        if about is None:
            return the_one(streams_named(raw), self._streams.configured)
        if about.record is None:
            return None
        name, namespace = about.record.stream, about.record.namespace
        if not isinstance(name, str):
            return None
        if namespace is not None and not isinstance(namespace, str):
            return the_one({name}, self._streams.configured)
        stream = self._streams.of(StreamId(namespace, name))
        return stream if stream in self._streams.configured else None


def _is_message(raw: bytes) -> bool:
    try:
        return _OTHER.decode(raw).type in MESSAGE_TYPES
    except FAULTS:
        return False


def _is_marked(raw: bytes) -> bool:
    return _RECORD_MARK.search(with_letters(raw)) is not None


def _body(line: Line | PlainLine) -> msgspec.Raw | None:
    return None if line.record is None else line.record.data


def _with_python_values(raw: bytes) -> Line | None:
    """Decodes a message with values that only Python's ``json`` reads (NaN); the body of a RECORD
    stays as sent. None where the line has any other defect."""
    cover = masked(raw) if raw.lstrip().startswith(b"{") else None
    if cover is None:
        return None
    try:
        line = _LINE.decode(cover)
    except FAULTS:
        return None
    if line.record is not None:
        line.record.data = unmasked(raw, cover, line.record.data)
    return line
