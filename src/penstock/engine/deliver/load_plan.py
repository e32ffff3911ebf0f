"""Decides which sealed segments become which loads: pure decisions over the log and the ledger.

Not here: commits, clocks, files. Neighbour: ``engine.sync.backlog``. The rules:

* A segment of a closed epoch beyond its fence does not count (L4, L12).
* Segments of an epoch follow each other without a gap: what is not in the log was consumed (L3).
* A stream's rows load in the order of their segments; a load never spans two schema versions or two
  write dispositions; a shared state waits for every stream's load of its segments (L1).
* Rows of a stream that fills a generation load only once the generation is complete, all in one
  load (L6). They do not hold a shared state back: a full refresh starts without state, and a
  version of an incremental stream waits in the log until it is whole.
* A version's load comes after the stream's rows before it and before those after it.
* The part of a state for a stream whose refresh is not published is not saved. In a shared state
  only that part waits where it can be separated. Else the whole state and every row that it covers
  wait, and one group has the refresh's load and the state.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import groupby

import msgspec

from penstock.engine.deliver.state_parts import NO_STATE
from penstock.engine.log.log import DAMAGED_HINT
from penstock.errors import LogError
from penstock.model.catalog import DestinationSyncMode, StreamId
from penstock.model.segments import SHARED_STATE, ConsumedSlice, Segment, SegmentId, StreamSlice
from penstock.model.state import StateScope, StateType, StoredState
from penstock.store.contract import GroupIntent, LoadIntent
from penstock.store.keys import CoveredKeys, lane_task
from penstock.store.remembered import Refresh

Taken = tuple[SegmentId, StreamId]


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """What is sealed and not consumed. ``ready``: groups that may be committed now, in order.
    ``publishes``: streams with a generation that ``ready`` completes. ``waiting``: per stream, the
    slices of incomplete generations, with their states. ``spent``: segments that are not needed any
    more. ``activates``: (stream, generation, version) of incremental streams, whose rows of older
    versions are replaced; ``refreshes``: the same of full refreshes whose rows have a version.
    ``amid_shared``: streams in ``activates`` whose other rows share a state. ``held``: segments
    that wait, with all of their rows, for a refresh whose part of their shared state cannot be
    separated."""

    ready: tuple[GroupIntent, ...]
    publishes: frozenset[StreamId]
    activates: tuple[tuple[StreamId, int, int], ...]
    refreshes: tuple[tuple[StreamId, int, int], ...]
    amid_shared: frozenset[StreamId]
    waiting: "Mapping[StreamId, tuple[PendingSlice, ...]]"
    spent: tuple[Segment, ...]
    held: tuple[Segment, ...] = ()

    @property
    def raw_bytes(self) -> int:
        """Returns the bytes of the records in ``ready``, as the source sent them."""
        return sum(p.raw_bytes for g in self.ready for load in g.loads for p in load.parts)


class Refreshes(msgspec.Struct, frozen=True):
    """The refreshes that users requested. ``newest``: of each stream, ended or not. ``moves``:
    whether these streams' parts can be separated in this state, and in the saved one."""

    newest: Mapping[StreamId, Refresh] = {}
    moves: Callable[[StoredState, Collection[StreamId]], bool] = lambda state, streams: True

    def of(self, segment: Segment) -> tuple[StreamId, ...]:
        """Returns the streams that were refreshed in the segment's epoch."""
        newest = self.newest.items()
        return tuple(sorted(s for s, refresh in newest if refresh.covers(segment.id.epoch)))

    def moves_of(self, segment: Segment) -> bool:
        """Whether the part of each refreshed stream can be separated in the segment's state."""
        if segment.scope is None or segment.state is None:
            return True
        streams = self.of(segment)
        return not streams or self.moves(StoredState(segment.scope, segment.state), streams)

    def tied(self, segment: Segment) -> frozenset[StreamId]:
        """Returns the streams whose pending refresh holds the segment's shared state back, as their
        part of it cannot be separated."""
        if self.moves_of(segment):
            return frozenset()
        return frozenset(s for s in self.of(segment) if self.newest[s].pending)


class PendingSlice(msgspec.Struct, frozen=True):
    """A slice of an incomplete generation, with the stream's own state (None: shared, or the
    segment has none); for a refresh, with its part of the shared state."""

    segment: SegmentId
    slice: StreamSlice
    state: StoredState | None
    keys: int = 0  # as in the segment, where its state is this stream's alone


def visible(segments: Iterable[Segment], closed: Mapping[int, int]) -> list[Segment]:
    """Returns the segments up to their epoch's fence (``closed``: its last segment; L4, L12)."""
    return [s for s in segments if s.id.seq <= closed.get(s.id.epoch, s.id.seq)]


def chained(
    segments: Sequence[Segment],
    consumed: AbstractSet[ConsumedSlice],
    closed: Mapping[int, int],
    shares: Mapping[int, int] | None = None,
) -> list[Segment]:
    """Returns ``segments`` (by id) up to the first gap of their epoch: what is no longer in the log
    must have been ``consumed`` (L3). In an epoch that is still read, segments behind a gap wait,
    since its manifest may not be visible yet. Raises ``LogError`` (``log.corrupt``) for a gap in an
    epoch that is ``closed``, and for one at its end: ``shares`` has the number of shares up to its
    fence. Segment numbers alone prove nothing, since not each number was sealed."""
    taken: dict[int, Counter[int]] = {}
    for item in consumed:
        taken.setdefault(item.segment.epoch, Counter())[item.segment.seq] += 1
    found: list[Segment] = []
    by_epoch = {e: list(sealed) for e, sealed in groupby(segments, key=lambda s: s.id.epoch)}
    due = shares or {}
    for epoch in sorted({*by_epoch, *due}):
        counts, known, seq = taken.get(epoch, Counter[int]()), 0, 0
        for segment in by_epoch.get(epoch, ()):
            known += sum(counts[n] for n in range(seq + 1, segment.id.seq))
            if segment.before is not None and known < segment.before:
                if epoch in closed:
                    raise _gap(epoch, seq + 1, segment.id.seq - 1)
                break
            found.append(segment)
            known, seq = known + segment.shares, segment.id.seq
        if epoch in closed and epoch in due:
            known += sum(counts[n] for n in range(seq + 1, closed[epoch] + 1))
            if known < due[epoch]:
                raise _gap(epoch, seq + 1, closed[epoch])
    return found


def _gap(epoch: int, first: int, last: int) -> LogError:
    which = f"segment {first}" if first == last else f"one of the segments {first} to {last}"
    return LogError(
        f"the log lacks {which} of epoch {epoch}, and no load has it: a manifest "
        f"(epochs/{epoch:08d}/seg-*.json) was lost",
        code="log.corrupt",
        hint=DAMAGED_HINT,
    )


def decide(
    segments: Sequence[Segment],
    consumed: set[ConsumedSlice],
    *,
    blocked: frozenset[StreamId] = frozenset(),
    deferred: frozenset[StreamId] = frozenset(),
    patient: bool = False,
    ack_per_state: bool = False,
    ended: Mapping[StreamId, int] | None = None,
    refreshes: Refreshes | None = None,
) -> Pending:
    """Decides what may be loaded. ``segments``: visible ones, by id. ``blocked``: streams whose
    last load failed: none of their rows, and no state that they share, is delivered. ``deferred``:
    streams that load only at the end of the sync; they hold a state back that they share.
    ``patient``: an incomplete generation holds it back too. ``ack_per_state``: one group for each
    state, where states are acked one by one. ``ended``: streams that their source completed in this
    sync, with the newest visible generation of each: a later version is complete, even if an
    earlier epoch read it entirely. ``refreshes``: those that were requested."""
    refreshes, groups = refreshes or Refreshes(), list[GroupIntent]()
    generations: dict[tuple[StreamId, int], list[PendingSlice]] = {}
    streams, shared, spent = _by_scope(segments, consumed)
    for segment in (
        *shared,
        *(s for n, ordered in streams.items() if n not in blocked for s in ordered),
    ):
        _collect(segment, consumed, generations)
    excluded = blocked | deferred
    complete, waiting = _generations(generations, excluded, ended or {})
    open_states = [s for s in shared if ConsumedSlice(s.id, SHARED_STATE) not in consumed]
    tied = frozenset(stream for s in open_states for stream in refreshes.tied(s))
    held = bool(tied - {p.stream for p in complete})
    waits = held or any(_touches(s, excluded) for s in shared)
    if tied and waits:
        complete, waiting = _generations(generations, excluded | tied, ended or {})
    whole = [p for p in complete if p.version is None]
    cuts = _cuts(complete, {s.id: None if s.scope is None else s.scope.stream for s in segments})
    for stream, ordered in streams.items():
        if stream not in blocked | deferred:
            live = [s for s in ordered if not any(x.fills_generation for x in s.slices)]
            groups += _groups(live, consumed, cuts.get(stream, []), ack_per_state, refreshes)
    waits |= patient and any(
        s.fills_generation and s.stream in waiting for segment in shared for s in segment.slices
    )
    if not waits:
        found = _groups(shared, consumed, cuts.get(None, []), ack_per_state, refreshes)
        groups += _joined(found, [p.group for p in whole if p.stream in tied])
    return Pending(
        ready=(*groups, *(p.group for p in whole if p.stream not in tied)),
        publishes=frozenset(p.stream for p in whole),
        activates=tuple(
            (p.stream, p.generation, p.version) for p in complete if p.version is not None
        ),
        refreshes=tuple(
            (p.stream, p.generation, p.refreshed_as) for p in whole if p.refreshed_as is not None
        ),
        amid_shared=frozenset(version.stream for version in cuts.get(None, [])),
        waiting=waiting,
        spent=tuple(spent),
        held=tuple(open_states) if held else (),
    )


def _by_scope(
    segments: Sequence[Segment], consumed: set[ConsumedSlice]
) -> tuple[dict[StreamId, list[Segment]], list[Segment], list[Segment]]:
    """Returns the segments of each stream's own state, those of the shared state, and those of
    which nothing is left to load."""
    streams: dict[StreamId, list[Segment]] = {}
    shared: list[Segment] = []
    spent: list[Segment] = []
    for segment in segments:
        if not _unconsumed(segment, consumed):
            spent.append(segment)
        elif segment.scope is not None and segment.scope.stream is not None:
            streams.setdefault(segment.scope.stream, []).append(segment)
        elif segment.scope is not None:
            shared.append(segment)
    return streams, shared, spent


def _cuts(
    complete: "Sequence[_Published]", scopes: Mapping[SegmentId, StreamId | None]
) -> "dict[StreamId | None, list[_Published]]":
    """Returns the complete versions in order of their last segments, by its scope."""
    cuts: dict[StreamId | None, list[_Published]] = {}
    for version in sorted((p for p in complete if p.version is not None), key=lambda p: p.last):
        cuts.setdefault(scopes[version.last], []).append(version)
    return cuts


def _joined(groups: list[GroupIntent], published: Sequence[GroupIntent]) -> list[GroupIntent]:
    """Adds the loads of refreshes to the last group, whose state covers them: the state is saved
    after them, because their parts of it cannot be separated."""
    if not published:
        return groups
    last = groups[-1]
    of_all = (last, *published)
    joined = msgspec.structs.replace(
        last,
        loads=tuple(load for group in of_all for load in group.loads),
        states=tuple(msgspec.structs.replace(s, without=()) for s in last.states),
        consumes=tuple(taken for group in of_all for taken in group.consumes),
        keys=tuple(key for group in of_all for key in group.keys),
    )
    return [*groups[:-1], joined]


def _unconsumed(segment: Segment, consumed: set[ConsumedSlice]) -> set[StreamId]:
    wanted = {s.stream for s in segment.slices}
    if segment.scope is not None and segment.scope.stream is None:
        wanted.add(SHARED_STATE)
    return {s for s in wanted if ConsumedSlice(segment.id, s) not in consumed}


def _touches(segment: Segment, streams: frozenset[StreamId]) -> bool:
    return any(s.stream in streams and not s.fills_generation for s in segment.slices)


def _collect(
    segment: Segment,
    consumed: set[ConsumedSlice],
    generations: dict[tuple[StreamId, int], list[PendingSlice]],
) -> None:
    own = segment.scope is not None and segment.scope.stream is not None
    state = None
    if own and segment.scope is not None and segment.state is not None:
        state = StoredState(segment.scope, segment.state)
    for part in segment.slices:
        if part.fills_generation and ConsumedSlice(segment.id, part.stream) not in consumed:
            key = (part.stream, part.generation)
            keys = segment.keys if own else 0
            of_part = state
            if part.disposition.refreshes and not own:
                of_part = _part_of(segment, part.stream)
            generations.setdefault(key, []).append(PendingSlice(segment.id, part, of_part, keys))


def _part_of(segment: Segment, stream: StreamId) -> StoredState | None:
    """Returns the part of the segment's shared state for one stream; None: it has no state."""
    if segment.scope is None or segment.state is None:
        return None
    scope = StateScope(StateType.stream, stream)
    return StoredState(scope, segment.state, part=segment.scope)


def _groups(
    segments: Sequence[Segment],
    consumed: set[ConsumedSlice],
    cuts: "Sequence[_Published]",
    ack_per_state: bool,
    refreshes: Refreshes,
) -> list[GroupIntent]:
    """Returns the groups of one scope's segments, in order, split where a stream's schema or write
    disposition changes, where a version becomes visible between them (``cuts``, in order), and
    after each state (``ack_per_state``)."""
    groups: list[GroupIntent] = []
    batch: list[tuple[Segment, list[StreamSlice]]] = []
    kinds: dict[StreamId, tuple[object, int, int]] = {}
    left = list(cuts)
    for segment in segments:
        if ConsumedSlice(segment.id, SHARED_STATE) in consumed:
            continue
        while left and left[0].last <= segment.id:
            groups += [*([_group(batch, refreshes)] if batch else []), left.pop(0).group]
            batch, kinds = [], {}
        live = [
            s
            for s in segment.slices
            if not s.fills_generation and ConsumedSlice(segment.id, s.stream) not in consumed
        ]
        # A slice without rows never cuts: each group after the first then has a load, and no state
        # is saved before the loads of the group ahead of it.
        filled = [s for s in live if s.parts or s.read]
        if kinds and any(kinds.get(s.stream, _kind(s)) != _kind(s) for s in filled):
            groups.append(_group(batch, refreshes))
            batch, kinds = [], {}
        batch.append((segment, live))
        kinds.update({s.stream: _kind(s) for s in filled})
        if ack_per_state and segment.state is not None:
            groups.append(_group(batch, refreshes))
            batch, kinds = [], {}
    last = [_group(batch, refreshes)] if batch else []
    return [*groups, *last, *(cut.group for cut in left)]


def _kind(part: StreamSlice) -> tuple[object, int, int]:
    return part.disposition, part.schema_version, part.generation


def _group(batch: Sequence[tuple[Segment, list[StreamSlice]]], refreshes: Refreshes) -> GroupIntent:
    slices: dict[StreamId, list[tuple[SegmentId, StreamSlice]]] = {}
    consumes: list[Taken] = []
    states: dict[StateScope, StoredState] = {}
    for segment, live in batch:
        for part in live:
            slices.setdefault(part.stream, []).append((segment.id, part))
            consumes.append((segment.id, part.stream))
        if segment.scope is not None:
            if segment.scope.stream is None:
                consumes.append((segment.id, SHARED_STATE))
            if segment.state is not None:
                without = refreshes.of(segment) if segment.scope.stream is None else ()
                state = StoredState(segment.scope, segment.state, without=without)
                states[segment.scope] = state
    return GroupIntent(
        loads=tuple(load for s in slices.values() if (load := _load(s)) is not None),
        states=tuple(states.values()),
        epoch=batch[-1][0].id.epoch,
        consumes=tuple(consumes),
        keys=tuple(key for segment, live in batch for key in _covers(segment, live)),
    )


def covered(
    segments: Iterable[Segment], consumed: AbstractSet[ConsumedSlice] = frozenset()
) -> Iterator[CoveredKeys]:
    """Yields the checkpoints of connector keys that these segments still cover."""
    for segment in segments:
        left = [s for s in segment.slices if ConsumedSlice(segment.id, s.stream) not in consumed]
        if left:
            yield from _covers(segment, left)


def _covers(segment: Segment, slices: Iterable[StreamSlice]) -> Iterator[CoveredKeys]:
    if segment.keys and segment.scope is not None:
        yield CoveredKeys(lane_task(segment.id.epoch), segment.scope.key, segment.keys)
    for part in slices:
        yield from _of_slice(segment.id, part)


def _of_slice(segment: SegmentId, part: StreamSlice) -> Iterator[CoveredKeys]:
    for place, number in part.keys:
        yield CoveredKeys(lane_task(segment.epoch), part.stream.key, number, place)


def _of_waiting(waits: PendingSlice) -> Iterator[CoveredKeys]:
    if waits.keys:
        yield CoveredKeys(lane_task(waits.segment.epoch), waits.slice.stream.key, waits.keys)
    yield from _of_slice(waits.segment, waits.slice)


def _load(
    slices: Sequence[tuple[SegmentId, StreamSlice]], *, replaces: bool = False
) -> LoadIntent | None:
    """Returns the load of these slices; None: there is nothing to commit. A load without rows
    counts its rejects."""
    last = next((s for _, s in reversed(slices) if s.parts or s.read), slices[-1][1])
    read = sum(s.read for _, s in slices)
    parts = tuple(p for _, s in slices for p in s.parts)
    if not parts and not read and not replaces:
        return None
    return LoadIntent(
        stream=last.stream,
        disposition=last.disposition,
        segments=tuple(i for i, _ in slices),
        parts=parts,
        schema_version=last.schema_version,
        generation=last.generation,
        replaces=replaces,
        read=read,
        rejected=sum(s.rejected for _, s in slices),
        filtered=sum(s.filtered for _, s in slices),
        shards=_shards(slices),
    )


def _shards(slices: Sequence[tuple[SegmentId, StreamSlice]]) -> tuple[tuple[int, int], ...]:
    """Returns the shards, as in ``Load.shards``; for one lane alone, none."""
    found = {i.epoch: s.shard.index for i, s in slices if s.shard is not None}
    return tuple(sorted(found.items())) if len({*found.values()}) > 1 else ()


class _Published(msgspec.Struct, frozen=True):
    """The load of a complete generation. ``last``: the segment that completes it. ``version``: of
    an incremental stream. ``refreshed_as``: of a full refresh whose rows have a version."""

    group: GroupIntent
    stream: StreamId
    generation: int
    last: SegmentId
    version: int | None
    refreshed_as: int | None


def _generations(
    found: Mapping[tuple[StreamId, int], list[PendingSlice]],
    excluded: frozenset[StreamId],
    ended: Mapping[StreamId, int],
) -> tuple[list[_Published], dict[StreamId, tuple[PendingSlice, ...]]]:
    """Returns the complete generations, oldest first, and the slices of the others. A stream has
    one generation at a time, as the next begins only after this one is published or given up; of
    versions there may be several, each with rows after it."""
    complete: list[_Published] = []
    waiting: dict[StreamId, tuple[PendingSlice, ...]] = {}
    newest = dict(sorted(found, key=lambda key: key[1]))
    for (stream, generation), slices in sorted(found.items(), key=lambda kv: kv[0][1]):
        before = waiting.get(stream, ())
        whole = _every_shard(w.slice for w in slices)
        if generation == newest[stream] and generation > ended.get(stream, generation):
            whole |= slices[-1].slice.version is not None
        if stream in excluded or not whole:
            waiting[stream] = (*before, *slices)
            continue
        older = [w for w in before if w.slice.version is not None]
        complete.append(_publication(stream, slices, older))
        left = tuple(w for w in before if w.slice.version is None)
        waiting.pop(stream, None)
        if left:
            waiting[stream] = left
    return complete, waiting


def _every_shard(slices: Iterable[StreamSlice]) -> bool:
    """Whether a generation is complete: where it is read in shards, every shard is."""
    done = [s.shard for s in slices if s.complete]
    shards = {shard.index: shard.count for shard in done if shard is not None}
    return len(done) > len(shards) if not shards else len(shards) == max(shards.values())


def _publication(
    stream: StreamId, slices: list[PendingSlice], older: Sequence[PendingSlice]
) -> _Published:
    """Builds the one load that publishes a whole generation. Its parts have one schema version: a
    generation that meets a schema change starts again. ``older``: slices of versions that it
    replaces before they were published."""
    last = slices[-1].slice
    written = last.disposition
    overwrites = written.mode is DestinationSyncMode.overwrite or written.replaces
    replaces = overwrites or written.refreshes or last.version is not None
    load = _load([(w.segment, w.slice) for w in slices], replaces=replaces)
    if load is not None and older:
        load = msgspec.structs.replace(
            load,
            read=load.read + sum(w.slice.read for w in older),
            rejected=load.rejected + sum(w.slice.rejected for w in older),
            filtered=load.filtered + sum(w.slice.read - w.slice.rejected for w in older),
        )
    states = [w.state for w in slices if w.state is not None]
    if last.disposition.refreshes and not states:  # the state saved before belongs to other rows
        scope = StateScope(StateType.stream, stream)
        states = [StoredState(scope, NO_STATE, part=scope)]
    group = GroupIntent(
        loads=() if load is None else (load,),
        states=tuple(states[-1:]),
        epoch=slices[-1].segment.epoch,
        consumes=tuple((w.segment, stream) for w in (*older, *slices)),
        keys=tuple(key for w in (*older, *slices) for key in _of_waiting(w)),
    )
    versions = [w.slice.refreshed_as for w in slices if w.slice.refreshed_as is not None]
    refreshed_as = versions[-1] if versions else None
    segment = slices[-1].segment
    return _Published(group, stream, last.generation, segment, last.version, refreshed_as)
