"""Turns events into sealed segments: decodes buffered records into parts, and seals those that a
state covers.

Pure bookkeeping over a log and decoders: no process, no thread, no protocol, no Spark. The rules
(L2):

* A State covers every record of its scope that was read before it. Covered rows are sealed with
  it; rows after it wait for the next one.
* Rows of a stream that a shared state covers and does not name are sealed with it too, and count as
  not covered: the source will send them again.
* Parts are cut at states, so that a covered part never holds an uncovered row.
* At a clean end the rest is sealed under the previous state; after a failure it is dropped, unless
  its stream reported COMPLETE (L7) or cannot be read again (cdc).

Neighbours: ``engine.worker.lane_events`` feeds it; ``engine.worker.part_writer`` writes its parts;
``engine.log.log`` keeps what it seals.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from penstock.codec.columns import Columns
from penstock.engine.log.log import Log
from penstock.engine.log.rejects import RejectLine, encode_rejects, kept_name, rejects_path
from penstock.engine.specs.failpoints import reach
from penstock.engine.specs.lane import LaneBounds, LaneStream
from penstock.engine.worker.host_states import HostStates
from penstock.engine.worker.part_writer import ImmediatePartWriter, WritePart
from penstock.engine.worker.stream_buffers import (
    REJECT_BYTES,
    Decode,
    EarlierRows,
    OpenStream,
    SealCounts,
    Widen,
    groups,
    joined,
)
from penstock.errors import SourceError
from penstock.model.catalog import StreamId
from penstock.model.events import Batch, Reject, State, Status, StreamStatus
from penstock.model.segments import Segment, SegmentId, StreamSlice
from penstock.model.state import StateScope, StateType


class Sealer:
    """Seals one lane's epoch. Call its methods in the order of events, :meth:`finish` last.
    ``on_data_error``: a rejected record is kept (``dlq``), counted as filtered (``skip``), or
    raises :class:`FatalReject` (``fail``), after which no method may be called."""

    def __init__(
        self,
        log: Log,
        *,
        epoch: int,
        lane: int,
        streams: Sequence[LaneStream],
        decode: Decode,
        clock: Callable[[], float],
        bounds: LaneBounds | None = None,
        now: Callable[[], str] = lambda: "",
        on_data_error: str = "dlq",
        any_status: bool = False,
        write: WritePart | None = None,
        host: HostStates | None = None,
        widen: Widen | None = None,
        whole: bool = False,
    ) -> None:
        """``any_status``: a source that reports STARTED or RUNNING of a stream is expected to
        report COMPLETE too (``penstock serve``). ``write``: how parts are written; None: at once.
        ``host``: gets the states and counts that go back to the program which feeds this one.
        ``widen``: called for the columns that rows lack; None: they are left out. Where it raises,
        nothing more is sealed. ``whole``: the bodies of batches are records as the source sent
        them."""
        self._log, self._epoch, self._lane = log, epoch, lane
        self._decode, self._clock, self._now = decode, clock, now
        self._bounds = bounds or LaneBounds()
        self._on_data_error = on_data_error
        self._open = {s.stream: OpenStream(s) for s in streams}
        self._states: dict[StateScope, str] = {}
        self._keys: dict[StateScope, int] = {}
        self._uncovered: set[StreamId] = set()
        self._pending: dict[StateScope, set[StreamId]] = {}
        self._shared: StateScope | None = None
        self._unnamed: set[StreamId] = set()  # of the streams that the shared state covers
        self._unknown = SealCounts()
        self._buffered = 0
        self._rejects_size = 0
        self._reject_bytes_of: dict[str | None, int] = {}  # bytes of rejects, by stream's key
        self._since_seal = 0
        self._sealed_at = clock()
        self._next_seq, self._next_part, self._next_rejects = 1, 1, 1
        self._shares = 0  # of everything sealed
        self.segments = 0
        self.states = 0
        self.states_of: Counter[StreamId] = Counter()
        self._any_status = any_status
        self._write_part = write or ImmediatePartWriter(log)
        self._reports_ends = False
        self._host = host
        self._widen = widen
        self._whole = whole
        self.widening = False  # rows wait for an answer of ``widen``, or failed to get one

    # -- events

    def batch(self, batch: Batch) -> None:
        """Buffers records, and decodes them into parts once ``part_bytes`` or ``buffer_bytes`` are
        reached."""
        stream = self._open[batch.stream]
        stream.seen = True
        if len(batch.bodies):
            stream.activated = False
            stream.reopened = stream.status is Status.complete
        stream.buffer.append(batch)
        stream.size += batch.size
        self._buffered += batch.size
        self._since_seal += batch.size
        self._uncovered.add(batch.stream)
        if self._host is not None:
            self._host.records(batch.stream, len(batch.bodies))
        if stream.size >= self._bounds.part_bytes:
            # Uncovered rows wait, so that they become one part with the rows that follow. Not where
            # the part before would be small.
            marked = sum(b.size for b in stream.buffer[: stream.marked])
            self._drain(stream, only_marked=marked >= self._bounds.part_bytes // 2)
        elif self._buffered >= self._bounds.buffer_bytes:
            for other in self._open.values():
                if other.buffer:
                    self._drain(other)

    def stream(self, info: LaneStream) -> None:
        """Begins a stream, or continues it under another schema: earlier records are decoded first,
        and sealed in segments of their own. A generation has one schema version, the newest, which
        all of its parts fit."""
        stream = self._open.get(info.stream)
        if stream is None:
            self._open[info.stream] = OpenStream(info)
            return
        self._drain(stream)
        self._go_on(stream, info)

    def drain(self, name: StreamId) -> None:
        """Decodes a stream's buffer, so that its schema is the one that its rows so far need,
        before anything depends on it."""
        if name in self._open:
            self._drain(self._open[name])

    def _go_on(self, stream: OpenStream, info: LaneStream) -> None:
        """Continues a stream under another schema; decoded rows have the earlier one."""
        if _is_live(stream.info, info):
            info = msgspec.structs.replace(
                info, fills_generation=False, requires_complete_status=False
            )
        same = info.fills_generation and info.generation == stream.info.generation
        if not same and not (stream.covered.empty and stream.tail.empty):
            stream.past.append(EarlierRows(stream.info, stream.covered, stream.tail))
            stream.covered, stream.tail = SealCounts(), SealCounts()
        stream.info = info

    def reject(self, reject: Reject) -> None:
        """Counts a reject and keeps its line (L8)."""
        known = self._open.get(reject.stream) if reject.stream is not None else None
        tally = self._unknown if known is None else known.tail
        if known is not None:
            known.seen = True
            tally.read += reject.records or 0
            known.owed += reject.records is None
            self._uncovered.add(known.info.stream)
            if self._host is not None:
                self._host.refused(known.info.stream, reject.records or 0)
        file = None
        if reject.spool is not None:
            path = rejects_path(self._epoch, reject.spool)
            tally.reject_files.append(path)
            file = kept_name(path)
        generation = known.info.generation if known is not None and reject.whole else None
        line = RejectLine.of(
            reject.stream, reject.reason, reject.field, reject.raw, self._now(), file,
            generation=generation, full=known is not None and _in_full(known.info),
        )  # fmt: skip
        self._add_reject(tally, line, reject.records or 0, spooled=reject.size)

    def accompany(self, stream: StreamId, path: str) -> None:
        """Seals a file of the epoch's folder of rejects together with the stream's rows."""
        self._open[stream].tail.reject_files.append(path)

    def state(self, state: State) -> None:
        """Marks everything of the state's scope so far as covered; seals once the bounds are
        reached."""
        self.states += 1
        if self._host is not None:
            self._host.state(state)
        scope = state.scope
        if scope.stream is not None:
            self.states_of[scope.stream] += 1
        if scope.stream is None:
            self._shared = scope
            streams = self._uncovered
            self._uncovered = set()
        else:
            streams = {scope.stream}
            self._uncovered.discard(scope.stream)
        for name in streams if scope.stream is not None else state.named or ():
            if name in self._open:
                self._open[name].seen = True
        for name in streams:
            stream = self._open[name]
            stream.marked = len(stream.buffer)
            for it in (*stream.past, stream):
                it.covered.take(it.tail)
                it.tail = SealCounts()
        pending = self._pending.setdefault(scope, set())
        pending.update(streams)
        if scope.stream is None:
            self._unnamed = set() if state.named is None else pending - state.named
        self._states[scope] = state.blob
        self._keys[scope] = max(state.keys, self._keys.get(scope, 0))
        self.tick()

    def status(self, status: StreamStatus) -> None:
        """Records the status that the source reported for a stream."""
        last = status.status in (Status.complete, Status.incomplete)
        self._reports_ends |= last or self._any_status
        stream = self._open.get(status.stream)
        if stream is not None:
            stream.seen = True
            stream.status, stream.reopened = status.status, False
            stream.keys = max(stream.keys, status.keys)

    def withhold(self, name: StreamId) -> None:
        """Leaves a stream incomplete, however its source ends."""
        if name in self._open:
            self._open[name].in_doubt = True

    def unseen_refreshes(self) -> tuple[StreamId, ...]:
        """Returns the streams that fill a generation and for which no record, state or status
        came."""
        found = (n for n, s in self._open.items() if s.info.fills_generation and not s.seen)
        return tuple(sorted(found))

    def refreshed_as(self, name: StreamId, version: int) -> None:
        """Records the version under which the source sends the rows of a full refresh."""
        self._open[name].refreshed_as = version

    def refreshed(self, name: StreamId, version: int) -> None:
        """Marks a full refresh complete if ``version`` is that of its last rows, until more rows
        come: a source may also announce a version before its rows (L6)."""
        stream = self._open[name]
        stream.activated = stream.refreshed_as in (None, version)

    def activate(self, live: LaneStream) -> None:
        """Completes the version that was being read; its further rows are visible at once."""
        stream = self._open[live.stream]
        self._drain(stream)
        stream.past.append(EarlierRows(stream.info, stream.covered, stream.tail, complete=True))
        stream.covered, stream.tail = SealCounts(), SealCounts()
        stream.info = live
        self._uncovered.add(live.stream)

    def tick(self) -> None:
        """Seals what is covered, once the bounds are reached."""
        due = (
            self._since_seal >= self._bounds.seal_bytes
            or self._clock() - self._sealed_at >= self._bounds.seal_seconds
        )
        if due and self._states:
            self.seal()

    def seal(self) -> None:
        """Seals everything that a state covers, each scope as a segment, all in one step."""
        segments: list[Segment] = []
        for scope, blob in self._states.items():
            streams = [self._open[s] for s in sorted(self._pending[scope], key=lambda s: s.key)]
            again = [s for s in streams if self._sent_again(scope, s)]
            if again:
                segments += self._covered_segments(scope, again, None, exact=False)
            others = [s for s in streams if s not in again]
            segments += self._covered_segments(scope, others, blob)
        if self._host is not None:
            self._host.decoded()
        self._states.clear()
        self._keys.clear()
        self._pending.clear()
        self._write(segments)

    def finish(self, *, clean: bool) -> dict[StreamId, bool]:
        """Seals what may be sealed at the source's end (``clean``: exit code 0). Returns for each
        stream whether it is complete (L6): its status decides; exit code 0 decides where the source
        reports no stream's end."""
        if self.widening:
            return dict.fromkeys(self._open, False)
        complete = {name: self._done(s, clean=clean) for name, s in self._open.items()}
        if self._states:
            self.seal()
        keep = [s for n, s in self._open.items() if clean or complete[n] or s.info.consumes]
        shared = [s for s in keep if self._shared is not None]
        single = [s for s in keep if self._shared is None]
        segments: list[Segment] = []
        for stream in single:
            scope = StateScope(StateType.stream, stream.info.stream)
            segments += self._rest(scope, [stream], clean=clean)
        if shared and self._shared is not None:
            segments += self._rest(self._shared, shared, clean=clean)
        segments = [s for s in segments if s.slices or s.rejects]
        if not self._unknown.empty:
            files: list[str] = []
            self._flush_rejects(self._unknown, files)
            segments.append(self._segment(None, [], None, files))
        self._write(segments)
        return complete

    # -- inside

    def _done(self, stream: OpenStream, *, clean: bool) -> bool:
        """Whether the stream is complete. A report of a failed source before its last rows does not
        count: there may be more of them."""
        if stream.in_doubt:
            return False
        if clean:
            return stream.complete or self._ended_whole(stream)
        return stream.complete and not stream.reopened

    def _ended_whole(self, stream: OpenStream) -> bool:
        """Whether exit code 0 completes the stream: not where the source reports the end of other
        streams and not of this one. A report that a stream began is no report of its end."""
        info = stream.info
        cut = info.requires_state and info.stream in self._uncovered
        return not (self._reports_ends or info.requires_complete_status or cut)

    def _sent_again(self, scope: StateScope, stream: OpenStream) -> bool:
        info = stream.info
        return scope.stream is None and info.stream in self._unnamed and info.read_again

    def _covered_segments(
        self, scope: StateScope, streams: list[OpenStream], state: str | None, *, exact: bool = True
    ) -> list[Segment]:
        """Returns segments of the covered rows of these streams; the last one has the state."""
        for stream in streams:  # decoding may end an earlier schema
            self._drain(stream, only_marked=True)
        past = self._past_segments(scope, streams)
        slices: list[StreamSlice] = []
        rejects: list[str] = []
        for stream in streams:
            tally, stream.covered = stream.covered, SealCounts()
            slices.append(self._slice(stream.info, tally, complete=False, files=rejects))
        keys = 0 if state is None else self._keys.get(scope, 0)
        last = self._segment(scope, slices, state, rejects, exact=exact, keys=keys)
        return [*(msgspec.structs.replace(s, exact=exact) for s in past), last]

    def _past_segments(self, scope: StateScope, streams: list[OpenStream]) -> list[Segment]:
        """Returns segments of the covered rows that these streams read under earlier schemas. They
        are sealed in the same step as the segment that follows, which alone has the state.
        Uncovered rows stay."""
        segments: list[Segment] = []
        for depth in range(max((len(s.past) for s in streams), default=0)):
            slices: list[StreamSlice] = []
            rejects: list[str] = []
            for past in (s.past[depth] for s in streams if depth < len(s.past)):
                if not past.covered.empty or (past.complete and past.done):
                    complete = past.complete and past.done
                    slices.append(
                        self._slice(past.info, past.covered, complete=complete, files=rejects)
                    )
                    past.covered = SealCounts()
            if slices:
                segments.append(self._segment(scope, slices, None, rejects))
        for stream in streams:
            stream.past = [p for p in stream.past if not p.done]
        return segments

    def _rest(self, scope: StateScope, streams: list[OpenStream], *, clean: bool) -> list[Segment]:
        """Returns segments of the rows that no state covers, sealed under the previous state."""
        inexact = False
        for stream in streams:
            self._drain(stream)
        for past in (p for s in streams for p in s.past):
            inexact |= past.info.read_again and not past.info.disposition.retried
            past.covered.take(past.tail)
            past.tail = SealCounts()
        before = self._past_segments(scope, streams)
        before = [msgspec.structs.replace(s, exact=not inexact) for s in before]
        slices: list[StreamSlice] = []
        rejects: list[str] = []
        for stream in streams:
            done = self._done(stream, clean=clean)
            if stream.tail.empty and not done:
                continue
            again = stream.info.read_again and not stream.info.disposition.retried
            inexact |= stream.tail.records and again
            slices.append(self._slice(stream.info, stream.tail, complete=done, files=rejects))
        keys = 0 if scope.stream is None else self._open[scope.stream].keys
        last = self._segment(scope, slices, None, rejects, exact=not inexact, keys=keys)
        return [*before, last]

    def _slice(
        self, info: LaneStream, tally: SealCounts, *, complete: bool, files: list[str]
    ) -> StreamSlice:
        self._flush_rejects(tally, files)
        full_refresh = info.fills_generation and info.version is None
        return StreamSlice(
            stream=info.stream,
            disposition=info.disposition,
            schema_version=info.schema_version,
            generation=info.generation,
            fills_generation=info.fills_generation,
            parts=tuple(part() for part in tally.parts),
            read=tally.read,
            rejected=tally.rejected,
            filtered=tally.filtered,
            keys=tuple(sorted(tally.keys.items())),
            complete=complete,
            shard=info.shard,
            version=info.version if info.fills_generation else None,
            refreshed_as=self._open[info.stream].refreshed_as if full_refresh else None,
        )

    def _segment(
        self,
        scope: StateScope | None,
        slices: list[StreamSlice],
        state: str | None,
        rejects: list[str],
        exact: bool = True,
        keys: int = 0,
    ) -> Segment:
        seq = self._next_seq
        self._next_seq += 1
        return Segment(
            id=SegmentId(self._epoch, seq),
            lane=self._lane,
            scope=scope,
            slices=tuple(slices),
            state=state,
            exact=exact,
            rejects=tuple(rejects),
            keys=keys,
        )

    def _write(self, segments: list[Segment]) -> None:
        if segments:
            linked: list[Segment] = []
            for segment in segments:
                linked.append(msgspec.structs.replace(segment, before=self._shares))
                self._shares += segment.shares
            self._log.seal(self._epoch, linked)
            reach("after-seal")
        self.segments += len(segments)
        self._since_seal = 0
        self._sealed_at = self._clock()

    def _drain(self, stream: OpenStream, *, only_marked: bool = False) -> None:
        """Decodes the buffer into parts, cut where the covered rows end."""
        marked, rest = stream.buffer[: stream.marked], stream.buffer[stream.marked :]
        self._decode_into(stream, marked, covered=True)
        if not only_marked:
            self._decode_into(stream, rest, covered=False)
            rest = []
        stream.buffer, stream.marked = rest, 0
        self._buffered -= stream.size
        stream.size = sum(b.size for b in rest)
        self._buffered += stream.size

    def _decode_into(self, stream: OpenStream, batches: list[Batch], *, covered: bool) -> None:
        for group in groups(batches):
            self._decode_group(stream, group, covered=covered)

    def _decode_group(self, stream: OpenStream, batches: list[Batch], *, covered: bool) -> None:
        if not batches:
            return
        bodies, times, changes = joined(batches)
        first = stream.seq
        decoded = self._decode(stream.info.stream, bodies, first, times, changes)
        if decoded.missing is not None and self._widen is not None:
            self.widening = True
            self._go_on(stream, self._widen(stream.info.stream, decoded.missing))
            self.widening = False
            decoded = self._decode(stream.info.stream, bodies, first, times, changes)
        tally = stream.covered if covered else stream.tail
        stream.seq += len(bodies)
        tally.read += sum(b.read for b in batches)
        tally.filtered += sum(b.filtered for b in batches)
        tally.cover(key for b in batches for key in b.keys)
        made = any(b.stands_for is not None for b in batches)
        whole = self._whole and not made and not isinstance(bodies, Columns)
        for index, reason, name in decoded.rejects:
            line = RejectLine.of(
                stream.info.stream, reason, name, bytes(bodies[index]), self._now(),
                generation=stream.info.generation if whole else None, full=_in_full(stream.info),
            )  # fmt: skip
            self._add_reject(tally, line, 0 if made else 1)
            if self._host is not None:
                self._host.misfit(stream.info.stream, first + index)
            stream.owed += made
        self._count_owed(stream, tally)
        if decoded.count:
            size = sum(b.size for b in batches)
            name = f"{self._next_part:06d}"
            self._next_part += 1
            tally.parts.append(
                self._write_part(self._epoch, name, decoded.rows, size, stream.info.layout)
            )
            reach("mid-part")

    def _count_owed(self, stream: OpenStream, tally: SealCounts) -> None:
        """Counts rejects of a transform's rows as rejected source records, at most as many as were
        read: the source record of such a row is unknown (L8)."""
        counted = max(min(stream.owed, tally.read - tally.rejected - tally.filtered), 0)
        stream.owed -= counted
        self._count_rejected(tally, counted)

    def _count_rejected(self, tally: SealCounts, records: int) -> None:
        if self._on_data_error == "skip":
            tally.filtered += records
        else:
            tally.rejected += records

    def _add_reject(
        self, tally: SealCounts, line: RejectLine, records: int, *, spooled: int = 0
    ) -> None:
        """Keeps a reject according to ``on_data_error``. ``records``: source records that it counts
        as now. ``spooled``: bytes of its file."""
        if self._on_data_error == "fail":
            raise refused(line)
        self._count_rejected(tally, records)
        if self._on_data_error == "skip":
            return
        self._within_quota(line, spooled)
        tally.rejects.append(line)
        size = REJECT_BYTES + len(line.body)
        tally.reject_size += size
        self._rejects_size += size
        if self._rejects_size >= self._bounds.reject_bytes:
            for stream in self._open.values():
                for it in (*stream.past, stream):
                    self._flush_rejects(it.covered, it.covered.reject_files)
                    self._flush_rejects(it.tail, it.tail.reject_files)
            self._flush_rejects(self._unknown, self._unknown.reject_files)

    def _within_quota(self, line: RejectLine, spooled: int) -> None:
        """Raises :class:`FatalReject` where a stream's rejects exceed ``reject_quota``: a source
        whose records are all rejected must not fill the log's disk, and no record may be lost
        silently (L8)."""
        stream = line.stream
        size = self._reject_bytes_of.get(stream, 0) + line.size + spooled
        if size > self._bounds.reject_quota:
            raise too_many(line, self._bounds.reject_quota)
        self._reject_bytes_of[stream] = size

    def _flush_rejects(self, tally: SealCounts, files: list[str]) -> None:
        """Writes the tally's rejects that are in memory, and adds all its reject files to
        ``files``."""
        if tally.rejects:
            name = f"{self._next_rejects:06d}"
            self._next_rejects += 1
            path = self._log.write_rejects(self._epoch, name, encode_rejects(tally.rejects))
            tally.rejects = []
            self._rejects_size -= tally.reject_size
            tally.reject_size = 0
            tally.reject_files.append(path)
        if files is not tally.reject_files:
            files += tally.reject_files


class FatalReject(SourceError):
    """Raised for a reject that fails the run, by ``on_data_error`` or ``reject_quota``."""


def too_many(line: RejectLine, quota: int) -> FatalReject:
    """Returns the error for a stream whose rejects exceed ``quota`` bytes."""
    whose = "that name no stream" if line.stream is None else f"of {line.stream}"
    return FatalReject(
        f"more than {quota} bytes of records {whose} were rejected in one run of a stream; the last"
        f" one: {line.reason}",
        code="source.dead_letters",
        hint="`penstock rejects` shows why; raise limits.max_dead_letters of this connector if "
        "that is intended",
        stream=line.stream,
    )


def refused(line: RejectLine) -> FatalReject:
    """Returns the error for a rejected record."""
    where = f", field {line.field}" if line.field else ""
    stream = line.stream
    whose = f" of {stream}" if stream else ""
    return FatalReject(
        f"a record{whose} is refused: {line.reason}{where}",
        code="source.data",
        hint="`on_data_error: dlq` of the destination (in the --config of `penstock serve`) keeps "
        "such records where `penstock rejects` shows them",
        stream=stream,
    )


def _in_full(info: LaneStream) -> bool:
    """Whether the stream is read in full each time; a refresh is read in full once."""
    return info.fills_generation and not info.disposition.refreshes


def _is_live(before: LaneStream, now: LaneStream) -> bool:
    """Whether the stream continues in an activated version: an answer of the driver may be older
    than the activation."""
    same = now.version is not None and now.version == before.version
    return same and now.generation == before.generation and not before.fills_generation
