"""Runs one sync as a state machine in the driver: recover, read, drain (docs/architecture.md).

Decides what happens next. Not here: sealed segments (``engine.sync.backlog``), the processes of
lanes (a :class:`LaneRunner`), how rows reach their destination (an
``engine.deliver.delivery.Delivery``), the plan of streams that a source sends while it is read (a
:class:`StreamPlanner`). Single-threaded; every collaborator may be an in-memory twin.
"""

from collections.abc import Collection
from typing import Any

import msgspec

from penstock.engine.deliver.delivery import Delivery
from penstock.engine.deliver.session import SyncSession
from penstock.engine.plan.pending_refreshes import left_out
from penstock.engine.specs.lane import LaneEnd, LaneQuestion, LaneResult
from penstock.engine.specs.plan import (
    ContinuedStream,
    LaneStart,
    PlannedStream,
    SyncOutcome,
    SyncPlan,
)
from penstock.engine.sync.backlog import Backlog
from penstock.engine.sync.epochs import Epochs
from penstock.engine.sync.ports import (
    Discovery,
    DiscoveryDone,
    LaneHandle,
    LaneRunner,
    RetriedRecords,
    StreamPlanner,
    Time,
)
from penstock.engine.sync.progress import SyncProgress
from penstock.engine.sync.unread import settle_unread
from penstock.errors import Cancelled, LeaseLost, PenstockError, StateError
from penstock.model.catalog import StreamId
from penstock.store.remembered import Remembered

_SHOWN = 10


class _Running(msgspec.Struct):
    """A lane that runs. ``result``: of a lane that has ended and waits until its catalogue is
    confirmed."""

    start: LaneStart
    handle: LaneHandle
    result: LaneResult | None = None


class SyncRun:
    """One sync. :meth:`run` runs it once."""

    def __init__(
        self,
        plan: SyncPlan,
        session: SyncSession,
        delivery: Delivery,
        runner: LaneRunner,
        planner: StreamPlanner,
        time: Time,
        discovery: Discovery | None = None,
        retried: RetriedRecords | None = None,
    ) -> None:
        """``retried``: what the lane reads in place of the source."""
        self._retried = retried
        self._discovery: Discovery = discovery or DiscoveryDone()
        self._found: str | None = None  # what a discovery of this run gives to the source
        self._undiscovered = False  # the discovery failed
        self._unsure: set[int] = set()  # epochs that were begun during the discovery
        self._log = session.log
        self._plan, self._delivery, self._runner, self._planner = plan, delivery, runner, planner
        self._observer, self._time, self._failures = session.observer, time, session.failures
        self._progress = SyncProgress(session, {s.id: s for s in plan.streams})
        self._streams, self._complete = self._progress.streams, self._progress.complete
        self._shards: dict[StreamId, set[int]] = {}  # lanes that have read their shard
        self._met: dict[tuple[int, StreamId], int] = {}  # generations of streams met in an epoch
        self._running: dict[int, _Running] = {}
        self._stopped = False  # a stop of the lanes was requested
        self._backlog = Backlog(plan, self._progress, delivery, meanwhile=self)
        self._epochs = Epochs(plan, self._progress, self._backlog)

    def run(self) -> SyncOutcome:
        """Recovers, reads and drains; returns the outcome. Raises only what stops everything: a
        lost lease, an error of the store or the log."""
        kind = self._progress.state_types()
        self._backlog.unconfirmed = self._log.unconfirmed()
        if self._backlog.unconfirmed and not self._discovery.beside:
            self._backlog.settle_unconfirmed(self._discovery.given)
        self.recover()
        self._wait_for_discovery()
        self._backlog.published.clear()  # of earlier syncs
        if not (self._changed() or self._undiscovered):
            self._read()
        self._backlog.close_all()
        if self._changed() and not self._progress.cancelled:
            return self._given_another()
        if self._progress.cancelled:
            self._delivery.stop()
        else:
            self._backlog.drain()
            self._delivery.source_done(sorted(self._whole_streams()))
            self._backlog.settle()
            self._backlog.give_up_refused()
            self._backlog.drop_old()
        self._progress.note_new_type(kind)
        failures = self._failures
        if self._backlog.note_held() and not self._progress.cancelled:
            self._say_what_holds()
        complete = self._whole_streams() - self._backlog.left()
        return SyncOutcome(
            complete=complete,
            failed=failures.failed,
            errors=failures.errors,
            halted=self._halted() - complete,
            cancelled=self._progress.cancelled,
        )

    def _say_what_holds(self) -> None:
        """Adds the error of rows that wait for refreshes of streams that this run does not read."""
        refreshes = self._progress.refreshes()
        left = [s for s, r in sorted(refreshes.items()) if r.pending and s not in self._streams]
        if left:
            self._failures.errors.append(left_out(self._progress.session.pipeline, left))

    def _given_another(self) -> SyncOutcome:
        """Ends a sync whose source is now given another catalogue."""
        self._backlog.settle()
        self._backlog.drop_old()
        return SyncOutcome(complete=set(), failed={}, errors=[], changed=True)

    def _halted(self) -> set[StreamId]:
        """Returns the streams that the destination halted, and those that cannot continue without
        them: streams of the same state, and streams of a source that cannot read the others
        alone."""
        found = self._failures.halted
        alone = not self._failures.shared_halted and not self._plan.open
        return found if alone or not found else found | self._streams.keys()

    def _whole_streams(self) -> set[StreamId]:
        """Returns the streams that the source has completed and whose delivery has not failed."""
        complete = self._complete - set(self._failures.blocked)
        if self._failures.shared_blocked:
            complete = {s for s in complete if self._streams[s].configured.fills_generation}
        return complete

    # -- recovery (L3, L5)

    def recover(self) -> None:
        """Repeats the loads in the ledger, then delivers what was sealed, without using the source
        (L3, L5)."""
        self._backlog.close_all()
        self._delivery.repeat(self)
        if self._plan.resent:
            self._backlog.give_up()
        self._drain_recovered()

    def _drain_recovered(self) -> None:
        self._backlog.give_up_stale()
        self._backlog.drain_recovered()
        self._backlog.settle()
        self._backlog.drop_old()

    # -- the discovery during the read

    def _wait_for_discovery(self) -> None:
        """Waits before lanes begin, where they must wait for the discovery or where an epoch of an
        earlier run is not confirmed: that epoch is delivered if its source was given the same, else
        given up entirely."""
        earlier = bool(self._backlog.unconfirmed)
        if not (earlier or (self._discovery.beside and self._discovery.first)):
            return
        while not self._look_for_discovery(reading=False):
            if self._undiscovered or self._progress.cancelled:
                return
            self.pause()
        if earlier:
            self._backlog.settle_unconfirmed(self._found or "")
            self._drain_recovered()

    def _look_for_discovery(self, *, reading: bool) -> bool:
        """Whether a discovery of this run has returned. One that failed for good is an error of the
        sync."""
        if self._found is None and not self._undiscovered:
            try:
                self._found = self._discovery.poll(reading=reading)
            except PenstockError as e:
                if isinstance(e, LeaseLost | Cancelled):
                    raise
                self._undiscovered = True
                self._failures.errors.append(e)
        return self._found is not None

    def _changed(self) -> bool:
        """Whether the discovery of this run gives the source another catalogue."""
        return self._found is not None and self._found != self._discovery.given

    def _confirmed(self) -> bool:
        """Whether the catalogue of the running lanes is confirmed. Stops the lanes if it was
        refuted."""
        if not self._unsure or not self._backlog.unconfirmed:
            return True
        reading = any(it.result is None for it in self._running.values())
        if not self._look_for_discovery(reading=reading):
            return False
        if self._changed():
            self._stop_lanes()
            return False
        self._backlog.settle_unconfirmed(self._discovery.given)
        return True

    def _ended_unconfirmed(self) -> bool:
        """Whether all lanes have ended and their catalogue was not confirmed. If another catalogue
        was discovered, what they sealed is given up; else it waits for a discovery of the next
        run."""
        if any(it.result is None for it in self._running.values()):
            return False
        if not (self._changed() or self._undiscovered or self._progress.cancelled):
            return False
        for it in self._running.values():
            result = it.result or LaneResult(end=LaneEnd.cancelled)
            if self._changed():  # what it read does not count
                result = LaneResult(end=LaneEnd.cancelled, stats=result.stats)
            self._observer.lane_ended(it.start, result)
            self._doubt_refreshes({stream for stream, *_ in result.in_doubt})
            self._failures.errors += [PenstockError.from_dict(e) for e in result.errors]
        self._running.clear()
        if self._changed():
            self._backlog.settle_unconfirmed(self._found or "")
        return True

    def _poll_lanes(self) -> None:
        for it in self._running.values():
            if it.result is not None:
                continue
            it.result = result = it.handle.poll()
            if result is not None:
                self._backlog.not_sent(result.unsent)
            if result is None or it.start.epoch not in self._unsure or self._stopped:
                continue
            if result.errors or result.passing or result.end in (LaneEnd.failed, LaneEnd.lost):
                self._discovery.read_failed()

    # -- reading

    def _read(self) -> None:
        failures = self._failures
        self._end_refreshes()
        mine = [self._streams[s.id] for s in self._plan.streams]
        wanted = [s for s in mine if s.id not in failures.blocked]
        self._note_unread()
        nothing = (self._plan.streams and not wanted) or self._delivery.dead()
        if self._progress.cancelled or nothing or self._state_is_held():
            return
        if self._retried is not None:
            chosen = self._retried.choose(wanted)
            starts = self._epochs.begin_retry([s for s in wanted if s.id in chosen])
        else:
            if not self._plan.resent:
                settle_unread(self._progress, self._plan.unread, wanted)
            starts = self._epochs.begin(wanted, range(self._plan.lanes))
        self._running = {lane: self._start(start) for lane, start in starts.items()}
        again: dict[int, tuple[float, LaneStart, LaneResult]] = {}
        began = loaded_at = scanned_at = self._time.now()
        while self._running or again:
            self.look()
            self._poll_lanes()
            if not self._confirmed():
                if not self._ended_unconfirmed():
                    self._time.sleep(self._plan.poll_after(self._time.now() - began))
                continue
            for lane, it in list(self._running.items()):
                result = it.result
                if result is None:
                    continue
                del self._running[lane]
                self._ended(it.start, result)
                if self._may_begin_again(it.start, result):
                    wait = max((seconds for _, seconds in result.retries), default=0.0)
                    again[lane] = (self._time.now() + wait, it.start, result)
            for lane, (at, start, result) in list(again.items()):
                if self._time.now() >= at:
                    del again[lane]
                    self._begin_again(start, result)
            now = self._time.now()
            if self._running and now - scanned_at >= self._plan.scan_seconds:
                scanned_at = now
                free = self._plan.slots is None or self._plan.slots > len(self._running)
                if free and self._backlog.due(now - loaded_at):
                    self._backlog.drain_some()
                    loaded_at = self._time.now()
            if self._running or again:
                self._time.sleep(self._plan.poll_after(self._time.now() - began))

    def _end_refreshes(self) -> None:
        """Makes streams incremental again whose refresh was complete in the log, and is now
        published."""
        planned = [s for s in self._plan.streams if s.configured.refreshes]
        refreshes = self._progress.refreshes() if planned else {}
        for stream in planned:
            refresh = refreshes.get(stream.id)
            if refresh is None or not refresh.pending:
                self._streams[stream.id] = stream.refreshed()

    def _state_is_held(self) -> bool:
        """Whether no stream may be read, because rows that wait in the log would be read twice:
        they share a state with the others, or the source cannot read the others alone."""
        halted = self._plan.open and bool(self._failures.halted)
        return halted or self._failures.shared_blocked

    def _note_unread(self) -> None:
        halted = self._halted()
        names = sorted(str(s) for s in halted if self._plan.open or s in self._streams)
        if names:
            shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
            self._observer.note(
                f"not read, as the destination did not take rows of an earlier run: {shown}"
            )

    def _begin_again(self, start: LaneStart, result: LaneResult) -> None:
        streams = self._unfinished(start, result)
        tries = dict(start.tries)
        tries.update({s: tries.get(s, 0) + 1 for s, _ in result.retries})
        lost = result.end is LaneEnd.lost
        try:
            starts = self._epochs.begin(streams, [start.lane], start)
        except StateError as e:
            self._failures.errors.append(e)
            return
        for new in starts.values():
            again = msgspec.structs.replace(
                new, attempt=start.attempt + lost, tries=tuple(sorted(tries.items()))
            )
            self._running[start.lane] = self._start(again)

    # -- while waiting (engine.deliver.delivery.LaneWatcher)

    def pause(self) -> None:
        """Looks after lanes and delivery, then waits for a moment."""
        self.look()
        self._time.sleep(self._plan.poll_seconds)

    def look(self) -> None:
        """Handles everything but the end of lanes: cancellation, configurations, questions, acks.
        Raises ``LeaseLost``, and ``Cancelled`` where no lane has to be stopped first."""
        if not self._progress.cancelled:
            self._look_for_end()
        for it in self._running.values():
            ask = it.handle.ask()
            if ask is not None:
                it.handle.answer(ask, self._answer(ask, it.start))
        self._delivery.poll()
        if self._delivery.dead():
            self._stop_lanes()

    def _look_for_end(self) -> None:
        try:
            self._time.check()
        except Cancelled as e:
            if not self._running:
                raise
            self._progress.cancelled = True
            self._failures.errors.append(e)
            self._stop_lanes()

    def _stop_lanes(self) -> None:
        if not self._stopped:
            self._stopped = True
            for it in self._running.values():
                it.handle.cancel()

    def _answer(
        self, ask: LaneQuestion, start: LaneStart
    ) -> ContinuedStream | PenstockError | None:
        """Returns how a stream continues whose source has just sent a schema or a version, or whose
        rows have shown which columns are never null; an error: it cannot; None: it is not
        selected."""
        known, generation, fills = self._streams.get(ask.stream), None, False
        begun = dict(start.generations).get(ask.stream)
        if known is not None and self._backlog.has_rows(ask.stream, begun):
            ask = _joining(ask, known)
        try:
            if ask.passed:
                self._planner.pass_over(ask.stream)
                return None
            if ask.version is not None:
                goes_on = self._epochs.goes_on(start, ask.stream, ask.version)
                generation, fills = self._planner.version(ask.stream, ask.version, goes_on=goes_on)
            stream = known
            if ask.plans:
                filling = fills or (known is not None and known.configured.fills_generation)
                stream = self._planner.plan(ask, start.lane, filling=filling)
        except PenstockError as e:
            return e
        if stream is None:
            return None
        if known is not None and not known.configured.refreshes:
            stream = stream.refreshed()  # the plan may be older than its publication
        if stream is not known:
            self._observer.stream_planned(stream, new=known is None)
        if generation is None:
            generation = begun
        if generation is None:
            generation = self._met.get((start.epoch, stream.id))
        if generation is None:
            generation = self._epochs.first_generation(stream)
            self._met[start.epoch, stream.id] = generation
        self._streams[stream.id] = stream
        return ContinuedStream(
            stream=stream, generation=generation, version=ask.version, fills=fills
        )

    def _start(self, start: LaneStart) -> _Running:
        if self._discovery.beside and self._found is None:
            self._backlog.begin_unconfirmed(start.epoch, self._discovery.given)
            self._unsure.add(start.epoch)
        self._observer.lane_started(start)
        return _Running(start, self._runner.start(start))

    def _ended(self, start: LaneStart, result: LaneResult) -> None:
        self._observer.lane_ended(start, result)
        self._complete.update(s for s in result.complete if self._whole(s, start.lane))
        self._doubt_refreshes({stream for stream, *_ in result.in_doubt})
        if result.again:
            self._backlog.close(start.epoch)
            self._backlog.drain_for_lane({s.id for s in start.streams})
        if result.end is not LaneEnd.lost:
            self._failures.errors += [PenstockError.from_dict(e) for e in result.errors]

    def _doubt_refreshes(self, streams: Collection[StreamId]) -> None:
        """Has the pending refreshes of these streams begin again: their source may have left out
        rows before the last sealed state, so that nothing may continue from that (L6)."""
        session, pending = self._progress.session, self._progress.refreshes() if streams else {}
        last = session.store.last_epoch(session.pipeline)
        anew = {
            s: msgspec.structs.replace(pending[s], again=last)
            for s in streams
            if s in pending and pending[s].pending
        }
        if anew:
            session.store.remember(session.lease, Remembered(refresh=anew))

    def _whole(self, stream: StreamId, lane: int) -> bool:
        """Whether the stream is complete now that this lane has read its shard."""
        shards = self._streams[stream].shards
        done = self._shards.setdefault(stream, set())
        done.add(lane)
        return shards == 1 or len(done) == shards

    def _unfinished(self, start: LaneStart, result: LaneResult) -> list[PlannedStream]:
        """Returns the remaining streams of a lane that was lost, or that retries streams. A
        published generation is not filled again. Where streams share a state, all of the lane's
        streams are read again, since the state also covers those that had ended; a stream whose
        refresh was published is incremental again."""
        retried = {s for s, _ in result.retries}
        shared = self._epochs.state_is_shared()
        everything = result.end is LaneEnd.lost or shared
        mine = [
            s
            for s in self._streams.values()
            if start.lane in s.lanes
            and (everything or s.id in retried)
            and not (s.shards > 1 and start.lane in self._shards.get(s.id, ()))
        ]
        published = [s for s in mine if s.id in self._backlog.published]
        self._complete.update(s.id for s in published)
        if shared:
            self._streams.update({s.id: s.refreshed() for s in published})
            mine = [self._streams[s.id] for s in mine]
        done = {s.id for s in published if self._streams[s.id].configured.fills_generation}
        return [s for s in mine if s.id not in done and s.id not in self._failures.blocked]

    def _has_all_of(self, start: LaneStart) -> bool:
        return all(
            s.id in self._complete or start.lane in self._shards.get(s.id, ())
            for s in start.streams
        )

    def _may_begin_again(self, start: LaneStart, result: LaneResult) -> bool:
        """Whether the lane is read again in another epoch; else its errors are final. What was
        sealed is settled first: from an older state it would be read again. An open lane whose
        generation was published is not read again, since it cannot leave the stream out and would
        replace the table again. The source decides how often a stream is retried."""
        if not result.again:
            return False
        lost = result.end is LaneEnd.lost
        again = not self._progress.cancelled and (not lost or start.attempt < self._plan.max_epochs)
        again &= self._retried is None  # whose ids may be sealed: the next command knows
        if again:
            self._backlog.settle()
            again = not (self._plan.open and self._backlog.published)
        errors = result.errors if lost else result.passing
        left = self._unfinished(start, result)
        if again and lost and not left and not self._plan.open and self._has_all_of(start):
            self._observer.note("a lane was lost with its process, after all of it was read")
            return False
        again = again and bool(left or self._plan.open)
        if not again or self._delivery.dead() or self._state_is_held():
            self._failures.errors += [PenstockError.from_dict(e) for e in errors]
            return False
        if lost:
            why = "".join(f": {error['message']}" for error in result.errors[-1:])
            self._observer.note(
                f"a lane was lost with its process; its source was started again{why}"
            )
        for error in result.passing:
            self._observer.note(_tried_again(start, result, error))
        return True


def _joining(ask: LaneQuestion, known: PlannedStream) -> LaneQuestion:
    """Returns the question for rows that join earlier ones of the stream: they are not its first,
    and a column that may be null in those, or that has the type of its kind, stays so, whatever
    these show (L9)."""
    required, before = ask.required, known.schema.frame_types
    if required is not None:
        required = tuple(sorted(known.schema.required & {*required}))
    types = {s: t for s, t in ask.frame_types.items() if before.get(s) == t}
    return msgspec.structs.replace(ask, fresh=False, required=required, frame_types=types)


def _tried_again(start: LaneStart, result: LaneResult, error: dict[str, Any]) -> str:
    tried = max((n for s, n in start.tries if s in dict(result.retries)), default=0)
    what = error.get("stream") or "the source"
    waits = max((seconds for _, seconds in result.retries), default=0.0)
    attempt = f"attempt {tried + 2}, {waits:.0f} s later"
    return f"{what} is tried again ({attempt}) after: {error['message']}"
