"""The read path: chunks of whole lines from a tap's stdout -> events, in the order they came.

A chunk whose every line is one good message is decoded in one call, and a run of records of one
stream is taken with no Python step for each; in any other chunk the good lines between two bad ones
are such a run. Records are grouped per stream until a state, a message of their stream, or the end
of a block. What came and cannot be had ends the read (``GivenUp``): a later state would say that
it was taken (L1, L8). Not here: framing (``codec.framing``), typed columns (``codec.decode``), the
process (``protocols.stdio.read``), whose messages they are (``stream_names``), files
(``batch_files``).
"""

import re
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from penstock.model.catalog import StreamId, SyncMode
from penstock.model.events import (
    Activate,
    Batch,
    Event,
    Log,
    Passed,
    Reject,
    State,
    Status,
    StreamStatus,
)
from penstock.protocols.contract import ReadRequest
from penstock.protocols.singer.batch_files import BatchError, Faulty, read_batch
from penstock.protocols.singer.line_decoding import LINE, decoded, text_of, with_python_values
from penstock.protocols.singer.messages import ABSENT, Line, Message, MessageType, word
from penstock.protocols.singer.state import SCOPE
from penstock.protocols.singer.stream_names import Ambiguous, Names, Told, strangers
from penstock.protocols.singer.time_extracted import millis
from penstock.protocols.stdio.json_lines import (
    FAULTS,
    FIRST,
    OPEN,
    is_json,
    masked,
    one_a_line,
    split,
    streams_named,
    the_one,
)
from penstock.protocols.stdio.read import GivenUp
from penstock.protocols.stdio.unparsed import Noise

_MESSAGE = msgspec.json.Decoder(Message)
_KIND = attrgetter("type", "stream", "version")
_RECORD_OF, _TIME_OF = attrgetter("record"), attrgetter("time_extracted")

_NAMED = 5  # streams in a message
# A line that holds any of these is never taken for text: it holds, or held, records.
_RECORD_MARK = re.compile(rb'(?i:"type"\s*:\s*"(?:RECORD|BATCH)")|"record"\s*:\s*\{')


class _Group:
    """Records of one version of one stream since it was last flushed."""

    __slots__ = ("bodies", "times")

    def __init__(self) -> None:
        self.bodies: list[Any] = []
        self.times: list[Any] = []


class Sorter:
    """One read's lines -> events: ``protocols.stdio.read.Reader``."""

    def __init__(self, request: ReadRequest) -> None:
        self.beats = 0
        self._request = request
        self._noise = Noise()
        self._names = Names(request.streams, request.unchosen, open_=request.open)
        self._configured = {s.id: s for s in request.streams}
        self._told: dict[StreamId, Told] = {}
        self._open: dict[tuple[StreamId, int | None], _Group] = {}
        self._warned: set[str] = set()
        self._half = False
        self._latest: dict[StreamId, int | None] = {}  # versions of records since an activation
        self._activated: set[StreamId] = set()
        self._heard: set[StreamId] = set()
        self._strange: set[str] = set()  # names of records that the catalog does not have
        self._passed: set[str] = set()  # names of records that are no configured stream's

    def chunk(self, data: bytes, *, terminated: bool = True) -> Iterator[Event]:
        raws = split(data)
        try:
            lines = LINE.decode_lines(data)
        except FAULTS:
            lines = None
        if lines is not None and one_a_line(raws, len(lines)):
            yield from self._take(lines, raws)
            return
        self._half = not terminated
        good: list[Line] = []
        their: list[bytes] = []
        for raw in raws:
            line = decoded(raw)
            if line is not None:
                good.append(line)
                their.append(raw)
                continue
            yield from self._take(good, their)
            good, their = [], []
            yield from self._odd(raw)
        yield from self._take(good, their)

    def flush(self) -> Iterator[Event]:
        yield from self._flush_all()
        yield from self._noise.counted()

    def oversized(self, size: int, head: bytes, file: Path | None) -> Iterator[Event]:
        if _RECORD_MARK.search(head):
            self.beats += 1
            reason = f"a RECORD line of {size} bytes is larger than max_record_bytes"
            refused = Reject(self._meant(head), reason, head)
            yield refused if file is None else replace(refused, spool=str(file), size=size)
        else:
            if file is not None:
                file.unlink(missing_ok=True)
            yield from self._noise.noise("oversized_line", head)

    def finished(self) -> Iterator[Event]:
        """Streams that were whole although the tap failed: read anew, and the last that came of
        them is the activation of the version that their records have (L6, L7). Exit code 0 needs
        no such word."""
        for stream in self._activated:
            configured = self._configured.get(stream)
            if configured is not None and configured.sync_mode is SyncMode.full_refresh:
                yield StreamStatus(stream, Status.complete)

    # -- good lines

    def _take(self, lines: Sequence[Line], raws: Sequence[bytes]) -> Iterator[Event]:
        at = 0
        for (kind, name, version), run in groupby(lines, _KIND):
            found = list(run)
            if word(kind) == MessageType.record:
                yield from self._records(name, version, found, raws[at : at + len(found)])
            else:
                for raw in raws[at : at + len(found)]:
                    yield from self._other(raw)
            at += len(found)

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
        number = self._version(version)
        group = self._open.get((stream, number))
        if group is None:
            yield from self._announced(stream)
            group = self._open[(stream, number)] = _Group()
            self._latest[stream] = number
            self._activated.discard(stream)
        yield from broken  # of a stream that is announced by now: it counts them
        group.bodies += bodies
        group.times += map(_TIME_OF, run)

    def unheard(self) -> None:
        """After exit code 0. Raises ``GivenUp`` where nothing at all came of a stream, while
        records came that belong to none: then the names are not understood, and it would not be
        true that the stream is empty (L6)."""
        silent = sorted(s.name for s in self._configured if s not in self._heard)
        if silent and self._strange:
            text = f"nothing came of {', '.join(silent[:_NAMED])}, but records of "
            text += f"{', '.join(sorted(self._strange)[:_NAMED])}, which the catalog does not have"
            raise GivenUp("source.unknown_streams", text)

    def _stream(self, name: Any, count: int) -> Generator[Event, None, StreamId | None]:
        """Whose it is; None, and counted, where it is no configured stream's."""
        if not isinstance(name, str) or not name:
            return None
        try:
            found = self._names.of(name)
        except Ambiguous as e:
            yield from self._flush_all()
            text = f"{e}: the tap's names are not unique"
            raise GivenUp("source.ambiguous_stream", text) from e
        if found is None:
            self._noise.count(f"stream_not_configured:{name[:64]}", count)
        else:
            self._heard.add(found)
        return found

    def _pass_over(self, name: str) -> Iterator[Event]:
        """Taps that do not look at ``selected`` send such records; the state that follows tells of
        them as of others."""
        if name in self._passed:
            return
        self._passed.add(name)
        meant = self._names.unchosen(name)
        if not meant:
            self._strange.add(name[:64])
        for stream in meant or (StreamId(None, name),):
            yield Passed(stream)

    def _version(self, version: Any) -> int | None:
        if version is None or (isinstance(version, int) and not isinstance(version, bool)):
            return version
        try:
            return int(version)
        except (TypeError, ValueError, OverflowError):
            self._noise.count("malformed:version")
            return None

    def _announced(self, stream: StreamId) -> Iterator[Event]:
        event = self._held(stream).schemaless(stream)
        if event is None:
            return
        if self._request.refuses:
            text = f"a record of stream {stream} came before its SCHEMA"
            raise GivenUp("source.record_before_schema", text, stream)
        yield event

    def _held(self, stream: StreamId) -> Told:
        told = self._told.get(stream)
        if told is None:
            told = self._told[stream] = Told(self._configured.get(stream))
        return told

    def _flush_all(self) -> Iterator[Event]:
        groups, self._open = self._open, {}
        for (stream, version), group in groups.items():
            yield _batch(stream, version, group)

    def _flush(self, stream: StreamId) -> Iterator[Event]:
        for key in [k for k in self._open if k[0] == stream]:
            yield _batch(stream, key[1], self._open.pop(key))

    # -- everything else

    def _other(self, raw: bytes) -> Iterator[Event]:
        message = _MESSAGE.decode(raw)
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
                self._noise.count(f"unknown_type:{name}")
                yield from self._once(f"messages of type {name!r} are not known and are skipped")

    def _state(self, message: Message) -> Iterator[Event]:
        blob = text_of(message.value)
        if message.value is ABSENT or blob is None:
            self._noise.count("malformed:STATE")
            yield Log("ERROR", "a STATE message without a value that can be read is not saved")
            return
        yield from self._flush_all()
        yield State(SCOPE, blob)

    def _schema(self, message: Message) -> Iterator[Event]:
        stream = yield from self._stream(message.stream, 1)
        text = text_of(message.schema)
        schema = None if text is None else msgspec.json.decode(text)
        nameless = not isinstance(message.stream, str) or not message.stream
        if self._request.refuses and (nameless or not isinstance(schema, dict | bool)):
            what = "a SCHEMA without a stream" if nameless else f"the SCHEMA of {message.stream!r}"
            raise GivenUp("source.bad_schema", f"{what} is no JSON Schema of a stream")
        if not isinstance(schema, dict | bool):
            self._noise.count("malformed:SCHEMA")
            yield Log("ERROR", f"a SCHEMA of {message.stream!r} is no JSON Schema; it is ignored")
            return
        if stream is None:
            return
        keys, marks = message.key_properties, message.bookmark_properties
        if keys is None:
            yield from self._once(f"stream {stream}: its SCHEMA has no key_properties")
        for what, names in (("key", keys), ("bookmark", marks)):
            for name in strangers(schema, names):
                text = f"stream {stream}: the {what} {name!r} is no property of its schema"
                yield from self._once(text)
        event = self._held(stream).tell(stream, schema, keys, marks)
        self._activated.discard(stream)
        if event is not None:
            yield from self._flush(stream)
            yield event

    def _activate(self, message: Message) -> Iterator[Event]:
        stream = yield from self._stream(message.stream, 1)
        version = self._version(message.version)
        if version is None:
            self._noise.count("malformed:ACTIVATE_VERSION")
            yield Log("ERROR", f"an ACTIVATE_VERSION of {message.stream!r} names no version")
        elif stream is not None:
            yield from self._flush(stream)
            if self._latest.pop(stream, None) == version:
                self._activated.add(stream)
            yield Activate(stream, version)

    def _batch(self, message: Message) -> Iterator[Event]:
        stream = yield from self._stream(message.stream, 1)
        if stream is None:
            if isinstance(message.stream, str) and message.stream:
                yield from self._pass_over(message.stream)
            return
        yield from self._flush(stream)
        yield from self._announced(stream)
        version = self._version(message.version)
        self._latest[stream] = version
        self._activated.discard(stream)
        now = int(time.time() * 1000)
        limit, folder = self._request.max_record_bytes, self._request.spool_folder
        try:
            for found in read_batch(message.encoding, message.manifest, limit, folder):
                if isinstance(found, Faulty):
                    yield Reject(
                        stream, found.reason, found.raw, spool=found.spool, size=found.size
                    )
                else:
                    size = sum(map(len, found))
                    yield Batch(stream, found, [now] * len(found), {}, size, version)
        except BatchError as e:
            text = f"stream {stream}: a batch cannot be read: {e}"
            raise GivenUp("source.batch_unreadable", text, stream) from e

    def _once(self, text: str) -> Iterator[Event]:
        if text not in self._warned:
            self._warned.add(text)
            yield Log("WARN", text)

    # -- bad lines

    def _odd(self, raw: bytes) -> Iterator[Event]:
        """A line that is no message: noise, a message with NaN, or a reject."""
        if not raw.strip():
            self._noise.count("blank_line")
            return
        if not _RECORD_MARK.search(raw):
            kind = "not_a_message" if is_json(raw) else "text_line"
            cover = masked(raw) if kind == "text_line" else None
            if cover is not None and decoded(cover) is not None:
                yield from self._covered(cover)
            else:
                yield from self._noise.noise(kind, raw)
            return
        record = with_python_values(raw)
        if record is not None:
            yield from self._take((record,), (raw,))
            return
        self.beats += 1
        cut = ": the output ended inside it" if self._half else ""
        reason = f"a line that holds a RECORD and is not exactly one message{cut}"
        yield Reject(self._meant(raw), reason, raw)

    def _covered(self, cover: bytes) -> Iterator[Event]:
        """NaN in a SCHEMA bounds nothing that we keep; a state with it cannot be kept as JSON."""
        if word(LINE.decode(cover).type) == MessageType.state:
            self._noise.count("malformed:STATE")
            yield Log("ERROR", "a STATE message with a number that JSON does not have is not saved")
        else:
            yield from self._other(cover)

    def _meant(self, raw: bytes) -> StreamId | None:
        """The stream of a broken record, where only one can be meant."""
        return the_one(streams_named(raw), {*self._configured, *self._told})


def _batch(stream: StreamId, version: int | None, group: _Group) -> Batch:
    times = millis(group.times, int(time.time() * 1000))
    return Batch(stream, group.bodies, times, {}, sum(map(len, group.bodies)), version)
