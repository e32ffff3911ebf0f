"""Converts chunks of whole lines of a tap's stdout into events, in the order they were sent.

A chunk with one good message on every line is decoded in one call. A run of records of one stream
is taken without a Python step for each. In any other chunk the good lines between two bad ones are
decoded one by one and taken as such a run. Records are grouped by stream until a state, a message
of their stream, or the end of a block. Records that cannot be read end the read (``ReadFailed``),
since a later state would cover them (L1, L8). Not here: framing (``codec.framing``), typed columns
(``codec.decode``), the process (``protocols.stdio.read``), the stream of a message
(``stream_names``), files (``batch_files``).
"""

import re
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from penstock.codec.exact_json import floats
from penstock.model.catalog import StreamId, SyncMode
from penstock.model.events import (
    Activate,
    Batch,
    DoubtfulEnd,
    Event,
    LogEvent,
    Reject,
    State,
    Status,
    StreamStatus,
    Tick,
    UnconfiguredRecords,
)
from penstock.protocols.reading import ReadRequest
from penstock.protocols.singer.batch_files import read_batch
from penstock.protocols.singer.batch_rows import BatchError, MalformedRow
from penstock.protocols.singer.line_decoding import LINE, decoded, text_of, with_python_values
from penstock.protocols.singer.messages import ABSENT, Line, Message, MessageHead, MessageType, word
from penstock.protocols.singer.state import SCOPE
from penstock.protocols.singer.stream_names import (
    Ambiguous,
    KnownSchema,
    StreamNames,
)
from penstock.protocols.singer.time_extracted import millis
from penstock.protocols.stdio.json_lines import (
    FAULTS,
    FIRST,
    OPEN,
    is_json,
    line_in,
    one_a_line,
    split,
    streams_named,
    the_one,
    with_letters,
)
from penstock.protocols.stdio.read import ReadFailed
from penstock.protocols.stdio.unparsed import UnparsedOutput
from penstock.runtimes.granted_files import GrantedFiles

_ABOUT = msgspec.json.Decoder(MessageHead, float_hook=float)
_MESSAGE = msgspec.json.Decoder(Message, float_hook=float)
_KIND = attrgetter("type", "stream", "version")
_RECORD_OF, _TIME_OF = attrgetter("record"), attrgetter("time_extracted")

_NAMED = 5  # streams in a message
_NO_SCHEMA = (
    "the tap sent no SCHEMA of them, so that exit code 0 does not prove that they were read"
)
_NO_SCHEMA_HINT = (
    "their tables keep what they had; see in the log why the tap left them out, mend that and run "
    "again; leave out a stream that it cannot read with --exclude"
)
_UNREADABLE = "source.batch_unreadable"
# A line that matches is never taken for plain text: it is, or should be, a message with records.
_RECORD_MARK = re.compile(rb'(?i:"type"\s*:\s*"RECORD")|"record"\s*:\s*\{')
_SEAM = re.compile(rb"(?<=\})[ \t\r]*(?=\{)")  # between two messages on one line
_BATCH_MARK = re.compile(rb'(?i:"type"\s*:\s*"BATCH")')


class _Group:
    """Records of one version of one stream since it was last flushed."""

    __slots__ = ("bodies", "times")

    def __init__(self) -> None:
        self.bodies: list[Any] = []
        self.times: list[Any] = []


class SingerReader:
    """Converts the lines of one read (``Reader`` of ``protocols.stdio.read``). ``files``: the files
    that a BATCH may name."""

    def __init__(self, request: ReadRequest, files: GrantedFiles) -> None:
        self.beats = 0
        self._request = request
        self._files = files
        self._unparsed = UnparsedOutput()
        self._names = StreamNames(request.streams, request.unchosen, open_=request.open)
        self._configured = {s.id: s for s in request.streams}
        self._schemas: dict[StreamId, KnownSchema] = {}
        self._open: dict[tuple[StreamId, int | None], _Group] = {}
        self._warned: set[str] = set()
        self._half = False
        self._latest: dict[StreamId, int | None] = {}  # versions of records since an activation
        self._activated: dict[StreamId, int] = {}  # versions that are whole so far
        self._seen: set[StreamId] = set()
        self._declared: set[StreamId] = (
            set()
        )  # a SCHEMA came, or a record of a stream without a schema
        self._strange: set[str] = set()  # names of records that are not in the catalog
        self._passed: set[str] = set()  # names of records of streams that are not configured

    def chunk(self, data: bytes, *, terminated: bool = True) -> Iterator[Event]:
        raws = split(data)
        try:
            lines = LINE.decode_lines(data)
        except FAULTS:
            lines = None
        if lines is not None and one_a_line(data, len(lines)):
            yield from self._take(lines, raws)
            return
        self._half = not terminated
        good: list[Line] = []
        good_raws: list[bytes] = []
        for raw in raws:
            line = decoded(raw)
            if line is not None:
                good.append(line)
                good_raws.append(raw)
                continue
            yield from self._take(good, good_raws)
            good, good_raws = [], []
            yield from self._bad_line(raw)
        yield from self._take(good, good_raws)

    def flush(self) -> Iterator[Event]:
        yield from self._flush_all()
        yield from self._unparsed.counted()

    def oversized(self, size: int, head: bytes, file: Path | None) -> Iterator[Event]:
        about = None if file is None else line_in(file, _ABOUT)
        kind = _meant_type(head) if about is None else word(about.type)
        if file is not None and kind != MessageType.record:
            file.unlink(missing_ok=True)
        reason = f"a {kind} line of {size} bytes is larger than max_record_bytes"
        if kind == MessageType.batch:
            raise ReadFailed(_UNREADABLE, reason, self._meant(head, about))
        if kind == MessageType.record:
            self.beats += 1
            refused = Reject(self._meant(head, about), reason, head)
            yield refused if file is None else replace(refused, spool=str(file), size=size)
        else:
            yield from self._unparsed.report("oversized_line", head)

    def finished(self) -> Iterator[Event]:
        """Yields a COMPLETE status for streams that were complete although the tap failed: they are
        full refresh, and their last message activated the version of their records (L6, L7). Not
        needed after exit code 0."""
        for stream in self._activated:
            configured = self._configured.get(stream)
            if configured is not None and configured.sync_mode is SyncMode.full_refresh:
                yield StreamStatus(stream, Status.complete)

    def undeclared(self) -> tuple[DoubtfulEnd, ...]:
        """Returns the configured streams without a SCHEMA message: a tap that cannot read a stream
        may log that to stderr, go on with the next one and exit with 0 (L6)."""
        streams = tuple(s for s in self._configured if s not in self._declared)
        return (DoubtfulEnd(streams, _NO_SCHEMA, hint=_NO_SCHEMA_HINT),) if streams else ()

    # -- good lines

    def _take(self, lines: Sequence[Line], raws: Sequence[bytes]) -> Iterator[Event]:
        at = 0
        for (kind, name, version), run in groupby(lines, _KIND):
            lines_of_run = list(run)
            end = at + len(lines_of_run)
            if word(kind) == MessageType.record:
                yield from self._records(name, version, lines_of_run, raws[at:end])
            else:
                for raw in raws[at:end]:
                    yield from self._other(raw)
            at = end

    def _records(
        self, name: Any, version: Any, run: Sequence[Line], raws: Sequence[bytes]
    ) -> Iterator[Event]:
        self.beats += len(run)
        stream = yield from self._stream(name, len(run))
        if stream is None:
            if isinstance(name, str) and name:
                yield from self._pass_over(name)
                return
            for raw in raws:
                yield Reject(None, "record of the wrong shape: stream is missing", raw)
            return
        bodies = list(map(_RECORD_OF, run))
        broken: list[Reject] = []
        if set(map(FIRST, map(memoryview, bodies))) != {OPEN}:
            keep: list[Line] = []
            for line, raw in zip(run, raws, strict=True):
                if memoryview(line.record)[0] == OPEN:
                    keep.append(line)
                    continue
                what = "missing" if line.record is ABSENT else "not an object"
                broken.append(Reject(stream, f"record of the wrong shape: record is {what}", raw))
            run = keep
            bodies = list(map(_RECORD_OF, run))
        if not bodies:
            yield from broken
            return
        number = self._version(version, len(run))
        group = self._open.get((stream, number))
        if group is None:
            yield from self._announced(stream)
            group = self._open[(stream, number)] = _Group()
            self._latest[stream] = number
            self._activated.pop(stream, None)
        yield from broken  # after the SCHEMA of their stream, so that it counts them
        group.bodies += bodies
        group.times += map(_TIME_OF, run)

    def unheard(self) -> None:
        """Checks a read after exit code 0. Raises ``ReadFailed`` where a stream sent nothing at all
        while records came whose stream is not in the catalog: the names are then not understood,
        and the stream must not be taken for empty (L6)."""
        silent = sorted(s.name for s in self._configured if s not in self._seen)
        if silent and self._strange:
            text = f"no record came of {', '.join(silent[:_NAMED])}, but records of "
            text += f"{', '.join(sorted(self._strange)[:_NAMED])}, which the catalog does not have"
            raise ReadFailed("source.unknown_streams", text)

    def _stream(self, name: Any, count: int) -> Generator[Event, None, StreamId | None]:
        """Returns the stream of a message; None, and counted, where it is not configured."""
        if not isinstance(name, str) or not name:
            return None
        try:
            stream = self._names.of(name)
        except Ambiguous as e:
            yield from self._flush_all()
            text = f"{e}: the tap's names are not unique"
            raise ReadFailed("source.ambiguous_stream", text) from e
        if stream is None:
            self._unparsed.count(f"stream_not_configured:{name[:64]}", count)
        else:
            self._seen.add(stream)
        return stream

    def _pass_over(self, name: str) -> Iterator[Event]:
        """Reports records of a stream that is not configured. Taps that ignore ``selected`` send
        them, and their states cover them."""
        if name in self._passed:
            return
        self._passed.add(name)
        candidates = self._names.unchosen(name)
        if not candidates:
            self._strange.add(name[:64])
        for stream in candidates or (StreamId(None, name),):
            yield UnconfiguredRecords(stream)

    def _version(self, version: Any, messages: int = 1) -> int | None:
        """Returns the version as a number; None where it is not one, and counts that for so many
        messages."""
        if version is None or (isinstance(version, int) and not isinstance(version, bool)):
            return version
        try:
            return int(version)
        except (TypeError, ValueError, OverflowError):
            self._unparsed.count("malformed:version", messages)
            return None

    def _announced(self, stream: StreamId) -> Iterator[Event]:
        known = self._schema_of(stream)
        event = known.schemaless(stream)
        if known.partial:
            self._declared.add(stream)  # records without a schema need no SCHEMA
        if event is not None:
            yield event

    def _schema_of(self, stream: StreamId) -> KnownSchema:
        schema = self._schemas.get(stream)
        if schema is None:
            schema = self._schemas[stream] = KnownSchema(self._configured.get(stream))
        return schema

    def _flush_all(self) -> Iterator[Event]:
        groups, self._open = self._open, {}
        for (stream, version), group in groups.items():
            yield _batch(stream, version, group)

    def _flush(self, stream: StreamId) -> Iterator[Event]:
        for key in [k for k in self._open if k[0] == stream]:
            yield _batch(stream, key[1], self._open.pop(key))

    # -- everything else

    def _other(self, raw: bytes) -> Iterator[Event]:
        try:
            message = _MESSAGE.decode(raw)
        except FAULTS:  # the fault is in a field that a RECORD does not have
            yield from self._bad_line(raw)
            return
        match word(message.type):
            case MessageType.state:
                self.beats += 1
                yield from self._state(message)
            case MessageType.schema:
                yield from self._schema(message)
            case MessageType.activate_version:
                yield from self._activate(message)
            case MessageType.batch:
                self.beats += 1
                yield from self._batch(message)
            case _:
                name = message.type[:64]
                self._unparsed.count(f"unknown_type:{name}")
                yield from self._once(f"messages of type {name!r} are not known and are skipped")

    def _state(self, message: Message) -> Iterator[Event]:
        blob = text_of(message.value)
        if message.value is ABSENT or blob is None:
            self._unparsed.count("malformed:STATE")
            yield LogEvent("ERROR", "a STATE message without a value that can be read is not saved")
            return
        yield from self._flush_all()
        yield State(SCOPE, blob)

    def _schema(self, message: Message) -> Iterator[Event]:
        stream = yield from self._stream(message.stream, 1)
        if stream is not None:
            self._declared.add(stream)
        text = text_of(message.schema)
        schema: Any = None
        with suppress(*FAULTS):
            schema = None if text is None else floats(text)
        nameless = not isinstance(message.stream, str) or not message.stream
        if self._request.refuses and (nameless or not isinstance(schema, dict | bool)):
            what = "a SCHEMA without a stream" if nameless else f"the SCHEMA of {message.stream!r}"
            raise ReadFailed("source.bad_schema", f"{what} is not a JSON Schema of a stream")
        if not isinstance(schema, dict | bool):
            self._unparsed.count("malformed:SCHEMA")
            yield LogEvent(
                "ERROR", f"a SCHEMA of {message.stream!r} is not a JSON Schema; it is ignored"
            )
            return
        if stream is None:
            return
        keys, cursors = message.key_properties, message.bookmark_properties
        if keys is None:
            yield from self._once(f"stream {stream}: its SCHEMA has no key_properties")
        known = self._schema_of(stream)
        for what, names in (("key", keys), ("bookmark", cursors)):
            for name in known.missing(schema, names):
                text = f"stream {stream}: the {what} {name!r} is not a property of its schema"
                if self._request.refuses and what == "key":
                    raise ReadFailed("source.bad_schema", text, stream)
                yield from self._once(text)
        event = known.update(stream, schema, keys, cursors)
        self._activated.pop(stream, None)
        if event is not None:
            yield from self._flush(stream)
            yield event

    def _activate(self, message: Message) -> Iterator[Event]:
        stream = yield from self._stream(message.stream, 1)
        version = self._version(message.version)
        if version is None:
            self._unparsed.count("malformed:ACTIVATE_VERSION")
            yield LogEvent("ERROR", f"an ACTIVATE_VERSION of {message.stream!r} names no version")
        elif stream is not None:
            yield from self._flush(stream)
            if self._latest.pop(stream, None) == version:
                self._activated[stream] = version
            elif self._activated.get(stream) != version:
                self._activated.pop(stream, None)  # another version begins, whose rows follow
            yield Activate(stream, version)

    def _batch(self, message: Message) -> Iterator[Event]:
        stream = yield from self._stream(message.stream, 1)
        if stream is None:
            if not isinstance(message.stream, str) or not message.stream:
                raise ReadFailed(_UNREADABLE, "a BATCH message without a stream")
            yield from self._pass_over(message.stream)
            return
        yield from self._flush(stream)
        yield from self._announced(stream)
        version = self._version(message.version)
        self._latest[stream] = version
        self._activated.pop(stream, None)
        now = int(time.time() * 1000)
        limit, folder = self._request.max_record_bytes, self._request.spool_folder
        try:
            for rows in read_batch(self._files, message.encoding, message.manifest, limit, folder):
                if isinstance(rows, MalformedRow):
                    yield Reject(stream, rows.reason, rows.raw, spool=rows.spool, size=rows.size)
                elif not rows:
                    yield Tick()  # so that the read can be stopped within a long row
                else:
                    size = sum(map(len, rows))
                    yield Batch(stream, rows, [now] * len(rows), {}, size, version)
        except BatchError as e:
            text = f"stream {stream}: a batch cannot be read: {e}"
            raise ReadFailed(_UNREADABLE, text, stream, e.hint) from e

    def _once(self, text: str) -> Iterator[Event]:
        if text not in self._warned:
            self._warned.add(text)
            yield LogEvent("WARN", text)

    # -- bad lines

    def _bad_line(self, raw: bytes) -> Iterator[Event]:
        """Converts a line that is not a message: unparsed output, a message with NaN, or a
        reject."""
        if not raw.strip():
            self._unparsed.count("blank_line")
            return
        message = with_python_values(raw)
        if message is not None:
            yield from self._not_quite_json(*message, raw)
            return
        cut = ": the output ended inside it" if self._half else ""
        meant = _meant_type(raw)
        reason = f"a line that holds a {meant} and is not exactly one message{cut}"
        if meant is MessageType.batch:
            # A reject would count as one row, and a later state would cover all rows of its files.
            raise ReadFailed(_UNREADABLE, reason, self._meant(raw))
        if meant is None:
            kind = "not_a_message" if is_json(raw) else "text_line"
            yield from self._unparsed.report(kind, raw)
            return
        self.beats += 1
        yield Reject(self._meant(raw), reason, raw)

    def _not_quite_json(self, line: Line, cover: bytes, raw: bytes) -> Iterator[Event]:
        """Converts a message with values that JSON does not have. A state (not JSON) and the names
        of files cannot be kept; a SCHEMA can be read without the value."""
        match word(line.type):
            case MessageType.record:
                yield from self._take((line,), (raw,))
            case MessageType.state:
                self._unparsed.count("malformed:STATE")
                yield LogEvent(
                    "ERROR", "a STATE message with a value that JSON does not have is not saved"
                )
            case MessageType.batch:
                reason = "a BATCH message with a value that JSON does not have"
                raise ReadFailed(_UNREADABLE, reason, self._meant(raw))
            case _:
                yield from self._other(cover)

    def _meant(self, raw: bytes, about: MessageHead | None = None) -> StreamId | None:
        """Returns the stream of a broken record: the one that it names, or, in a line that is not
        JSON, the only candidate; else None. ``about``: what is known about the whole line, if
        ``raw`` is only its beginning."""
        if about is None:
            names = streams_named(raw)
        else:
            names = {about.stream} if isinstance(about.stream, str) else set[str]()
        return the_one(names, {*self._configured, *self._schemas})


def _meant_type(raw: bytes) -> MessageType | None:
    """Returns the intended type of a malformed line. It is BATCH where the line has a whole BATCH
    among other messages, in any spelling, or where nothing indicates a RECORD, which may contain
    the words of a BATCH."""
    pieces = _SEAM.split(raw)
    lines = filter(None, map(decoded, pieces)) if len(pieces) > 1 else ()
    if any(word(line.type) == MessageType.batch for line in lines):
        return MessageType.batch
    text = with_letters(raw)
    if _RECORD_MARK.search(text):
        return MessageType.record
    return MessageType.batch if _BATCH_MARK.search(text) else None


def _batch(stream: StreamId, version: int | None, group: _Group) -> Batch:
    times = millis(group.times, int(time.time() * 1000))
    return Batch(stream, group.bodies, times, {}, sum(map(len, group.bodies)), version)
