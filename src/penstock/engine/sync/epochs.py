"""Which epochs and generations a sync begins, and which it gives up (L4, L6).

Neighbour: ``engine.sync.sync``, which runs the lanes that are begun here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from penstock.engine.deliver.delivery import is_shared
from penstock.engine.deliver.load_plan import Waiting
from penstock.engine.plan.state_names import begins_anew, mixed
from penstock.engine.specs.plan import LaneStart, SyncStream
from penstock.errors import StateError
from penstock.model.catalog import ConfiguredStream, StreamId
from penstock.model.segments import Consumed
from penstock.model.state import SavedState
from penstock.protocols.contract import StateRole
from penstock.state.contract import Lease, Reset, Store
from penstock.state.keys import lane_task


class Epochs:
    """``drain``: discards what was given up."""

    def __init__(
        self,
        pipeline: str,
        *,
        lease: Lease,
        store: Store,
        states: StateRole,
        note: Callable[[str], None],
        drain: Callable[[], None],
        keyed: bool = False,
        gives: bool = True,
    ) -> None:
        """``gives``: a lane's source is given the states (a host's input is not)."""
        self._gives = gives
        self._pipeline, self._lease, self._store, self._states = pipeline, lease, store, states
        self._note, self._drain, self._keyed = note, drain, keyed

    def begin(
        self,
        streams: Sequence[SyncStream],
        lanes: Iterable[int],
        known: Mapping[StreamId, SyncStream],
        waiting: Mapping[StreamId, tuple[Waiting, ...]],
        sealed: Sequence[SavedState] = (),
        *,
        open_lanes: bool = False,
        before: LaneStart | None = None,
    ) -> dict[int, LaneStart]:
        """New epochs for these lanes: from the saved states, and from what a generation that goes
        on being filled has sealed. ``known``: every stream of this sync. ``waiting``: slices of
        generations that are not complete. ``sealed``: states that wait in the log, behind the saved
        ones. ``before``: the lane is begun again; of a stream that is
        divided only its own shard is, in the generation that the others fill."""
        role = self._states
        self._states = role.called(
            {s: role.names_of(k.configured.stream) for s, k in known.items()}
        )
        shards = [s for s in streams if before is not None and s.shards > 1]
        resumed, anew = self._split([s for s in streams if s not in shards], waiting)
        restart = {s.id for s in anew if begins_anew(s.configured)}
        if resumed and not self._states.splits(self._saved(sealed), restart):
            resumed, anew = {}, [s for s in streams if s not in shards]
            restart = {s.id for s in anew if begins_anew(s.configured)}
        gone = self._given_up((s.id for s in anew), known, waiting, open_lanes=open_lanes)
        others = [s.id for s in anew if s.id not in restart]
        self._refuse_mix(restart, others, gone, known, sealed)
        self._abandon(gone, known, waiting)
        restart |= gone & known.keys()
        fresh = [s.id for s in anew if s.configured.fills_generation]
        current = self._store.generations(self._pipeline)
        current.update(self._store.new_generation(self._lease, fresh) if fresh else {})
        if before is not None:
            current |= self._shards_again(shards, before, waiting)
            restart |= {s.id for s in shards}
        on_top: list[SavedState] = []
        for stream, its in resumed.items():
            current[stream] = its[-1].slice.generation
            on_top += [w.state for w in its if w.state is not None][-1:]
        saved = self._states.without(self._saved(sealed), sorted(restart))
        saved = self._states.within(saved, known.keys())
        states = tuple(self._states.merge(saved, on_top))
        starts: dict[int, LaneStart] = {}
        for lane in lanes:
            mine = tuple(s for s in streams if lane in s.lanes)
            if mine or open_lanes:
                epoch = self._store.new_epoch(self._lease, lane)
                if self._keyed:
                    self._store.begin_keys(self._lease, lane_task(epoch))
                starts[lane] = LaneStart(
                    lane=lane,
                    epoch=epoch,
                    streams=mine,
                    generations=tuple((s.id, current.get(s.id, 0)) for s in mine),
                    states=states,
                    open=open_lanes,
                )
        return starts

    def _saved(self, sealed: Sequence[SavedState]) -> list[SavedState]:
        return self._states.merge(self._store.states(self._pipeline), sealed)

    def _refuse_mix(
        self,
        anew: Set[StreamId],
        others: Sequence[StreamId],
        gone: Set[StreamId],
        known: Mapping[StreamId, SyncStream],
        sealed: Sequence[SavedState],
    ) -> None:
        """Before anything is given up: raises ``StateError`` where streams that must be given no
        state would be read beside streams that need it (L6). ``plan`` refuses what was saved before
        the run; a source may show what kind of state it has only now."""
        if not self._gives or self._rely(gone, known):
            return
        problem = mixed(self._states, self._saved(sealed), sorted(anew), others, self._pipeline)
        if problem is not None:
            raise StateError(
                f"the source cannot be begun (again): {problem}",
                code="state.mixed_modes",
                hint="what is sealed is kept, and the saved state is as it was",
            )

    def _shards_again(
        self,
        shards: Sequence[SyncStream],
        before: LaneStart,
        waiting: Mapping[StreamId, tuple[Waiting, ...]],
    ) -> dict[StreamId, int]:
        """Their generations, rid of what the epoch that ended had sealed."""
        items = [
            Consumed(w.segment, s.id)
            for s in shards
            for w in waiting.get(s.id, ())
            if w.segment.epoch == before.epoch
        ]
        if items:
            self._store.abandon(self._lease, items)
            self._drain()
        return {s: g for s, g in before.generations if any(s == one.id for one in shards)}

    def state_is_shared(self, sealed: Sequence[SavedState] = ()) -> bool:
        """Do the streams of the source share one state? ``sealed``: as for :meth:`begin`."""
        return is_shared([*self._store.states(self._pipeline), *sealed])

    def first_generation(self, stream: SyncStream) -> int:
        """Of a stream that its source shows only while it is read."""
        if stream.configured.fills_generation:
            return self._store.new_generation(self._lease, [stream.id])[stream.id]
        return self._store.generations(self._pipeline).get(stream.id, 0)

    def _split(
        self, streams: Sequence[SyncStream], waiting: Mapping[StreamId, tuple[Waiting, ...]]
    ) -> tuple[dict[StreamId, tuple[Waiting, ...]], list[SyncStream]]:
        """Streams whose unfinished generation goes on, and the others."""
        shared = self.state_is_shared()
        floors = self._store.floors(self._pipeline)
        resumed: dict[StreamId, tuple[Waiting, ...]] = {}
        anew: list[SyncStream] = []
        for stream in streams:
            found = waiting.get(stream.id, ())
            newest = max((w.slice.generation for w in found), default=0)
            its = tuple(w for w in found if w.slice.generation == newest)
            same = all(
                w.slice.shape.joins_like(stream.shape)
                and w.slice.schema_version == stream.schema_version
                for w in its
            )
            same &= not any(_was_reset(w, stream.id, floors) for w in its)
            known = shared or any(w.state is not None for w in its)
            if its and same and known and _resumes(stream.configured):
                resumed[stream.id] = its
            else:
                anew.append(stream)
        return resumed, anew

    def _given_up(
        self,
        streams: Iterable[StreamId],
        known: Mapping[StreamId, SyncStream],
        waiting: Mapping[StreamId, tuple[Waiting, ...]],
        *,
        open_lanes: bool,
    ) -> set[StreamId]:
        """Those of these streams that have unfinished generations, and streams no longer synced; of
        open lanes nobody knows which these are, and versions wait on."""
        floors = self._store.floors(self._pipeline)
        gone = {
            s
            for s in streams
            if s in waiting
            and any(not _is_version(w, known[s]) or _was_reset(w, s, floors) for w in waiting[s])
        }
        return gone | {
            s
            for s in waiting
            if s not in known
            and not (open_lanes and all(w.slice.version is not None for w in waiting[s]))
        }

    def _abandon(
        self,
        gone: set[StreamId],
        known: Mapping[StreamId, SyncStream],
        waiting: Mapping[StreamId, tuple[Waiting, ...]],
    ) -> None:
        """Give up the unfinished generations of these streams."""
        items = [Consumed(w.segment, s) for s in gone for w in waiting[s]]
        if items:
            self.take_states_back(gone, known)
            self._store.abandon(self._lease, items)
            self._drain()

    def take_states_back(self, gone: Set[StreamId], known: Mapping[StreamId, SyncStream]) -> None:
        """A shared state may speak for rows that are given up: it must not, before they go. Where
        it does not split, it goes whole, and a stream that relies on it is read again."""
        saved = self._store.states(self._pipeline)
        if not is_shared(saved):
            return
        names = sorted(gone)
        left = self._states.without(saved, names)
        if not left and self._rely(gone, known) and not self._states.splits(saved, names):
            self._note("the source's one state spoke for rows given up: all is read again")
            self._store.replace_states(self._lease, [])
            return
        strip = Reset(tuple(names), lambda states: self._states.without(states, names))
        self._store.replace_states(self._lease, left, strip)

    def _rely(self, gone: Set[StreamId], known: Mapping[StreamId, SyncStream]) -> bool:
        """Does any of these streams go on from its state, as far as anybody knows?"""
        return any(s not in known or not begins_anew(known[s].configured) for s in gone)


def _is_version(waiting: Waiting, stream: SyncStream) -> bool:
    """Rows of an incremental stream whose state speaks for them: they wait to be seen."""
    return waiting.slice.version is not None and not stream.configured.fills_generation


def _was_reset(waiting: Waiting, stream: StreamId, floors: Mapping[StreamId | None, int]) -> bool:
    return waiting.segment.epoch <= max(floors.get(None, 0), floors.get(stream, 0))


def _resumes(configured: ConfiguredStream) -> bool:
    return configured.fills_generation and configured.can_resume
