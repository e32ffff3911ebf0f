"""Which epochs and generations a sync begins, and which it gives up (L4, L6).

Neighbour: ``engine.sync``, which runs the lanes that are begun here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from penstock.engine.delivery import is_shared
from penstock.engine.pending import Waiting
from penstock.model.catalog import ConfiguredStream, StreamId, SyncMode
from penstock.model.segments import Consumed, Shape
from penstock.model.state import SavedState, StateType
from penstock.protocols.contract import StateRole
from penstock.state.contract import Lease, Reset, Store
from penstock.state.keys import lane_task


class SyncStream(msgspec.Struct, frozen=True, kw_only=True):
    """``held``: its loads wait for the end of the sync (a Parquet table that is rewritten).
    ``shards``: in how many it is read side by side, into one generation."""

    configured: ConfiguredStream
    shape: Shape
    schema_version: int
    lane: int = 0
    held: bool = False
    shards: int = 1

    @property
    def id(self) -> StreamId:
        return self.configured.id

    @property
    def lanes(self) -> range:
        """Lanes that read it: shard N is read by lane N."""
        return range(self.shards) if self.shards > 1 else range(self.lane, self.lane + 1)


class LaneStart(msgspec.Struct, frozen=True, kw_only=True):
    """``open``: the lane takes streams that nobody knows yet. ``attempt``: how often it was begun,
    this time included. ``tries``: how often a stream was tried before, because its source said that
    it may be."""

    lane: int
    epoch: int
    streams: tuple[SyncStream, ...]
    generations: tuple[tuple[StreamId, int], ...]
    states: tuple[SavedState, ...]
    open: bool = False
    attempt: int = 1
    tries: tuple[tuple[StreamId, int], ...] = ()


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
    ) -> None:
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
        shards = [s for s in streams if before is not None and s.shards > 1]
        resumed, anew = self._split([s for s in streams if s not in shards], waiting)
        restart = {s.id for s in anew if s.configured.sync_mode is SyncMode.full_refresh}
        restart |= self._abandon((s.id for s in anew), known, waiting, open_lanes=open_lanes)
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
        saved = self._states.merge(self._store.states(self._pipeline), sealed)
        saved = self._states.without(saved, sorted(restart))
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

    def first_generation(self, stream: SyncStream) -> int:
        """Of a stream that its source shows only while it is read."""
        if stream.configured.fills_generation:
            return self._store.new_generation(self._lease, [stream.id])[stream.id]
        return self._store.generations(self._pipeline).get(stream.id, 0)

    def _split(
        self, streams: Sequence[SyncStream], waiting: Mapping[StreamId, tuple[Waiting, ...]]
    ) -> tuple[dict[StreamId, tuple[Waiting, ...]], list[SyncStream]]:
        """Streams whose unfinished generation goes on, and the others."""
        shared = is_shared(self._store.states(self._pipeline))
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

    def _abandon(
        self,
        streams: Iterable[StreamId],
        known: Mapping[StreamId, SyncStream],
        waiting: Mapping[StreamId, tuple[Waiting, ...]],
        *,
        open_lanes: bool,
    ) -> set[StreamId]:
        """Give up unfinished generations of these streams, and of streams no longer synced; of open
        lanes nobody knows which these are, and versions wait on."""
        floors = self._store.floors(self._pipeline)
        gone = {
            s
            for s in streams
            if s in waiting
            and any(not _is_version(w, known[s]) or _was_reset(w, s, floors) for w in waiting[s])
        }
        gone |= {
            s
            for s in waiting
            if s not in known
            and not (open_lanes and all(w.slice.version is not None for w in waiting[s]))
        }
        items = [Consumed(w.segment, s) for s in gone for w in waiting[s]]
        if items:
            self._take_states_back(gone, known)
            self._store.abandon(self._lease, items)
            self._drain()
        return gone & known.keys()

    def _take_states_back(self, gone: set[StreamId], known: Mapping[StreamId, SyncStream]) -> None:
        """A shared state may speak for rows that are given up: it must not, before they go. Where
        it cannot be told apart (LEGACY) and a stream relies on it, everything is read again."""
        saved = self._store.states(self._pipeline)
        if not is_shared(saved):
            return
        names = sorted(gone)
        left = self._states.without(saved, names)
        relies = any(
            s not in known or known[s].configured.sync_mode is not SyncMode.full_refresh
            for s in gone
        )
        if left == saved and relies and any(s.scope.type is StateType.legacy for s in saved):
            self._note("the source's one state spoke for rows given up: all is read again")
            self._store.replace_states(self._lease, [])
            return
        strip = Reset(tuple(names), lambda states: self._states.without(states, names))
        self._store.replace_states(self._lease, left, strip)


def _is_version(waiting: Waiting, stream: SyncStream) -> bool:
    """Rows of an incremental stream whose state speaks for them: they wait to be seen."""
    return waiting.slice.version is not None and not stream.configured.fills_generation


def _was_reset(waiting: Waiting, stream: StreamId, floors: Mapping[StreamId | None, int]) -> bool:
    return waiting.segment.epoch <= max(floors.get(None, 0), floors.get(stream, 0))


def _resumes(configured: ConfiguredStream) -> bool:
    return configured.fills_generation and configured.can_resume
