"""Manages the sealed segments of the log: closes epochs, decides what may be loaded now, deletes
spent segments, and returns the sealed states from which a lane begins.

Not here: lanes and questions (``engine.sync.sync``), which segments become which loads
(``engine.deliver.load_plan``), how rows reach their destination (``engine.deliver.delivery``).
"""

from collections.abc import Callable, Collection, Mapping, Sequence, Set

from penstock.engine.deliver.delivery import Delivery, LaneWatcher
from penstock.engine.deliver.load_plan import (
    Pending,
    PendingSlice,
    Refreshes,
    chained,
    covered,
    decide,
    visible,
)
from penstock.engine.deliver.reject_limits import LimitDecision, Rejections, repeated_note
from penstock.engine.deliver.state_parts import stand_alone
from penstock.engine.specs.plan import SyncPlan
from penstock.engine.sync.progress import SyncProgress
from penstock.model.catalog import StreamId
from penstock.model.segments import SHARED_STATE, ConsumedSlice, Segment, SegmentId
from penstock.model.state import StateScope, StoredState
from penstock.store.contract import LoadIntent
from penstock.store.keys import lane_task


class Backlog:
    """The sealed segments of one sync. ``published``: streams with a published generation.
    ``waiting``: slices of incomplete generations, per stream. ``begun``: epochs of this sync;
    ``kept``: streams with rows that these sealed and that were not given up. ``unconfirmed``:
    epochs whose catalogue no discovery has confirmed yet, with what their source was given: nothing
    from them is delivered or committed."""

    def __init__(
        self, plan: SyncPlan, progress: SyncProgress, delivery: Delivery, meanwhile: LaneWatcher
    ) -> None:
        self._plan, self._progress, self._delivery = plan, progress, delivery
        self._session, self._meanwhile = progress.session, meanwhile
        session = progress.session
        self._lease, self._store, self._log = session.lease, session.store, session.log
        self._failures, self._observer = session.failures, session.observer
        self._rejections = Rejections(plan.max_rejected, progress.streams, self._repeated)
        self._refused: dict[StreamId, bool] = {}  # whether the state is shared
        self.published: set[StreamId] = set()
        self.waiting: Mapping[StreamId, tuple[PendingSlice, ...]] = {}
        self._held: tuple[Segment, ...] = ()
        self.begun: set[int] = set()
        self.kept: set[StreamId] = set()
        self.unconfirmed: dict[int, str] = {}

    def has_rows(self, stream: StreamId, generation: int | None) -> bool:
        """Whether sealed rows of the stream exist that the rows of a new epoch join: of an earlier
        epoch of this sync, or of a generation that an earlier sync left incomplete."""
        waiting = self.waiting.get(stream, ())
        return stream in self.kept or any(w.slice.generation == generation for w in waiting)

    def not_sent(self, rows: Collection[tuple[StreamId, int]]) -> None:
        """Adds good rows of streams that a lane did not send: their limits count them."""
        for stream, count in rows:
            self._rejections.not_sent(stream, count)

    # -- epochs

    def close_all(self) -> None:
        """Closes every open epoch at its last sealed segment: its later segments do not count (L4,
        L12)."""
        self._close(self._store.open_epochs(self._session.pipeline))

    def drop_old(self) -> None:
        """Deletes epochs that are closed and have no segments, from the disk first, then from the
        ledger."""
        used = {s.id.epoch for s in self._visible()}
        closed = self._store.closed_epochs(self._session.pipeline)
        used |= self.unconfirmed.keys()
        empty = [e for e in self._log.epochs() if e in closed and e not in used]
        if empty:
            self._log.drop_epochs(empty)
            self._store.forget(self._lease, empty)

    def close(self, epoch: int) -> None:
        """Closes one epoch at its last sealed segment, and drops the connector keys that no sealed
        checkpoint covers."""
        self._close({epoch})
        if self._plan.keyed:
            sealed = [s for s in self._log.segments() if s.id.epoch == epoch]
            self._store.end_keys(self._lease, covered(sealed), [lane_task(epoch)])

    def _close(self, epochs: Set[int]) -> None:
        last, shares = dict.fromkeys(epochs, 0), dict[int, int]()
        for segment in self._log.segments():  # by id
            epoch = segment.id.epoch
            if epoch in last:
                last[epoch] = segment.id.seq
                if segment.before is not None:
                    shares[epoch] = segment.before + segment.shares
        if last:
            self._store.close_epochs(self._lease, last, shares)

    def give_up(self) -> None:
        """Gives up everything that is sealed and not loaded, and deletes the states."""
        left = [item for segment in self._visible() for item in _shares(segment)]
        self._session.give_up(left)
        self._store.replace_states(self._lease, [])

    def begin_unconfirmed(self, epoch: int, given: str) -> None:
        """Marks an epoch, before its source is started, as not confirmed."""
        self._log.mark_unconfirmed(epoch, given)
        self.unconfirmed[epoch] = given

    def settle_unconfirmed(self, found: str) -> None:
        """Confirms the epochs whose source was given the same as in ``found``, by a discovery;
        gives up the other epochs entirely, which no lane may still read. None of their states was
        saved."""
        marks = self.unconfirmed
        other = {e for e, given in marks.items() if given != found}
        if other:
            name = self._session.pipeline
            self._close(other & self._store.open_epochs(name))
            sealed = visible(self._log.segments(), self._store.closed_epochs(name))
            items = [
                ConsumedSlice(segment.id, stream)
                for segment in sealed
                if segment.id.epoch in other
                for stream in (*(s.stream for s in segment.slices), SHARED_STATE)
            ]
            self._session.give_up(items)
        self._log.unmark(sorted(marks))
        self.unconfirmed = {}

    # -- what may be loaded

    def _visible(self) -> list[Segment]:
        return self._sealed()[0]

    def _sealed(self) -> tuple[list[Segment], set[ConsumedSlice]]:
        """Returns the segments that count, and the consumed slices of these and earlier ones.
        Leaves out epochs whose catalogue is not confirmed. Adds to ``kept``. Raises ``LogError``
        where a segment is missing."""
        name, waits = self._session.pipeline, self.unconfirmed
        closed = self._store.closed_epochs(name)
        found = [s for s in visible(self._log.segments(), closed) if s.id.epoch not in waits]
        there = {*self._log.epochs(), *(s.id.epoch for s in found)}
        taken = self._store.consumed(name, there)
        # read last: an epoch that another driver has deleted meanwhile has no shares
        due = {e: n for e, n in self._store.shares(name).items() if e in there and e not in waits}
        sealed = chained(found, taken, closed, due)
        for segment in sealed:
            if segment.id.epoch in self.begun:
                with_rows = {part.stream for part in segment.slices if part.parts}
                self.kept |= {s for s in with_rows if ConsumedSlice(segment.id, s) not in taken}
        return sealed, taken

    def _deferred(self) -> frozenset[StreamId]:
        return frozenset(s.id for s in self._progress.streams.values() if s.deferred)

    def _patient(self) -> frozenset[StreamId]:
        """Returns the streams whose sealed rows stay in the log when a lane is begun again, so that
        they load with the rest: the lane continues from the last sealed state. Empty where
        connectors keep keys, which must be settled first; where that state also covers generations;
        and where rows have versions, which are published one after the other."""
        streams = self._progress.streams.values()
        deferred = {s.id for s in streams if s.deferred and not s.configured.fills_generation}
        if not deferred or self._plan.keyed:
            return frozenset()
        segments = self._log.segments()
        shared = any(s.scope is not None and s.scope.stream is None for s in segments)
        versions = any(part.version is not None for s in segments for part in s.slices)
        mixed = shared and len(deferred) < len(streams)
        return frozenset() if mixed or versions else frozenset(deferred)

    def _decide(self, deferred: frozenset[StreamId] = frozenset()) -> Pending:
        """Returns what may be loaded. ``deferred``: streams whose loads wait."""
        segments, taken = self._sealed()
        return decide(
            segments,
            taken | self._delivery.under_way(),
            refreshes=self._refreshes(),
            blocked=frozenset(self._failures.blocked),
            deferred=deferred,
            patient=self._plan.resent,
            ack_per_state=self._delivery.ack_per_state,
            ended={} if self._plan.resent else self._shown(),
        )

    def _shown(self) -> dict[StreamId, int]:
        """Returns the newest visible generation of each stream that the source has completed."""
        complete = self._progress.complete
        if not complete:
            return {}
        known = self._store.remembered(self._session.pipeline, complete)
        return {stream: known.newest_visible(stream) for stream in complete}

    def _refreshes(self) -> Refreshes:
        newest = self._progress.refreshes()
        if not newest:
            return Refreshes()
        role, saved = self._progress.state_role(), self._progress.states()
        return Refreshes(newest, lambda state, streams: stand_alone(role, [*saved, state], streams))

    def give_up_stale(self) -> None:
        """Discards the sealed rows of refreshes that were cancelled, or requested once more. If the
        part of such a refresh in a shared state cannot be separated, everything that the state
        covers is discarded, and read again from the saved state."""
        refreshes = self._refreshes()
        newest = refreshes.newest
        if not newest:
            return
        segments, taken = self._sealed()
        items = [
            ConsumedSlice(segment.id, part.stream)
            for segment in segments
            for part in segment.slices
            if part.disposition.refreshes
            and not (part.stream in newest and newest[part.stream].has(segment.id.epoch))
        ]
        stale = [
            segment
            for segment in segments
            if segment.scope is not None
            and segment.scope.stream is None
            and any(refresh.is_stale(segment.id.epoch) for refresh in newest.values())
        ]
        if any(not refreshes.moves_of(segment) for segment in stale):
            items += [item for segment in stale for item in _shares(segment)]
        self._abandon(items, taken)

    def note_held(self) -> set[StreamId]:
        """Notes which rows wait for a refresh that shares their state; returns all streams that
        wait for one."""
        held = {p.stream for s in self._held for p in s.slices if p.read}
        names = ", ".join(sorted(str(s) for s in held if s not in self.waiting))
        if names:
            self._observer.note(
                f"{names}: the rows read wait for the refresh of another stream, as one state "
                "covers both and cannot be separated; the next run reads it again"
            )
        return held

    def give_up_held(self) -> None:
        """Gives up the rows that wait for a refresh, and everything else under the shared state
        that covers them: it is read again from the saved state."""
        if self._held:
            taken = self._store.consumed(
                self._session.pipeline, {segment.id.epoch for segment in self._held}
            )
            self._abandon([item for segment in self._held for item in _shares(segment)], taken)
            self.drain_for_lane()

    def _abandon(self, items: list[ConsumedSlice], taken: Set[ConsumedSlice]) -> None:
        left = [item for item in dict.fromkeys(items) if item not in taken]
        if left:
            self._session.give_up(left)
            self.kept -= {item.stream for item in left}

    def drain(self) -> None:
        """Delivers everything that may be delivered, when no lane reads any more."""
        self._drain(frozenset(), lambda stream: True)

    def drain_recovered(self) -> None:
        """Delivers what an earlier run sealed (L5). Streams with too many rejected records are
        given up, and read again."""
        judged = self._judge(self._decide(), lambda stream: True)
        if judged.over and not self._progress.cancelled:
            for over in judged.over:
                counts = over.counts
                self._observer.note(
                    f"{over.stream}: of {counts.read} records that an earlier run had sealed "
                    f"{counts.rejected} were rejected: they are read again"
                )
            shared = any(over.shared for over in judged.over)
            self._give_up_of({over.stream for over in judged.over}, shared=shared)
        self.drain()

    def drain_some(self) -> None:
        """Delivers what is ready while sources are read, except streams that load once, at the
        end."""
        self._drain(self._deferred(), lambda stream: False)

    def drain_for_lane(self, ended: Collection[StreamId] = ()) -> None:
        """Delivers what must be delivered before a lane is begun again. ``ended``: streams that the
        lane read."""
        self._drain(self._patient(), lambda stream: stream in ended)

    def _drain(self, deferred: frozenset[StreamId], ended: Callable[[StreamId], bool]) -> None:
        pending = self._decide(deferred)
        if pending.ready and not self._progress.cancelled:
            pending = self._admitted(pending, ended)
            if pending.ready:
                self._delivery.deliver(pending, self._meanwhile)
            pending = self._decide(deferred)
        self._sweep(pending)

    def _judge(self, pending: Pending, ended: Callable[[StreamId], bool]) -> LimitDecision:
        unnamed = {s.id.epoch for s in self._log.segments() if s.scope is None and s.rejects}
        return self._rejections.judge(pending, ended, unnamed)

    def _repeated(self, stream: StreamId, loads: Sequence[LoadIntent]) -> int:
        wanted = {id_ for load in loads for id_ in load.segments}
        segments = [s for s in self._log.segments() if s.id in wanted]
        return self._session.repeated.count(stream, segments)

    def _admitted(self, pending: Pending, ended: Callable[[StreamId], bool]) -> Pending:
        """Returns what may be delivered in spite of rejects; fails the streams that exceed their
        limit for good."""
        judged = self._judge(pending, ended)
        for over in (o for o in judged.over if o.final):
            error = over.error()
            self._refused[over.stream] = over.shared
            self._failures.block(over.stream, error, shared=over.shared)
            self._observer.load_failed(over.stream, error)
            self._observer.refused(over.stream, over.new.rejected)
        self._failures.errors += [over.error() for over in judged.lost]
        for stream, count in judged.repeated:
            self._observer.note(repeated_note(stream, count))
        self._rejections.delivered(judged.pending)
        return judged.pending

    def give_up_refused(self) -> None:
        """Gives up, at the end of a sync and in one step, the remaining rows of all streams that
        failed for their rejects. Keeps their states and their rejects: the next sync reads the rows
        again."""
        if self._refused:
            self._give_up_of(set(self._refused), shared=any(self._refused.values()))

    def _give_up_of(self, streams: Set[StreamId], *, shared: bool) -> None:
        """Gives up the sealed rows of these streams. ``shared``: also everything that their shared
        state covers."""
        segments = self._visible()
        taken = self._store.consumed(self._session.pipeline, {s.id.epoch for s in segments})
        taken |= self._delivery.under_way()
        items: list[ConsumedSlice] = []
        versions: set[StreamId] = set()
        for segment in segments:
            of_all = segment.scope is not None and segment.scope.stream is None
            for part in segment.slices:
                if part.disposition.retried:
                    continue  # no source sends them again
                if part.stream in streams or (shared and of_all and not part.fills_generation):
                    items.append(ConsumedSlice(segment.id, part.stream))
                    if of_all and part.fills_generation and not part.disposition.refreshes:
                        versions.add(part.stream)
            if shared and of_all:
                items.append(ConsumedSlice(segment.id, SHARED_STATE))
        items = [item for item in items if item not in taken]
        if not items:
            return
        if versions:
            self._progress.take_states_back(versions)
        self._session.give_up(items)
        self.kept -= {item.stream for item in items}
        self._sweep(self._decide())

    def _sweep(self, pending: Pending) -> None:
        """Deletes spent segments from the log, once their rejects are copied."""
        self.published |= self._delivery.published()
        self.waiting, self._held = pending.waiting, pending.held
        kept = {c.segment for c in self._delivery.under_way()} | self._written_down()
        spent = [s for s in pending.spent if s.id not in kept]
        for segment in spent:
            self._session.rejects.keep(segment)
        # recorded in the ledger, so that the chain of manifests does not miss them (L3)
        bare = [ConsumedSlice(s.id, SHARED_STATE) for s in spent if not s.shares]
        if bare:
            self._store.abandon(self._lease, bare)
        self._log.discard(spent)

    def _written_down(self) -> set[SegmentId]:
        """Returns the segments of failed loads: the next run repeats the loads, so their parts must
        stay (L3)."""
        if not self._failures.blocked:
            return set()
        groups = self._store.open_groups(self._session.pipeline)
        return {segment for group in groups for load in group.loads for segment in load.segments}

    def due(self, seconds: float) -> bool:
        """Whether a load is due, ``seconds`` after the last one: enough bytes or time are
        pending."""
        pending = self._judge(self._decide(self._deferred()), lambda stream: False).pending
        return bool(pending.ready) and (
            pending.raw_bytes >= self._plan.load_bytes or seconds >= self._plan.load_seconds
        )

    def left(self) -> set[StreamId]:
        """Returns the streams with sealed rows that are not committed; only a cancelled run leaves
        such."""
        pending = self._decide()
        held = {part.stream for segment in pending.held for part in segment.slices if part.read}
        return {load.stream for g in pending.ready for load in g.loads} | {*pending.waiting, *held}

    def settle(self) -> None:
        """Waits until everything that was delivered is committed or failed."""
        self._delivery.flush(self._meanwhile)
        self._sweep(self._decide())

    # -- what a lane begins from

    def sealed_states(self) -> list[StoredState]:
        """Returns, for a lane that is begun again, the last state of each scope that waits in the
        log with its rows."""
        patient, found = self._patient(), dict[StateScope, StoredState]()
        if not patient:
            return []
        sealed, taken = self._sealed()
        for segment in sealed:
            scope, state = segment.scope, segment.state
            if scope is None or state is None:
                continue
            settled = SHARED_STATE if scope.stream is None else scope.stream
            if scope.stream in {None, *patient} and ConsumedSlice(segment.id, settled) not in taken:
                found[scope] = StoredState(scope, state)
        return list(found.values())

    def forget_keys(self) -> None:
        """Drops the connector keys of rows that were given up."""
        if not self._plan.keyed:
            return
        sealed, taken = self._sealed()
        closed = self._store.closed_epochs(self._session.pipeline)
        self._store.end_keys(self._lease, covered(sealed, taken), map(lane_task, closed))


def _shares(segment: Segment) -> list[ConsumedSlice]:
    """Returns all shares of a segment, including that of a shared state."""
    streams = (*(part.stream for part in segment.slices), SHARED_STATE)
    return [ConsumedSlice(segment.id, stream) for stream in streams]
