"""The contract of the state store.

One store serves many pipelines. Every write of a run checks its lease's token in the same
transaction (L12) and raises ``LeaseLost`` when another run took the pipeline over. Neighbours:
``engine`` decides what is written; ``state.sql`` and ``state.memory`` keep it; what a state means
is ``protocols/*/state.py``'s business, passed in as ``merge``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from penstock.model.catalog import StreamId
from penstock.model.segments import (
    SHARED_STATE,
    Consumed,
    Group,
    Load,
    PartRef,
    SegmentId,
    Shape,
)
from penstock.model.state import SavedState
from penstock.model.types import RowSchema
from penstock.state.keys import Covered, Place
from penstock.state.remembered import Remembered

Merge = Callable[[Sequence[SavedState], Sequence[SavedState]], list[SavedState]]


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who runs: shown to whoever finds the pipeline locked. ``boot`` and ``pid`` let a holder that
    died on the same machine be recognised before its lease runs out."""

    name: str  # user@host
    pid: int
    boot: str
    started_at: str
    run: str


class Lease(msgspec.Struct, frozen=True):
    """``state_id``: born with the pipeline's state, never changed by a reset (L3)."""

    pipeline: str
    token: str
    state_id: str


class LoadIntent(msgspec.Struct, frozen=True, kw_only=True):
    """A load without its number."""

    stream: StreamId
    shape: Shape
    segments: tuple[SegmentId, ...]
    parts: tuple[PartRef, ...]
    schema_version: int
    generation: int
    replaces: bool = False
    read: int = 0
    rejected: int = 0
    filtered: int = 0

    @property
    def reaches_table(self) -> bool:
        """As of :class:`Load`."""
        return bool(self.parts) or self.replaces


class GroupIntent(msgspec.Struct, frozen=True, kw_only=True):
    loads: tuple[LoadIntent, ...]
    states: tuple[SavedState, ...]
    epoch: int
    consumes: tuple[tuple[SegmentId, StreamId], ...]
    keys: tuple[Covered, ...] = ()
    """What its checkpoints cover of connectors' keys: durable in the transaction that saves its
    states."""

    @property
    def streams(self) -> frozenset[StreamId]:
        """Streams that it takes further: by rows, or by a state of theirs that came without any."""
        return frozenset(stream for _, stream in self.consumes if stream != SHARED_STATE)


class KeyedGroup(Group, frozen=True, kw_only=True):
    """A group as the store keeps it."""

    keys: tuple[Covered, ...] = ()


class SourceOf(msgspec.Struct, frozen=True):
    """What a pipeline's states are the states of. ``reference``: as the user wrote it; it may hold
    whatever a command line may, so it is never shown."""

    protocol: str
    reference: str


class Reset(msgspec.Struct, frozen=True):
    """A reset of some streams. ``strip``: any states without those of ``streams``; applied to what
    is written down and not saved yet."""

    streams: tuple[StreamId, ...]
    strip: Callable[[Sequence[SavedState]], list[SavedState]]


class Store(Protocol):
    # -- the lease (L12)
    def acquire(self, pipeline: str, holder: Holder, ttl: float) -> Lease:
        """Raises ``Locked`` (names the holder and its start). Breaks the lock of a holder that is
        dead (same boot, pid gone) or whose lease ran out."""
        ...

    def renew(self, lease: Lease, ttl: float) -> None: ...

    def release(self, lease: Lease) -> None: ...

    # -- counters, never restarted
    def new_epoch(self, lease: Lease, lane: int) -> int:
        """Unique in the pipeline and growing, over all lanes."""
        ...

    def close_epochs(
        self, lease: Lease, last: dict[int, int], shares: Mapping[int, int] | None = None
    ) -> None:
        """Fence: of epoch ``k`` only segments up to seq ``last[k]`` count from now on, whatever a
        process that is still alive somewhere seals later. ``shares[k]``: how much those hold that
        is to be consumed (``Segment.shares``)."""
        ...

    def closed_epochs(self, pipeline: str) -> dict[int, int]: ...

    def shares(self, pipeline: str) -> dict[int, int]:
        """Of closed epochs that were not forgotten, as :meth:`close_epochs` was told."""
        ...

    def open_epochs(self, pipeline: str) -> set[int]:
        """Epochs that were given out and not closed, whether or not their log exists: a driver that
        was overtaken may begin one later."""
        ...

    def new_generation(self, lease: Lease, streams: Iterable[StreamId]) -> dict[StreamId, int]:
        """Per stream, from 1, growing."""
        ...

    def generations(self, pipeline: str) -> dict[StreamId, int]: ...

    # -- the ledger (L1, L3)
    def intend(self, lease: Lease, groups: Sequence[GroupIntent], merge: Merge) -> list[Group]:
        """Write down what will be committed, in one transaction, giving each load its number. A
        group without loads is committed at once and its states are saved."""
        ...

    def settle(self, lease: Lease, groups: Sequence[GroupIntent], merge: Merge) -> list[Group]:
        """:meth:`intend` of what is committed already (a destination has acked it), and
        :meth:`loaded` of every load of it, in one transaction and under the rules of both."""
        ...

    def loaded(self, lease: Lease, done: Sequence[tuple[int, Load]], merge: Merge) -> None:
        """Mark loads (group id, load) committed; save the states of each group of which this was
        the last, unless its epoch is not above the floor of the state's scope. One transaction."""
        ...

    def adopt(self, lease: Lease, streams: Iterable[StreamId], *, anew: bool = False) -> None:
        """The tables of these streams are right as they are: the next load of each follows any
        number, and may be renumbered (:meth:`renumber`), until one is committed. A reset does it
        for its streams. ``anew``: the first load of what is read from now on replaces the table's
        rows."""
        ...

    def renumber(self, lease: Lease, above: Mapping[StreamId, int]) -> set[StreamId]:
        """Of these streams those that adopt: their loads that are not committed get new numbers, in
        order, above the one given (that their table has)."""
        ...

    def open_groups(self, pipeline: str) -> list[Group]:
        """Groups with a load that is not committed, oldest first, whole."""
        ...

    def committed_loads(self, pipeline: str, group: int) -> set[tuple[str, int]]:
        """(key, number) of the loads of an open group that are committed already."""
        ...

    def consumed(self, pipeline: str, epochs: Iterable[int]) -> set[Consumed]:
        """What groups took or what was abandoned, of these epochs."""
        ...

    def abandon(self, lease: Lease, items: Iterable[Consumed]) -> None: ...

    def forget(self, lease: Lease, epochs: Iterable[int]) -> None:
        """Drop what is remembered of these epochs' segments; their log files are gone. Keys that
        they wrote and no checkpoint made durable go with them."""
        ...

    # -- states
    def states(self, pipeline: str) -> list[SavedState]: ...

    def replace_states(
        self, lease: Lease, states: Sequence[SavedState], reset: Reset | None = None
    ) -> None:
        """A user's set, import or reset: replaces everything saved, and raises the floor so that no
        segment sealed before can bring an older state back (its rows still load). ``reset``: only
        these streams'; the others' sealed states still count. No state at all gives up the loads
        that are written down and not committed: the source is asked for everything again.
        A reset adopts the tables of its streams (:meth:`adopt`).
        Connectors' keys: of ``reset`` the streams' own ones go, with no state at all every one;
        what no checkpoint has made durable goes wherever its checkpoint no longer counts."""
        ...

    def floors(self, pipeline: str) -> dict[StreamId | None, int]:
        """The last epoch before a reset, per stream; None: of everything."""
        ...

    def state_history(self, pipeline: str, limit: int = 100) -> list[dict[str, Any]]:
        """Newest first: {"at", "run", "scope", "blob"}."""
        ...

    # -- connectors' own keys
    def begin_keys(self, lease: Lease, task: str) -> None:
        """From now on ``task`` may write keys (``task_keys.open_keys``). Names are never used
        again: ``keys.lane_task``, ``keys.push_task``."""
        ...

    def end_keys(
        self, lease: Lease, covered: Iterable[Covered] = (), tasks: Iterable[str] | None = None
    ) -> None:
        """These tasks (None: all) write no more, whoever of them is still alive. What they wrote
        beyond what written groups and ``covered`` cover is gone; ``covered``: of checkpoints that
        are sealed and not yet in a group."""
        ...

    def connector_keys(self, pipeline: str) -> dict[Place, str]:
        """The durable ones, sorted."""
        ...

    # -- what is remembered of streams, and schemas, which only grow
    def remembered(self, pipeline: str, streams: Iterable[StreamId] | None = None) -> Remembered:
        """What earlier runs, and this one, found out of these streams (None: of all); the names of
        tables are those of all streams."""
        ...

    def remember(
        self, lease: Lease, more: Remembered, *, taken_up: Iterable[StreamId] = ()
    ) -> None:
        """Add to it, in one transaction. A name that is there never changes: raises ``StateError``
        (``state.name_changed``). ``modes``: hold from now on. ``taken_up``: streams that are passed
        over no longer."""
        ...

    def schema_version(self, lease: Lease, stream: StreamId, schema: RowSchema) -> RowSchema:
        """The schema with its version: the stored one where equal to the newest, else the next."""
        ...

    def schema_versions(
        self, lease: Lease, schemas: Mapping[StreamId, RowSchema]
    ) -> dict[StreamId, RowSchema]:
        """:meth:`schema_version` of many streams, in one transaction."""
        ...

    def schemas(self, pipeline: str, stream: StreamId) -> dict[int, RowSchema]: ...

    def newest_schemas(
        self, pipeline: str, streams: Iterable[StreamId]
    ) -> dict[StreamId, RowSchema]:
        """Of those that have one."""
        ...

    def remember_source(self, lease: Lease, protocol: str, reference: str) -> None:
        """Whose states the pipeline's are from now on (the newest call holds)."""
        ...

    def source_of(self, pipeline: str) -> SourceOf | None:
        """None: no run has said it."""
        ...

    def known_streams(self, pipeline: str) -> set[StreamId]:
        """Streams that some run of this pipeline has synced (they have a generation, a schema or a
        state): a source that no longer has one is noted, not an error."""
        ...

    # -- connector configuration that a connector changed (CONTROL): secret
    def config_override(self, pipeline: str, role: str) -> tuple[str, dict[str, Any]] | None:
        """(hash of the user's config it was derived from, the whole new config)."""
        ...

    def set_config_override(
        self, lease: Lease, role: str, base_hash: str, config: dict[str, Any]
    ) -> None: ...

    # -- runs
    def start_run(self, lease: Lease, run: str, started_at: str) -> None: ...

    def finish_run(self, lease: Lease, run: str, report: dict[str, Any]) -> None: ...

    def runs(self, pipeline: str | None, limit: int = 100) -> list[dict[str, Any]]: ...

    def pipelines(self) -> list[str]: ...

    def close(self) -> None: ...
