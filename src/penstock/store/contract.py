"""Defines the interface of the state store, ``Store``, and the structs that it takes and returns.

One store serves many pipelines. Every write of a run compares its lease's token in the same
transaction (L12) and raises ``LeaseLost`` if another run took the pipeline over. Any call may raise
``StateError``. Methods that read take the pipeline's name and need no lease. Not here: what is
written when (``engine``), how it is stored (``store.sql``, ``store.memory``), how a new state joins
the saved ones: the protocol decides that (``protocols/*/state.py``), passed as ``merge``."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from penstock.model.catalog import StreamId
from penstock.model.segments import (
    SHARED_STATE,
    ConsumedSlice,
    Group,
    Load,
    PartRef,
    PlannedOn,
    SegmentId,
    WriteDisposition,
)
from penstock.model.state import StateScope, StoredState
from penstock.model.types import RowSchema
from penstock.store.keys import CoveredKeys, KeyAddress
from penstock.store.remembered import Remembered

Merge = Callable[[Sequence[StoredState], Sequence[StoredState]], list[StoredState]]
"""Merges new states (second argument, oldest first) into the saved ones (first argument), and
returns every state to save. It may raise, and then the transaction is rolled back."""


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Identifies the run that has a lease; the error ``Locked`` shows it. ``boot``
    (:func:`lock_holder.boot`) and ``pid`` show, on the same machine, whether the holder's process
    lives. ``started_at``: ISO 8601, UTC. ``lease_seconds``: the length of its lease, filled in by
    the store."""

    name: str  # user@host
    pid: int
    boot: str
    started_at: str
    run: str
    lease_seconds: float = 60.0  # the length before Penstock stored it


class PipelineLock(msgspec.Struct, frozen=True, kw_only=True):
    """Describes who has a pipeline's lease now. ``renewal``: another number after each renewal; it
    is compared only with itself, never with a clock. ``seconds``: the lease's length, in which its
    holder renews it several times. ``alive``: whether the holder's process lives; None: that cannot
    be checked from here."""

    holder: Holder
    token: str
    renewal: float
    seconds: float
    alive: bool | None


class ExpectedLoad(msgspec.Struct, frozen=True):
    """Names the last committed load of a stream: its ``key`` in the table and its ``number``."""

    key: str
    number: int


class Lease(msgspec.Struct, frozen=True):
    """Permits one run to write a pipeline's progress, until another run takes the pipeline over
    (``pipeline_lock`` has the rules). ``token``: new for each lease. ``state_id``: drawn when the
    pipeline is stored for the first time, and never changed, not by a reset either (L3)."""

    pipeline: str
    token: str
    state_id: str


class LoadIntent(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a load to be written to the ledger, which gives it its key, number and token.
    Fields as in ``Load``."""

    stream: StreamId
    disposition: WriteDisposition = msgspec.field(name="shape")
    segments: tuple[SegmentId, ...]
    parts: tuple[PartRef, ...]
    schema_version: int
    generation: int
    replaces: bool = False
    read: int = 0
    rejected: int = 0
    filtered: int = 0
    planned: PlannedOn | None = None
    shards: tuple[tuple[int, int], ...] = ()

    @property
    def reaches_table(self) -> bool:
        """Whether there is anything to commit; like ``Load.reaches_table``."""
        return bool(self.parts) or self.replaces


class GroupIntent(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a group to be written to the ledger, which gives it its id. Fields as in
    ``Group``."""

    loads: tuple[LoadIntent, ...]
    states: tuple[StoredState, ...]
    epoch: int
    consumes: tuple[tuple[SegmentId, StreamId], ...]
    keys: tuple[CoveredKeys, ...] = ()
    """The connector keys that the group's checkpoints cover, committed with the group's states."""

    @property
    def streams(self) -> frozenset[StreamId]:
        """The streams that the group advances: by rows, or by a stream's own state without rows."""
        return frozenset(stream for _, stream in self.consumes if stream != SHARED_STATE)


class KeyedGroup(Group, frozen=True, kw_only=True):
    """A group as it is stored: with the connector keys of :attr:`GroupIntent.keys`."""

    keys: tuple[CoveredKeys, ...] = ()


class StateSource(msgspec.Struct, frozen=True):
    """Names the source that a pipeline's states belong to. ``reference``: ``source.use`` as the
    user wrote it; it may be a command line that holds a secret, so it is never shown (L10)."""

    protocol: str
    reference: str


class Reset(msgspec.Struct, frozen=True):
    """Describes a reset of some streams. ``strip``: returns the given states without those of
    ``streams``; it is applied to the states of groups in the ledger that are not saved yet."""

    streams: tuple[StreamId, ...]
    strip: Callable[[Sequence[StoredState]], list[StoredState]]


class Store(Protocol):
    """Stores the progress of pipelines. Every method is one transaction."""

    # -- the lease (L12)
    def acquire(
        self, pipeline: str, holder: Holder, ttl: float, over: PipelineLock | None = None
    ) -> Lease:
        """Takes the pipeline's lease, and stores the pipeline if it is new. Takes the lease over
        from a holder whose process has ended or, if that cannot be checked, from the holder of
        ``over`` that did not renew it since. Raises ``Locked``, which names the holder and its
        start, if another run has it. Callers use ``pipeline_lock.take``, which waits for a holder
        that cannot be checked. ``ttl``: seconds without a renewal after which the holder is
        dead."""
        ...

    def lock(self, pipeline: str) -> PipelineLock | None:
        """Returns who has the pipeline's lease; None: nobody."""
        ...

    def renew(self, lease: Lease, ttl: float) -> None:
        """Renews the lease for another ``ttl`` seconds."""
        ...

    def release(self, lease: Lease) -> None:
        """Gives the lease back; no-op if another run has taken it over."""
        ...

    # -- counters, never restarted
    def new_epoch(self, lease: Lease, lane: int) -> int:
        """Returns a new epoch number: unique in the pipeline and growing, over all lanes (L4)."""
        ...

    def last_epoch(self, pipeline: str) -> int:
        """Returns the last epoch number given; 0: none."""
        ...

    def close_epochs(
        self, lease: Lease, last: dict[int, int], shares: Mapping[int, int] | None = None
    ) -> None:
        """Closes epochs: from now on only segments of epoch ``k`` up to seq ``last[k]`` count,
        whatever a process that still runs somewhere seals later. ``shares[k]``: the sum of
        ``Segment.shares`` over those segments. A closed epoch stays unchanged."""
        ...

    def closed_epochs(self, pipeline: str) -> dict[int, int]:
        """Maps each closed epoch to the seq of its last segment that counts; 0: none does."""
        ...

    def shares(self, pipeline: str) -> dict[int, int]:
        """Maps closed epochs to the ``shares`` that :meth:`close_epochs` stored; without epochs
        that are forgotten (:meth:`forget`) or whose shares were not given."""
        ...

    def open_epochs(self, pipeline: str) -> set[int]:
        """Returns the epochs that were given out and not closed, whether or not they have a log: a
        driver whose lease was taken over may still begin one."""
        ...

    def new_generation(self, lease: Lease, streams: Iterable[StreamId]) -> dict[StreamId, int]:
        """Returns a new generation number of each stream: from 1, growing by 1."""
        ...

    def generations(self, pipeline: str) -> dict[StreamId, int]:
        """Maps each stream that has a generation to the newest one."""
        ...

    # -- the ledger (L1, L3)
    def intend(self, lease: Lease, groups: Sequence[GroupIntent], merge: Merge) -> list[Group]:
        """Writes what will be committed to the ledger, and gives each load its number. A group
        without loads counts as committed at once, so its states are saved as by :meth:`loaded`. A
        load that publishes the refresh of a stream ends the pending one (``Refresh``). Raises
        ``StateError`` (``state.consumed_twice``) if a group consumes a share of a segment that was
        consumed or abandoned before."""
        ...

    def settle(self, lease: Lease, groups: Sequence[GroupIntent], merge: Merge) -> list[Group]:
        """Writes groups that a destination has already acked to the ledger, like :meth:`intend` and
        then :meth:`loaded` of every load, in one transaction."""
        ...

    def loaded(self, lease: Lease, done: Sequence[tuple[int, Load]], merge: Merge) -> None:
        """Marks loads committed; ``done``: (group id, load). Saves the states of each group whose
        loads are all committed and whose states no older group defers, except states of an epoch
        that is not above the floor of their scope (:meth:`floors`). Raises ``StateError``
        (``state.unknown_load``) for a load that the ledger never had."""
        ...

    def expected_loads(self, pipeline: str) -> dict[StreamId, ExpectedLoad]:
        """Returns the least load that each stream's table must have: the last committed one. Leaves
        out a stream without one, or whose table is accepted with any number (:meth:`adopt`)."""
        ...

    def adopt(self, lease: Lease, streams: Iterable[StreamId]) -> None:
        """Accepts the tables of these streams with whatever load number they have: the next load of
        each stream follows any number, and may be renumbered (:meth:`renumber`), until one is
        committed. A reset does this for its streams."""
        ...

    def renumber(self, lease: Lease, above: Mapping[StreamId, int]) -> set[StreamId]:
        """Gives new numbers, in order, to the uncommitted loads of those streams that :meth:`adopt`
        named and that have no committed load since; returns these streams. ``above``: the number of
        each stream's table; new numbers are greater."""
        ...

    def open_groups(self, pipeline: str) -> list[Group]:
        """Returns the groups that have an uncommitted load, oldest first, with all their loads."""
        ...

    def committed_loads(self, pipeline: str, group: int) -> set[tuple[str, int]]:
        """Returns (key, number) of the loads of an open group that are committed already."""
        ...

    def consumed(self, pipeline: str, epochs: Iterable[int]) -> set[ConsumedSlice]:
        """Returns the shares of these epochs' segments that groups consumed or that were
        abandoned."""
        ...

    def abandon(self, lease: Lease, items: Iterable[ConsumedSlice]) -> None:
        """Marks shares of segments as consumed without loading them: their rows are dropped."""
        ...

    def forget(self, lease: Lease, epochs: Iterable[int]) -> None:
        """Drops the consumed shares of these epochs, whose log files were deleted, and the keys
        that their tasks wrote and that no checkpoint covers. The epochs stay closed."""
        ...

    # -- states
    def states(self, pipeline: str, *, only_sound: bool = False) -> list[StoredState]:
        """Returns the saved states, in the order in which they were saved. Raises ``StateError``
        (``state.damaged``) if one is not what was saved; ``only_sound``: leaves such states out
        instead."""
        ...

    def damaged_states(self, pipeline: str) -> list[StateScope]:
        """Returns the scopes of saved states that are not what was saved."""
        ...

    def verify(self, pipeline: str) -> None:
        """Raises ``StateError`` (``state.damaged``) if a stored value that decides what is read or
        loaded is not what was written."""
        ...

    def replace_states(
        self, lease: Lease, states: Sequence[StoredState], reset: Reset | None = None
    ) -> None:
        """Replaces all saved states by ``states``, for a user's set, import or reset.

        Raises the floor (:meth:`floors`), so that no segment sealed before can bring an older state
        back; its rows still load. With ``reset`` only the floors of its streams rise, and states
        that are sealed for other streams still count. A reset adopts the tables of its streams
        (:meth:`adopt`). With neither states nor ``reset`` every table is adopted, and the groups in
        the ledger that are not settled are dropped: the source is read from the start.

        Connector keys: ``reset`` deletes its streams' own keys, and what only checkpoints of these
        streams would have made durable. Without ``reset`` tasks may write no more, and what they
        wrote beyond the durable versions is dropped; with no states either, every key is."""
        ...

    def floors(self, pipeline: str) -> dict[StreamId | None, int]:
        """Maps a stream to its floor: the last epoch before its states were replaced. States from
        groups of epochs up to it are not saved. None: the floor of every stream."""
        ...

    def state_history(self, pipeline: str, limit: int = 100) -> list[dict[str, Any]]:
        """Returns the changes of saved states, newest first, as ``rules.history_entry`` makes them:
        {"at", "run", "scope", "type", "blob"}; if one is not what was saved, its blob is None and
        "damaged" True. Keeps the newest 1,000, up to 32 Mi characters in all, and always the newest
        one."""
        ...

    # -- connectors' own keys
    def begin_keys(self, lease: Lease, task: str) -> None:
        """Permits ``task`` to write keys (``task_keys.open_keys``). ``task``: a name that is never
        reused, from ``keys.lane_task`` or ``keys.push_task``."""
        ...

    def end_keys(
        self, lease: Lease, covered: Iterable[CoveredKeys] = (), tasks: Iterable[str] | None = None
    ) -> None:
        """Forbids these tasks (None: all) to write keys, even if their process still lives, and
        drops what they wrote beyond what the ledger's groups and ``covered`` cover. ``covered``:
        from checkpoints that are sealed and not yet in a group."""
        ...

    def reset_keys(self, lease: Lease, streams: Sequence[StreamId]) -> None:
        """Deletes the own keys of these streams, as their reset does."""
        ...

    def connector_keys(self, pipeline: str) -> dict[KeyAddress, str]:
        """Returns the durable keys and their values, sorted by key."""
        ...

    # -- what is remembered of streams, and schemas, which only grow
    def remembered(self, pipeline: str, streams: Iterable[StreamId] | None = None) -> Remembered:
        """Returns what :meth:`remember` stored for these streams (None: for all). The names of
        tables (``Remembered.tables``) are always those of all streams."""
        ...

    def remember(
        self, lease: Lease, more: Remembered, *, taken_up: Iterable[StreamId] = ()
    ) -> None:
        """Adds ``more`` to what is stored for streams. Names only grow: raises ``StateError``
        (``state.name_changed``) if a stored name would change. ``more.modes`` replace a stream's
        earlier ones. ``taken_up``: streams to remove from ``passed_over``."""
        ...

    def schema_version(self, lease: Lease, stream: StreamId, schema: RowSchema) -> RowSchema:
        """Stores a stream's schema and returns it with its version: the newest one's if its fields
        are the same, else the next."""
        ...

    def schema_versions(
        self, lease: Lease, schemas: Mapping[StreamId, RowSchema]
    ) -> dict[StreamId, RowSchema]:
        """Stores the schemas of many streams, each as :meth:`schema_version` does."""
        ...

    def schemas(self, pipeline: str, stream: StreamId) -> dict[int, RowSchema]:
        """Maps each version of a stream's schema to the schema."""
        ...

    def newest_schemas(
        self, pipeline: str, streams: Iterable[StreamId]
    ) -> dict[StreamId, RowSchema]:
        """Returns the newest schema of each of these streams that has one."""
        ...

    def remember_source(self, lease: Lease, protocol: str, reference: str) -> None:
        """Stores the source that the pipeline's states belong to, and replaces the earlier one."""
        ...

    def source_of(self, pipeline: str) -> StateSource | None:
        """Returns the source that the pipeline's states belong to; None if no run has stored
        one."""
        ...

    def known_streams(self, pipeline: str) -> set[StreamId]:
        """Returns the streams that some run of this pipeline has synced: those with a generation, a
        schema or a state."""
        ...

    # -- connector configuration that a connector changed (CONTROL): secret
    def config_override(self, pipeline: str, role: str) -> tuple[str, dict[str, Any]] | None:
        """Returns (hash of the user's config that the connector was given, the whole new config) of
        the connector of ``role``; None if it changed nothing."""
        ...

    def set_config_override(
        self, lease: Lease, role: str, base_hash: str, config: dict[str, Any]
    ) -> None:
        """Stores what :meth:`config_override` returns, and replaces the earlier one."""
        ...

    # -- runs
    def start_run(self, lease: Lease, run: str, started_at: str) -> None:
        """Stores that a run began. ``started_at``: ISO 8601, UTC."""
        ...

    def finish_run(self, lease: Lease, run: str, report: dict[str, Any]) -> None:
        """Stores the report (JSON values) of a run that :meth:`start_run` named."""
        ...

    def runs(self, pipeline: str | None, limit: int = 100) -> list[dict[str, Any]]:
        """Returns the reports of a pipeline's runs (None: of all pipelines), newest first; for a
        run without a report, the result of ``rules.unfinished_report``."""
        ...

    def forget_runs(self, lease: Lease, runs: Sequence[str]) -> None:
        """Deletes these runs of the pipeline, with their reports; ignores runs that do not
        exist."""
        ...

    def pipelines(self) -> list[str]:
        """Returns the names of all pipelines in the store, sorted."""
        ...

    def waiting(self) -> float:
        """Returns for how many seconds the oldest call of another thread has been running; 0:
        none."""
        ...

    def close(self) -> None:
        """Closes the store's connections."""
        ...
