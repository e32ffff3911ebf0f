"""Begins the epochs and generations of a sync, and gives up unfinished generations (L4, L6).

Neighbours: ``engine.sync.sync`` runs the lanes; ``engine.sync.backlog`` has the sealed slices of
unfinished generations.
"""

from collections.abc import Iterable, Mapping, Sequence, Set

from penstock.engine.deliver.delivery import is_shared
from penstock.engine.deliver.load_plan import PendingSlice
from penstock.engine.deliver.state_parts import merging
from penstock.engine.plan.state_names import begins_anew, mixed
from penstock.engine.specs.plan import LaneStart, PlannedStream, SyncPlan
from penstock.engine.sync.backlog import Backlog
from penstock.engine.sync.progress import SyncProgress
from penstock.errors import StateError
from penstock.model.catalog import ConfiguredStream, StreamId
from penstock.model.segments import ConsumedSlice
from penstock.model.state import StoredState
from penstock.store.keys import lane_task

WaitingSlices = Mapping[StreamId, tuple[PendingSlice, ...]]
"""The sealed slices of incomplete generations, per stream."""


class Epochs:
    """Begins the epochs of one sync."""

    def __init__(self, plan: SyncPlan, progress: SyncProgress, backlog: Backlog) -> None:
        self._plan, self._progress, self._backlog = plan, progress, backlog
        session = progress.session
        self._pipeline, self._store, self._lease = session.pipeline, session.store, session.lease

    def begin(
        self,
        streams: Sequence[PlannedStream],
        lanes: Iterable[int],
        before: LaneStart | None = None,
    ) -> dict[int, LaneStart]:
        """Opens an epoch for each of these lanes, and returns what each begins with: the saved
        states, and for a resumed generation the state that it has sealed. ``before``: the lane is
        begun again; for a sharded stream only the lane's shard is, in the generation that the other
        shards fill. Raises ``StateError`` as :meth:`_refuse_mix`."""
        self._backlog.give_up_held()
        role, known = self._progress.state_role(), self._progress.streams
        waiting, sealed = self._backlog.waiting, self._backlog.sealed_states()
        shards = [s for s in streams if before is not None and s.shards > 1]
        resumed, anew = self._split([s for s in streams if s not in shards], waiting)
        restart = {s.id for s in anew if begins_anew(s.configured)}
        if resumed and not role.splits(role.merge(self._progress.states(), sealed), restart):
            resumed, anew = {}, [s for s in streams if s not in shards]
            restart = {s.id for s in anew if begins_anew(s.configured)}
        gone = self._given_up((s.id for s in anew), waiting)
        others = [s.id for s in anew if s.id not in restart]
        self._refuse_mix(restart, others, gone, sealed)
        self._abandon(gone, waiting)
        restart |= gone & known.keys()
        if self._plan.open:
            pending = self._progress.refreshes().items()
            restart |= {s for s, refresh in pending if refresh.pending}
        fresh = [s.id for s in anew if s.configured.fills_generation]
        current = self._store.generations(self._pipeline)
        current.update(self._store.new_generation(self._lease, fresh) if fresh else {})
        if before is not None:
            current |= self._shards_again(shards, before, waiting)
            restart |= {s.id for s in shards}
        on_top: list[StoredState] = []
        for stream, slices in resumed.items():
            current[stream] = slices[-1].slice.generation
            on_top += [w.state for w in slices if w.state is not None][-1:]
        saved = role.without(role.merge(self._progress.states(), sealed), sorted(restart))
        states = tuple(merging(role)(role.within(saved, known.keys()), on_top))
        starts: dict[int, LaneStart] = {}
        for lane in lanes:
            mine = tuple(s for s in streams if lane in s.lanes)
            if mine or self._plan.open:
                epoch = self._store.new_epoch(self._lease, lane)
                self._backlog.begun.add(epoch)
                if self._plan.keyed:
                    self._store.begin_keys(self._lease, lane_task(epoch))
                starts[lane] = LaneStart(
                    lane=lane,
                    epoch=epoch,
                    streams=mine,
                    generations=tuple((s.id, current.get(s.id, 0)) for s in mine),
                    states=states,
                    open=self._plan.open,
                )
        self._backlog.forget_keys()
        return starts

    def begin_retry(self, streams: Sequence[PlannedStream]) -> dict[int, LaneStart]:
        """Opens an epoch that reads rejects of these streams in place of the source. It gets no
        state and seals none; no generation is begun or given up."""
        if not streams:
            return {}
        epoch = self._store.new_epoch(self._lease, 0)
        self._backlog.begun.add(epoch)
        current = self._store.generations(self._pipeline)
        generations = tuple((s.id, current.get(s.id, 0)) for s in streams)
        start = LaneStart(
            lane=0, epoch=epoch, streams=tuple(streams), generations=generations, states=()
        )
        return {0: start}

    def _refuse_mix(
        self,
        anew: Set[StreamId],
        others: Sequence[StreamId],
        gone: Set[StreamId],
        sealed: Sequence[StoredState],
    ) -> None:
        """Raises ``StateError``, before anything is given up, where streams that must get no state
        would be read together with streams that need it (L6). ``plan`` refuses the same for states
        saved before the run; a source may send its first shared state only now. Input of ``penstock
        serve`` gets no state."""
        if self._plan.resent or self._progress.go_on(gone):
            return
        role = self._progress.state_role()
        states = role.merge(self._progress.states(), sealed)
        problem = mixed(role, states, sorted(anew), others, self._pipeline)
        if problem is not None:
            raise StateError(
                f"the source cannot be started (again): {problem}",
                code="state.mixed_modes",
                hint="what is sealed is kept, and the saved state is unchanged",
            )

    def _shards_again(
        self, shards: Sequence[PlannedStream], before: LaneStart, waiting: WaitingSlices
    ) -> dict[StreamId, int]:
        """Gives up what the ended epoch sealed of these shards, and returns their generations."""
        items = [
            ConsumedSlice(w.segment, s.id)
            for s in shards
            for w in waiting.get(s.id, ())
            if w.segment.epoch == before.epoch
        ]
        if items:
            self._progress.session.give_up(items)
            self._backlog.drain_for_lane()
        return {s: g for s, g in before.generations if any(s == one.id for one in shards)}

    def state_is_shared(self) -> bool:
        """Whether the source's streams share one state, saved or sealed."""
        return is_shared([*self._progress.states(), *self._backlog.sealed_states()])

    def goes_on(self, start: LaneStart, stream: StreamId, version: int) -> bool:
        """Whether a state that the lane's source was given refers to this version of the stream."""
        return version in self._progress.state_role().versions(start.states, stream)

    def first_generation(self, stream: PlannedStream) -> int:
        """Returns the generation of a stream that its source sends first while it is read."""
        if stream.configured.fills_generation:
            return self._store.new_generation(self._lease, [stream.id])[stream.id]
        return self._store.generations(self._pipeline).get(stream.id, 0)

    def _split(
        self, streams: Sequence[PlannedStream], waiting: WaitingSlices
    ) -> tuple[dict[StreamId, tuple[PendingSlice, ...]], list[PlannedStream]]:
        """Returns the streams whose unfinished generation is resumed, with its slices, and the
        other streams."""
        role, saved = self._progress.state_role(), self._progress.states()
        shared = is_shared(saved)
        floors, refreshes = self._store.floors(self._pipeline), self._progress.refreshes()
        resumed: dict[StreamId, tuple[PendingSlice, ...]] = {}
        anew: list[PlannedStream] = []
        for stream in streams:
            found = waiting.get(stream.id, ())
            newest = max((w.slice.generation for w in found), default=0)
            slices = tuple(w for w in found if w.slice.generation == newest)
            same = all(
                w.slice.disposition.joins_like(stream.disposition)
                and w.slice.schema_version == stream.schema.version
                for w in slices
            )
            same &= not any(_was_reset(w, stream.id, floors) for w in slices)
            if stream.configured.refreshes and stream.id in refreshes:
                same &= all(refreshes[stream.id].has(w.segment.epoch) for w in slices)
            known = any(w.state is not None for w in slices)
            # else the shared state does not cover the stream, and the source sends all of it again
            known |= (
                shared
                and not stream.disposition.refreshes
                and role.without(saved, (stream.id,)) != saved
            )
            if slices and same and known and _resumes(stream.configured):
                resumed[stream.id] = slices
            else:
                anew.append(stream)
        return resumed, anew

    def _given_up(self, streams: Iterable[StreamId], waiting: WaitingSlices) -> set[StreamId]:
        """Returns those of these streams that have unfinished generations, and streams no longer
        synced. An open lane may still send any stream, so unfinished versions wait."""
        floors, known = self._store.floors(self._pipeline), self._progress.streams
        halted = self._progress.session.failures.halted
        gone = {
            s
            for s in streams
            if s in waiting
            and any(not _is_version(w, known[s]) or _was_reset(w, s, floors) for w in waiting[s])
        }
        return gone | {
            s
            for s in waiting
            if s not in known.keys() | halted and not all(self._waits_on(w) for w in waiting[s])
        }

    def _waits_on(self, waiting: PendingSlice) -> bool:
        """Whether a slice of a stream outside the plan waits for a later run: a version of an open
        lane, whose streams are not known yet, or a pending refresh."""
        if self._plan.open:
            return waiting.slice.version is not None
        return waiting.slice.disposition.refreshes

    def _abandon(self, gone: set[StreamId], waiting: WaitingSlices) -> None:
        """Gives up the unfinished generations of these streams."""
        items = [ConsumedSlice(w.segment, s) for s in gone for w in waiting[s]]
        if items:
            # no state was saved for a refresh
            covered = {s for s in gone for w in waiting[s] if not w.slice.disposition.refreshes}
            if covered:
                self._progress.take_states_back(covered)
            self._progress.session.give_up(items)
            self._backlog.kept -= gone
            self._backlog.drain_for_lane()


def _is_version(waiting: PendingSlice, stream: PlannedStream) -> bool:
    """Whether the slice is of a version of an incremental stream, whose state covers its rows: they
    wait to be published."""
    return waiting.slice.version is not None and not stream.configured.fills_generation


def _was_reset(
    waiting: PendingSlice, stream: StreamId, floors: Mapping[StreamId | None, int]
) -> bool:
    return waiting.segment.epoch <= max(floors.get(None, 0), floors.get(stream, 0))


def _resumes(configured: ConfiguredStream) -> bool:
    return configured.fills_generation and configured.can_resume
