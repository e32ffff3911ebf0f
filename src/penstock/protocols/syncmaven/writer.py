"""Carries out a whole write: streams to processes, results to acks.

A stream has one process at a time (or ``parallelism`` of them), from its first row to a checkpoint
or its end. Only rows counted in their ``stream-result``s are acknowledged, once each process has
given one. A state mark is acked once every row before it, of the streams that it covers, is in such
results, was rejected, or was skipped by policy. Exit code 0 may replace a result (``exit_ack``).
What the connector stored before such a result goes with the ack (``stream_keys``). A stream that
fails or halts gets nothing more, and the others go on (L7). Not here: processes (``sessions``),
lines (``outgoing``), which rows failed (``failed_rows``). Source: reference §1.4, §1.5.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import closing, suppress

from penstock.byte_queue import ByteQueue, QueueAbandoned, QueueEnd, TooLong, WriterFailed
from penstock.errors import Defect, DestinationError
from penstock.model.catalog import StreamId
from penstock.model.events import ConnectorExited, Error, LogEvent, SkippedItems, StreamHalted, Tick
from penstock.model.state import StateType
from penstock.protocols.syncmaven.counters import contradiction, missing
from penstock.protocols.syncmaven.exit_ack import exit_ack, lacks_result
from penstock.protocols.syncmaven.failed_rows import FailedRows, Found
from penstock.protocols.syncmaven.host import Host
from penstock.protocols.syncmaven.messages import (
    HaltMessage,
    Result,
    StreamSpec,
    StreamSpecs,
    start_stream,
)
from penstock.protocols.syncmaven.outgoing import Encoded, StreamEncoder, tells_full_refresh
from penstock.protocols.syncmaven.session import Session
from penstock.protocols.syncmaven.sessions import RowRate, Sessions
from penstock.protocols.syncmaven.state_store import sync_id
from penstock.protocols.syncmaven.stream_keys import StreamKeys
from penstock.protocols.syncmaven.stream_specs import StreamChoice, check_removals, option_problems
from penstock.protocols.writing import (
    END,
    EXIT_ACK,
    Ack,
    Answer,
    Feed,
    GivesResults,
    Rows,
    StateMark,
    StreamAck,
    StreamDone,
    WriteRequest,
    WriteStream,
)

AHEAD_BYTES = 16 << 20  # of lines that wait to be written
_MARK_BYTES = 256
_JOIN_SECONDS = 60.0  # for the batch that is being encoded
ISOLATE_EVERY = 1000  # rows between checkpoints, where failed rows are isolated

_Item = Encoded | StateMark | StreamDone


class _Stream:
    """The progress of one stream in this write. ``fed``: its rows so far; ``settled``: how many of
    these are finished; ``over``: it gets nothing more. ``fault``: why nothing of it can be sent,
    whatever its rows are."""

    def __init__(
        self,
        stream: WriteStream,
        spec: StreamSpec,
        encoder: StreamEncoder,
        fault: DestinationError | None,
    ) -> None:
        self.stream, self.spec, self.encoder, self.fault = stream, spec, encoder, fault
        self.sessions: Sessions | None = None
        self.keys: StreamKeys | None = None
        self.lines = defaultdict[int, list[bytes]](list)  # sent, where failed rows are isolated
        self.started = 0  # processes
        self.fed = self.settled = 0
        self.over = False

    @property
    def covered(self) -> int:
        """The number of its rows that may be acknowledged."""
        return self.settled if self.over or self.sessions is not None else self.fed

    def close(self) -> None:
        """Ends its processes, then the server of their keys."""
        sessions, self.sessions = self.sessions, None
        keys, self.keys = self.keys, None
        try:
            if sessions is not None:
                sessions.close()
        finally:
            if keys is not None:
                keys.close()


class Writer:
    """One write. ``specs``: the destination's streams."""

    def __init__(self, host: Host, request: WriteRequest, specs: StreamSpecs) -> None:
        self._host, self._request = host, request
        self._policy = str(request.options.get("on_failed_rows", "fail"))
        every = request.options.get("checkpoint_every")
        self._every = ISOLATE_EVERY if every is None and self._policy == "isolate" else every
        rate = request.options.get("rows_per_second")
        self._pace = None if rate is None else RowRate(rate)
        self._asked: dict[StreamId, WriteStream] = {}
        self._choice = StreamChoice(specs)
        self._by_page = specs.by_page
        self._gives_results = request.gives_results
        for stream in request.streams:
            self._announced(stream)
        self._streams: dict[StreamId, _Stream] = {}
        self._marks: list[tuple[StateMark, dict[StreamId, int]]] = []
        self._kept: dict[str, int] = {}  # key scope -> the last checkpoint that may be acked
        self._queue: ByteQueue[_Item] = ByteQueue(AHEAD_BYTES)
        self._began = time.monotonic()
        self._failed = self._halted = False
        self._tail = ""

    def answers(self, feed: Iterator[Feed]) -> Iterator[Answer]:
        """Implements ``DestinationConversation.write``; an exception of the feed is raised here."""
        thread = threading.Thread(target=self._draw, args=(feed,), name="feed", daemon=True)
        thread.start()
        try:
            yield from self._carry_out()
        finally:
            self._queue.abandon()
            for one in list(self._streams.values()):
                one.close()
            thread.join(_JOIN_SECONDS)
        yield from self._last_acks()
        yield ConnectorExited(1 if self._failed else 0, self._tail)

    # -- the thread that draws the feed

    def _draw(self, feed: Iterator[Feed]) -> None:
        try:
            for item in feed:
                for made in self._made(item):
                    self._queue.put(made, made.size if isinstance(made, Encoded) else _MARK_BYTES)
            self._queue.end()
        except QueueAbandoned:
            return
        except BaseException as e:  # raised in the caller's thread
            self._queue.fail(e)

    def _made(self, item: Feed) -> Iterator[_Item]:
        match item:
            case Rows():
                one = self._stream(item.stream)
                if one.fault is None:
                    yield from one.encoder.encode(item)
                else:
                    yield Encoded(item.stream, [], item.batch.num_rows, [], fault=one.fault)
            case StateMark() | StreamDone():
                yield item
            case WriteStream():
                self._announced(item)
                if item.id in self._streams:
                    self._streams[item.id].encoder.changed(item)
            case Tick():
                return

    def _stream(self, stream: StreamId) -> _Stream:
        found = self._streams.get(stream)
        if found is None:
            asked = self._asked.get(stream)
            if asked is None:
                raise Defect(f"stream {stream} was not announced", code="syncmaven.stream")
            fault: DestinationError | None = None
            try:
                spec = self._spec_of(asked)
            except DestinationError as e:
                spec, fault = StreamSpec(asked.target.name), e
            encoder = StreamEncoder(
                asked,
                spec,
                nulls=str(self._request.options.get("nulls", "auto")),
                on_data_error=self._request.on_data_error,
                checkpoint_every=self._every,
                most_rows=None if self._pace is None else self._pace.most_rows,
                parallelism=int(self._request.options.get("parallelism", 1)),
            )
            found = self._streams[stream] = _Stream(asked, spec, encoder, fault)
        return found

    def _announced(self, stream: WriteStream) -> None:
        """Reserves the destination's stream for a stream from its announcement on, so that a stream
        which the pipeline names comes before one with only old rows."""
        self._asked[stream.id] = stream
        with suppress(DestinationError):  # reported once there are rows
            self._choice.spec_of(stream)

    def _spec_of(self, stream: WriteStream) -> StreamSpec:
        """Returns the spec. Raises ``DestinationError`` where the stream cannot be written as
        configured."""
        spec = self._choice.spec_of(stream)
        faults = option_problems(spec, stream.options)
        if faults:
            raise DestinationError(
                faults[0],
                code="destination.options",
                hint=f"see the streamOptions of {spec.name!r} in `penstock spec`",
                stream=str(stream.id),
            )
        check_removals(spec, stream)
        return spec

    # -- the thread that talks

    def _carry_out(self) -> Iterator[Answer]:
        while True:
            item = yield from self._next()
            match item:
                case QueueEnd():
                    break
                case Encoded():
                    yield from self._rows(self._streams[item.stream], item)
                case StateMark():
                    scope = item.state.scope
                    only = scope.stream if scope.type is StateType.stream else None
                    at = {
                        s: one.fed
                        for s, one in list(self._streams.items())
                        if only is None or s == only
                    }
                    self._marks.append((item, at))
                case StreamDone(stream):
                    if stream in self._streams:
                        yield from self._end(self._streams[stream])
                        self._streams[stream].close()
            yield from self._acks()
        for one in list(self._streams.values()):
            yield from self._end(one)
            yield from self._acks()

    def _next(self) -> Generator[Answer, None, "_Item | QueueEnd"]:
        """Returns the next item, as the generator's value; yields the output of open processes
        meanwhile."""
        while True:
            self._in_time()
            try:
                return self._queue.get(self._request.tick)
            except WriterFailed as e:
                raise e.cause from None
            except TooLong:
                for one in list(self._streams.values()):
                    if one.sessions is not None:
                        yield from one.sessions.listen()
                        yield from self._look(one)
                yield Tick()

    def _in_time(self) -> None:
        total = self._request.timeouts.total
        if total is not None and time.monotonic() - self._began > total:
            raise DestinationError(
                f"the destination was still running after {total:g} s",
                code="destination.timeout",
                hint="if it is only slow, raise timeouts.total",
            )

    def _rows(self, one: _Stream, item: Encoded) -> Iterator[Answer]:
        one.fed += item.fed
        if one.over:
            return
        if item.fault is not None:
            yield from self._fail(one, item.fault)
            return
        yield from item.rejects
        if item.left_out:
            yield SkippedItems("row_type", item.left_out, one.stream.id)
        for what, count in (+item.doubtful).items():
            yield SkippedItems(what, count)
        if item.shares:
            if one.sessions is None:
                if one.started == 0 and (why := one.encoder.undivided) is not None:
                    yield LogEvent("WARN", f"{one.stream.id}: one process has the rows, {why}")
                one.sessions = self._sessions(one)
            if one.sessions.fault is None:
                yield from one.sessions.send(item.shares)
            if self._policy == "isolate":
                for share in item.shares:
                    one.lines[share.part].append(bytes(share.lines))
            yield from self._look(one)
        if item.ends:
            yield from self._end(one)

    def _sessions(self, one: _Stream) -> Sessions:
        """Returns the processes for the stream's next rows, up to a checkpoint."""
        return Sessions(lambda: self._session(one), self._pace)

    def _session(self, one: _Stream) -> Session:
        """Makes a process. Only the first one may get the flag that its rows are complete: the next
        one would drop the rows of the first."""
        stream = one.stream
        if one.keys is None:
            one.keys = self._host.open_keys(stream.id)
        environment = {} if one.keys is None else one.keys.environment()
        start = start_stream(
            one.spec.name,
            self._request.config,
            stream.options,
            sync_id(self._request.pipeline, stream.id),
            full_refresh=tells_full_refresh(stream) and one.started == 0,
        )
        one.started += 1
        runtime = self._host.runtime(environment)
        by_exit = exit_ack(
            self._request.acks, by_page=self._by_page, gives_results=self._gives_results
        )
        return Session(runtime, self._request.timeouts, start, by_exit)

    def _look(self, one: _Stream) -> Iterator[Answer]:
        """Stops the stream where one of its processes ended or halted without a result."""
        fault = None if one.sessions is None else one.sessions.fault
        if one.sessions is not None and fault is not None:
            yield from self._learn(one.sessions)
            yield from self._stop(one, fault)

    def _learn(self, sessions: Sessions) -> Iterator[Answer]:
        """Notes once that the destination gives results, good or bad."""
        if sessions.gave_result and not self._gives_results:
            self._gives_results = True
            yield GivesResults()

    def _stop(self, one: _Stream, fault: DestinationError | HaltMessage) -> Iterator[Answer]:
        """Sends nothing more of the stream: the destination wants no more rows, or it failed."""
        if isinstance(fault, HaltMessage):
            yield from self._halt(one, fault)
        else:
            yield from self._fail(one, fault)

    def _end(self, one: _Stream) -> Iterator[Answer]:
        """Ends the stream for now: a checkpoint."""
        sessions = one.sessions
        if sessions is None:
            return
        with closing(sessions):
            yield from sessions.end()
            self._tail = sessions.stderr_tail
            yield from self._learn(sessions)
        if sessions.fault is not None:
            yield from self._look(one)
            return
        one.sessions = None
        lines = dict(one.lines)
        one.lines.clear()
        for part, rows, result in sessions.results:
            fault = yield from self._judge(one, result, rows, lines.get(part, []))
            if fault is not None:
                yield from self._stop(one, fault)
                return
        one.settled = one.fed
        if one.keys is not None and (number := one.keys.checkpoint()):
            self._kept[one.keys.scope] = number

    def _judge(self, one: _Stream, result: Result, rows: int, lines: list[bytes]) -> Found:
        """Returns why a result does not cover its rows, as the generator's value; None: it does."""
        id_, failed = one.stream.id, rows - result.success - result.skipped
        if not result.counted:
            if self._gives_results:
                return lacks_result(id_)
            yield SkippedItems(EXIT_ACK, rows)
            yield LogEvent("INFO", f"{id_}: {rows} rows are acknowledged by exit code 0")
            return None
        yield LogEvent(
            "INFO",
            f"{id_}: of {rows} rows the destination received {result.received}, took"
            f" {result.success}, left out {result.skipped}, failed {result.failed}",
        )
        fault = contradiction(result, rows, id_)
        if fault is None and self._policy == "accept":
            fault = missing(result, rows, id_)
        if fault is not None:
            return fault
        if failed and self._policy == "isolate":
            finder = FailedRows(one.encoder, id_, lambda: self._sessions(one))
            return (yield from finder.find(lines))
        if failed and self._policy == "fail":
            known = "" if result.failed == failed else ", or are missing in its counters"
            return DestinationError(
                f"{id_}: {failed} of {rows} rows failed at the destination{known}",
                code="destination.rows_failed",
                hint="its log may name them; `on_failed_rows: isolate` finds them and keeps them"
                " as rejects, `accept` leaves them out",
                stream=str(id_),
            )
        if failed:
            yield SkippedItems("failed_at_destination", failed, id_)
        if result.skipped:
            yield SkippedItems("skipped_by_destination", result.skipped, id_)
        return None

    def _halt(self, one: _Stream, halt: HaltMessage) -> Iterator[Answer]:
        said = halt.message or "without a reason"
        if halt.ok:
            self._over(one)
            self._halted = True
            yield StreamHalted(one.stream.id, f"the destination stopped {one.stream.id}: {said}")
            return
        error = DestinationError(
            f"the destination halted: {said}",
            code="destination.halted",
            hint="what it had acknowledged is kept; run again to send the rest",
            stream=str(one.stream.id),
            connector={"message": halt.message, "data": halt.data},
        )
        yield from self._fail(one, error)

    def _fail(self, one: _Stream, error: DestinationError) -> Iterator[Answer]:
        self._over(one)
        self._failed = True
        yield Error(
            error.message,
            "system_error",
            one.stream.id,
            error.connector or {},
            code=error.code,
            hint=error.hint,
        )

    def _over(self, one: _Stream) -> None:
        one.over = True
        one.lines.clear()
        if one.sessions is not None:
            self._tail = one.sessions.stderr_tail or self._tail
        one.close()

    def _last_acks(self) -> Iterator[Answer]:
        """Yields the final acks of what the results cover, with a state mark after it or
        without."""
        if not self._failed and not self._halted:
            yield self._ack(END)
            return
        over = {stream for stream, one in self._streams.items() if one.over}
        for stream in self._asked:
            if stream not in over:
                yield StreamAck(stream, tuple(self._kept.items()))

    def _ack(self, seq: int) -> Ack:
        return Ack(seq, tuple(self._kept.items()))

    def _acks(self) -> Iterator[Answer]:
        """Yields an ack for every mark whose rows are all covered, unless an earlier one of its
        scope waits."""
        waiting: list[tuple[StateMark, dict[StreamId, int]]] = []
        held: set[str] = set()
        for mark, at in self._marks:
            scope = mark.state.scope.key
            covered = all(self._streams[s].covered >= fed for s, fed in at.items())
            if covered and scope not in held:
                yield self._ack(mark.seq)
            else:
                held.add(scope)
                waiting.append((mark, at))
        self._marks = waiting
