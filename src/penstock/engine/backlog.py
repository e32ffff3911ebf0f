"""What lies sealed in the log: which epochs are closed, what of it may be loaded now, what may go,
and what a lane that begins has to know of it.

Not here: lanes and questions (``engine.sync``), the judgement itself (``engine.pending``), how rows
reach their destination (``engine.delivery``).
"""

from collections.abc import Callable, Mapping, Set

from penstock.engine.contract import SyncPlan
from penstock.engine.delivery import Delivery, Meanwhile, Verdicts, visible_key
from penstock.engine.epochs import SyncStream
from penstock.engine.log import Log
from penstock.engine.pending import Pending, Waiting, covered, decide, visible
from penstock.model.catalog import StreamId
from penstock.model.segments import SHARED_STATE, Consumed, Segment, SegmentId
from penstock.model.state import SavedState, StateScope
from penstock.state.contract import Lease, Store
from penstock.state.keys import lane_task


class Backlog:
    """``published``: streams of which a generation has become visible. ``waiting``: slices of those
    that are not whole."""

    def __init__(
        self,
        plan: SyncPlan,
        *,
        lease: Lease,
        store: Store,
        log: Log,
        delivery: Delivery,
        keep_rejects: Callable[[Segment], None],
        verdicts: Verdicts,
        streams: Mapping[StreamId, SyncStream],
        complete: Set[StreamId],
        meanwhile: Meanwhile,
        cancelled: Callable[[], bool],
    ) -> None:
        """``streams``, ``complete``: of this sync, as they grow. ``keep_rejects``: moves a
        segment's rejects to where users query them; idempotent."""
        self._plan, self._lease, self._store, self._log = plan, lease, store, log
        self._delivery, self._keep_rejects, self._verdicts = delivery, keep_rejects, verdicts
        self._streams, self._complete = streams, complete
        self._meanwhile, self._cancelled = meanwhile, cancelled
        self.published: set[StreamId] = set()
        self.waiting: Mapping[StreamId, tuple[Waiting, ...]] = {}

    # -- epochs

    def close_all(self) -> None:
        """Fence every epoch that was ever given out at the last segment we see."""
        last = dict.fromkeys(self._store.open_epochs(self._plan.pipeline), 0)
        for segment in self._log.segments():
            if segment.id.epoch in last:
                last[segment.id.epoch] = max(last[segment.id.epoch], segment.id.seq)
        if last:
            self._store.close_epochs(self._lease, last)

    def drop_old(self) -> None:
        """Epochs that are closed and hold nothing any more leave the disk, then the ledger."""
        used = {s.id.epoch for s in self._visible()}
        closed = self._store.closed_epochs(self._plan.pipeline)
        empty = [e for e in self._log.epochs() if e in closed and e not in used]
        if empty:
            self._log.drop_epochs(empty)
            self._store.forget(self._lease, empty)

    def close(self, epoch: int) -> None:
        """Fence it, and drop the keys of what it did not seal."""
        seqs = [s.id.seq for s in self._log.segments() if s.id.epoch == epoch]
        self._store.close_epochs(self._lease, {epoch: max(seqs, default=0)})
        if self._plan.keyed:
            sealed = [s for s in self._log.segments() if s.id.epoch == epoch]
            self._store.end_keys(self._lease, covered(sealed), [lane_task(epoch)])

    def give_up(self) -> None:
        """All that is sealed and not loaded, and the states."""
        left = [
            Consumed(segment.id, stream)
            for segment in self._visible()
            for stream in (*(s.stream for s in segment.slices), SHARED_STATE)
        ]
        self._store.abandon(self._lease, left)
        self._store.replace_states(self._lease, [])

    # -- what may be loaded

    def _visible(self) -> list[Segment]:
        closed = self._store.closed_epochs(self._plan.pipeline)
        return visible(self._log.segments(), closed)

    def _held(self) -> frozenset[StreamId]:
        return frozenset(s.id for s in self._streams.values() if s.held)

    def _patient(self) -> frozenset[StreamId]:
        """Streams of which a lane that is begun again leaves the sealed rows in the log, so that
        they load with the rest: it goes on from the last sealed state. Not where connectors keep
        keys, which must be settled first, nor where that state speaks for generations as well, or
        rows have versions, which are seen one after the other."""
        held = frozenset(
            s.id for s in self._streams.values() if s.held and not s.configured.fills_generation
        )
        if not held or self._plan.keyed:
            return frozenset()
        segments = self._log.segments()
        shared = any(s.scope is not None and s.scope.stream is None for s in segments)
        versions = any(part.version is not None for s in segments for part in s.slices)
        mixed = shared and len(held) < len(self._streams)
        return frozenset() if mixed or versions else held

    def _decide(self, held: frozenset[StreamId] = frozenset()) -> Pending:
        """``held``: streams whose loads wait."""
        segments = self._visible()
        taken = self._store.consumed(self._plan.pipeline, {s.id.epoch for s in segments})
        return decide(
            segments,
            taken | self._delivery.under_way(),
            blocked=frozenset(self._verdicts.blocked),
            held=held,
            patient=self._plan.resent,
            each_state=self._delivery.each_state,
            ended={} if self._plan.resent else self._shown(),
        )

    def _shown(self) -> dict[StreamId, int]:
        """Of streams that the source has read to their end, the newest generation in the table."""
        names = self._store.names(self._plan.pipeline) if self._complete else {}
        return {s: max(map(int, names.get(visible_key(s), {})), default=0) for s in self._complete}

    def drain(self) -> None:
        """Load everything that may be loaded."""
        self._drain(frozenset())

    def drain_some(self) -> None:
        """While sources are read: not what loads once."""
        self._drain(self._held())

    def drain_for_lane(self) -> None:
        """Before a lane is begun again."""
        self._drain(self._patient())

    def _drain(self, held: frozenset[StreamId]) -> None:
        pending = self._decide(held)
        if pending.ready and not self._cancelled():
            self._delivery.deliver(pending, self._meanwhile)
            pending = self._decide(held)
        self._sweep(pending)

    def _sweep(self, pending: Pending) -> None:
        """What nobody needs leaves the log."""
        self.published |= self._delivery.published()
        self.waiting = pending.waiting
        kept = {c.segment for c in self._delivery.under_way()} | self._written_down()
        spent = [s for s in pending.spent if s.id not in kept]
        for segment in spent:
            self._keep_rejects(segment)
        self._log.discard(spent)

    def _written_down(self) -> set[SegmentId]:
        """Segments of loads that failed: the next run repeats them, so their parts must stay."""
        if not self._verdicts.blocked:
            return set()
        groups = self._store.open_groups(self._plan.pipeline)
        return {segment for group in groups for load in group.loads for segment in load.segments}

    def due(self, seconds: float) -> bool:
        """``seconds``: since the last load."""
        pending = self._decide(self._held())
        return bool(pending.ready) and (
            pending.raw_bytes >= self._plan.load_bytes or seconds >= self._plan.load_seconds
        )

    def left(self) -> set[StreamId]:
        """Streams with sealed rows that are not committed: a cancelled run leaves them."""
        pending = self._decide()
        return {load.stream for g in pending.ready for load in g.loads} | set(pending.waiting)

    def settle(self) -> None:
        """Everything that was delivered is committed or blocked."""
        self._delivery.flush(self._meanwhile)
        self._sweep(self._decide())

    # -- what a lane begins from

    def sealed_states(self) -> list[SavedState]:
        """The last of each scope that waits in the log with its rows."""
        patient, found = self._patient(), dict[StateScope, SavedState]()
        if not patient:
            return []
        visible = self._visible()
        taken = self._store.consumed(self._plan.pipeline, {s.id.epoch for s in visible})
        for segment in visible:
            scope, state = segment.scope, segment.state
            if scope is None or state is None:
                continue
            settled = SHARED_STATE if scope.stream is None else scope.stream
            if scope.stream in {None, *patient} and Consumed(segment.id, settled) not in taken:
                found[scope] = SavedState(scope, state)
        return list(found.values())

    def forget_keys(self) -> None:
        """What connectors kept for themselves of rows that were given up must not meet them."""
        if not self._plan.keyed:
            return
        sealed, closed = self._visible(), self._store.closed_epochs(self._plan.pipeline)
        taken = self._store.consumed(self._plan.pipeline, {s.id.epoch for s in sealed})
        self._store.end_keys(self._lease, covered(sealed, taken), map(lane_task, closed))
