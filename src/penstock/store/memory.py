"""Implements ``contract.Store`` in memory: the behaviour of ``sql``, a call in microseconds, for
tests and dry runs.

Tests of crash schedules raise an exception from ``on_step`` to simulate a crash: it is called with
``store.METHOD.before`` and ``store.METHOD.after`` around each write. A write is atomic, even if it
raises (a lost lease, a ``merge`` that refuses). Calls that write nothing call no step. Not here:
decisions that every store shares (``rules``)."""

import sqlite3
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

import msgspec

from penstock.model.catalog import StreamId
from penstock.model.segments import ConsumedSlice, Group, Load
from penstock.model.state import StateScope, StoredState
from penstock.model.types import RowSchema
from penstock.store import keys_ledger, remembered, rules
from penstock.store.contract import (
    ExpectedLoad,
    GroupIntent,
    Holder,
    KeyedGroup,
    Lease,
    Merge,
    PipelineLock,
    Reset,
    StateSource,
)
from penstock.store.keys import CoveredKeys, KeyAddress, KeyPort, lane_task
from penstock.store.lock_holder import is_alive, iso_time, start_mark
from penstock.store.pipeline_lock import locked, may_take
from penstock.store.remembered import Remembered
from penstock.store.task_keys import KeyConnection, StoreKeys

OnStep = Callable[[str], None]


def _nothing(step: str) -> None:
    """Does nothing at any step: the default ``on_step``."""


@dataclass(slots=True)
class _OpenGroup:
    """Holds a group whose states are not saved yet; its loads by (key, number)."""

    group: KeyedGroup
    left: set[tuple[str, int]]  # loads that are not committed
    loads: frozenset[tuple[str, int]]


@dataclass(slots=True)
class _LeaseRow:
    """Holds the current lease of a pipeline. ``mark``: :func:`lock_holder.start_mark` of the
    holder. ``renewals``: how often it was renewed."""

    token: str
    holder: Holder
    mark: str | None
    renewals: int = 0


@dataclass(slots=True)
class _Pipeline:
    """Holds all that is stored for a pipeline, except connector keys; fields like the tables of
    ``schema``."""

    name: str
    state_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    lease_row: _LeaseRow | None = None
    source: StateSource | None = None
    epoch: int = 0
    last_group: int = 0
    floors: dict[str, int] = field(default_factory=dict[str, int])
    closed: dict[int, int] = field(default_factory=dict[int, int])
    shares: dict[int, int] = field(default_factory=dict[int, int])
    generations: dict[StreamId, int] = field(default_factory=dict[StreamId, int])
    numbers: dict[str, rules.LoadNumbers] = field(default_factory=dict[str, rules.LoadNumbers])
    groups: dict[int, _OpenGroup] = field(default_factory=dict[int, _OpenGroup])  # oldest first
    consumed: dict[int, set[ConsumedSlice]] = field(default_factory=dict[int, set[ConsumedSlice]])
    states: list[StoredState] = field(default_factory=list[StoredState])
    history: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])  # oldest first
    names: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    schemas: dict[StreamId, list[RowSchema]] = field(
        default_factory=dict[StreamId, list[RowSchema]]
    )
    overrides: dict[str, tuple[str, dict[str, Any]]] = field(
        default_factory=dict[str, tuple[str, dict[str, Any]]]
    )
    runs: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    reports: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    def keys_covered(self) -> list[CoveredKeys]:
        """Returns the connector keys that checkpoints of the stored groups cover."""
        return [covered for each in self.groups.values() for covered in each.group.keys]


class MemoryStore:
    """Stores the progress of pipelines in memory (:class:`contract.Store`); safe for use by several
    threads.

    ``on_step``: called around each write (see the module). ``clock``: returns seconds since 1970.
    ``alive``: returns whether a holder's process lives (None: that cannot be checked), so that a
    test can declare one dead that runs in the test's process; None: ``lock_holder.is_alive``.
    """

    def __init__(
        self,
        on_step: OnStep = _nothing,
        clock: Callable[[], float] = time.time,
        alive: Callable[[Holder], bool | None] | None = None,
    ) -> None:
        self.on_step = on_step
        self._clock = clock
        self._alive = alive
        self._all: dict[str, _Pipeline] = {}
        self._lock = RLock()
        self._keys = _MemoryLink(self._lock)

    def waiting(self) -> float:
        return 0.0

    def close(self) -> None:
        """No-op: the content stays, as in a database."""

    # -- the lease (L12)
    def acquire(
        self, pipeline: str, holder: Holder, ttl: float, over: PipelineLock | None = None
    ) -> Lease:
        with self._step("acquire"):
            p = self._all.setdefault(pipeline, _Pipeline(pipeline))
            found = self.lock(pipeline)
            if found is not None and not may_take(found, over):
                raise locked(pipeline, found)
            holder = msgspec.structs.replace(holder, lease_seconds=ttl)
            p.lease_row = _LeaseRow(uuid.uuid4().hex, holder, start_mark(holder))
            return Lease(pipeline, p.lease_row.token, p.state_id)

    def lock(self, pipeline: str) -> PipelineLock | None:
        row = self._read(pipeline).lease_row
        if row is None:
            return None
        alive = is_alive(row.holder, row.mark) if self._alive is None else self._alive(row.holder)
        return PipelineLock(
            holder=row.holder,
            token=row.token,
            renewal=row.renewals,
            seconds=row.holder.lease_seconds,
            alive=alive,
        )

    def renew(self, lease: Lease, ttl: float) -> None:
        del ttl
        with self._step("renew"):
            self._leased(lease)[1].renewals += 1

    def release(self, lease: Lease) -> None:
        """Gives the lease back; no-op if another run has taken it over."""
        with self._step("release"):
            p = self._read(lease.pipeline)
            if p.lease_row is not None and p.lease_row.token == lease.token:
                p.lease_row = None

    # -- counters, never restarted
    def new_epoch(self, lease: Lease, lane: int) -> int:
        with self._step("new_epoch"):
            p, _ = self._leased(lease)
            p.epoch += 1
            return p.epoch

    def last_epoch(self, pipeline: str) -> int:
        return self._read(pipeline).epoch

    def close_epochs(
        self, lease: Lease, last: dict[int, int], shares: Mapping[int, int] | None = None
    ) -> None:
        with self._step("close_epochs", bool(last)):
            p, _ = self._leased(lease)
            fresh = {e: n for e, n in (shares or {}).items() if e in last and e not in p.closed}
            p.closed = last | p.closed
            p.shares |= fresh

    def closed_epochs(self, pipeline: str) -> dict[int, int]:
        return dict(self._read(pipeline).closed)

    def shares(self, pipeline: str) -> dict[int, int]:
        return dict(self._read(pipeline).shares)

    def open_epochs(self, pipeline: str) -> set[int]:
        p = self._read(pipeline)
        return set(range(1, p.epoch + 1)) - p.closed.keys()

    def new_generation(self, lease: Lease, streams: Iterable[StreamId]) -> dict[StreamId, int]:
        wanted = list(streams)
        with self._step("new_generation", bool(wanted)):
            p, _ = self._leased(lease)
            new = {s: p.generations.get(s, 0) + 1 for s in wanted}
            p.generations.update(new)
            return new

    def generations(self, pipeline: str) -> dict[StreamId, int]:
        return dict(self._read(pipeline).generations)

    # -- the ledger (L1, L3)
    def intend(self, lease: Lease, groups: Sequence[GroupIntent], merge: Merge) -> list[Group]:
        with self._step("intend", bool(groups)):
            return self._write_down(lease, groups, merge, committed=False)

    def settle(self, lease: Lease, groups: Sequence[GroupIntent], merge: Merge) -> list[Group]:
        with self._step("settle", bool(groups)):
            return self._write_down(lease, groups, merge, committed=True)

    def _write_down(
        self, lease: Lease, groups: Sequence[GroupIntent], merge: Merge, *, committed: bool
    ) -> list[Group]:
        p, lease_row = self._leased(lease)
        numbers = dict(p.numbers)
        new = rules.number_groups(
            p.state_id, groups, p.last_group, numbers, p.floors, into_tables=not committed
        )
        taken: set[ConsumedSlice] = set()
        for item in (ConsumedSlice(*item) for group in new for item in group.consumes):
            if item in taken or item in p.consumed.get(item.segment.epoch, ()):
                raise rules.consumed_twice(p.name, item)
            taken.add(item)
        after = dict(p.groups)
        for group in new:
            loads = frozenset((load.key, load.number) for load in group.loads)
            after[group.id] = _OpenGroup(group, set() if committed else set(loads), loads)
        self._settle(p, lease_row, after, merge)
        p.numbers = numbers
        p.last_group += len(new)
        self._consume(p, taken)
        epochs = rules.refreshed(new)
        known = {k: p.names[k] for k in remembered.refresh_kinds(epochs) if k in p.names}
        ended = remembered.refreshes_ended(known, epochs, p.epoch)
        for kind, rows in remembered.added(ended, known, ()).items():
            p.names[kind] = p.names.get(kind, {}) | rows
        return list(new)

    def loaded(self, lease: Lease, done: Sequence[tuple[int, Load]], merge: Merge) -> None:
        with self._step("loaded", bool(done)):
            p, lease_row = self._leased(lease)
            known = {g: p.groups[g].loads for g, _ in done if g in p.groups}
            rules.check_marked(p.name, done, known, p.last_group)
            marked: dict[int, set[tuple[str, int]]] = {}
            for group, load in done:
                marked.setdefault(group, set()).add((load.key, load.number))
            after = dict(p.groups)
            for group in known:
                was = after[group]
                after[group] = _OpenGroup(was.group, was.left - marked[group], was.loads)
            self._settle(p, lease_row, after, merge)
            for stream in {load.stream.key for _, load in done if load.reaches_table}:
                if stream in p.numbers:
                    p.numbers[stream] = msgspec.structs.replace(p.numbers[stream], adopts=False)

    def expected_loads(self, pipeline: str) -> dict[StreamId, ExpectedLoad]:
        p = self._read(pipeline)
        return rules.expected_loads(p.state_id, p.numbers, self.open_groups(pipeline))

    def adopt(self, lease: Lease, streams: Iterable[StreamId]) -> None:
        wanted = list(streams)
        with self._step("adopt", bool(wanted)):
            p, _ = self._leased(lease)
            self._adopt(p, wanted)

    @staticmethod
    def _adopt(p: _Pipeline, streams: Iterable[StreamId]) -> None:
        for stream in streams:
            was = p.numbers.get(stream.key, rules.LoadNumbers())
            p.numbers[stream.key] = rules.adopted(was)

    def renumber(self, lease: Lease, above: Mapping[StreamId, int]) -> set[StreamId]:
        numbers = self._read(lease.pipeline).numbers
        wanted = {s for s in above if s.key in numbers and numbers[s.key].adopts}
        with self._step("renumber", bool(wanted)):
            p, _ = self._leased(lease)
            new = {s.key: rules.renumbering(p.numbers[s.key], above[s]) for s in wanted}
            for number, each in p.groups.items():
                done = each.loads - each.left
                group = rules.renumbered(each.group, done, new)
                loads = frozenset((load.key, load.number) for load in group.loads)
                p.groups[number] = _OpenGroup(group, set(loads - done), loads)
            p.numbers |= new
        return wanted

    def _settle(
        self, p: _Pipeline, lease_row: _LeaseRow, groups: dict[int, _OpenGroup], merge: Merge
    ) -> None:
        """Stores ``groups`` as the pipeline's, saves the states of those that ``rules.settled``
        returns, and drops these."""
        first: dict[str, int] = {}
        for number, each in groups.items():
            if each.left:
                for key in (*rules.touches(each.group), rules.ANYTHING):
                    first.setdefault(key, number)
        free = rules.settled((g.group for g in groups.values() if not g.left), first)
        new = rules.states_of(free, p.floors)
        if new:
            self._save(p, lease_row, merge(list(p.states), new))
        covered = [each for group in free for each in group.keys]
        keys_ledger.promote(self._keys, p.name, covered)
        for group in free:
            del groups[group.id]
        p.groups = groups

    def open_groups(self, pipeline: str) -> list[Group]:
        return [g.group for g in self._read(pipeline).groups.values() if g.left]

    def committed_loads(self, pipeline: str, group: int) -> set[tuple[str, int]]:
        known = self._read(pipeline).groups.get(group)
        return set() if known is None else set(known.loads - known.left)

    def consumed(self, pipeline: str, epochs: Iterable[int]) -> set[ConsumedSlice]:
        p = self._read(pipeline)
        with self._lock:
            return {item for epoch in epochs for item in p.consumed.get(epoch, ())}

    def abandon(self, lease: Lease, items: Iterable[ConsumedSlice]) -> None:
        wanted = list(items)
        with self._step("abandon", bool(wanted)):
            p, _ = self._leased(lease)
            self._consume(p, wanted)

    def forget(self, lease: Lease, epochs: Iterable[int]) -> None:
        wanted = list(epochs)
        with self._step("forget", bool(wanted)):
            p, _ = self._leased(lease)
            for epoch in wanted:
                p.consumed.pop(epoch, None)
                p.shares.pop(epoch, None)
            tasks = [lane_task(epoch) for epoch in wanted]
            keys_ledger.end(self._keys, p.name, p.keys_covered(), tasks)

    @staticmethod
    def _consume(p: _Pipeline, items: Iterable[ConsumedSlice]) -> None:
        for item in items:
            p.consumed.setdefault(item.segment.epoch, set()).add(item)

    # -- states
    def verify(self, pipeline: str) -> None:
        """No-op: nothing damages what is in memory."""

    def damaged_states(self, pipeline: str) -> list[StateScope]:
        return []

    def states(self, pipeline: str, *, only_sound: bool = False) -> list[StoredState]:
        return list(self._read(pipeline).states)

    def replace_states(
        self, lease: Lease, states: Sequence[StoredState], reset: Reset | None = None
    ) -> None:
        with self._step("replace_states"):
            p, lease_row = self._leased(lease)
            self._save(p, lease_row, states)
            if reset is None:
                p.floors = {rules.ANYTHING: p.epoch}
                if not states:
                    self._adopt(p, map(rules.stream_from_key, list(p.numbers)))
                keys_ledger.end(self._keys, p.name, (), None)
                if not states:
                    p.groups = {}
                    keys_ledger.reset(self._keys, p.name, None)
                return
            p.floors.update({s.key: p.epoch for s in reset.streams})
            self._adopt(p, reset.streams)
            for each in p.groups.values():
                each.group = rules.stripped(each.group, reset)
            keys_ledger.reset(self._keys, p.name, reset.streams)

    def floors(self, pipeline: str) -> dict[StreamId | None, int]:
        return rules.floors_of(self._read(pipeline).floors)

    def _save(self, p: _Pipeline, lease_row: _LeaseRow, new: Sequence[StoredState]) -> None:
        changes = rules.state_changes(p.states, new)
        at, run = iso_time(self._clock()), lease_row.holder.run
        removed: list[tuple[StateScope, str | None]] = [(scope, None) for scope in changes.gone]
        for scope, blob in removed + [(s.scope, s.blob) for s in changes.saved]:
            p.history.append(rules.history_entry(at, run, scope.key, scope.type.value, blob))
        del p.history[: -rules.HISTORY_KEPT]
        if any(len(s.blob) > rules.HISTORY_BYTES // rules.HISTORY_KEPT for s in changes.saved):
            kept = rules.history_kept(len(each["blob"] or "") for each in reversed(p.history))
            del p.history[: len(p.history) - kept]
        p.states = list(new)

    def state_history(self, pipeline: str, limit: int = 100) -> list[dict[str, Any]]:
        return [dict(entry) for entry in self._read(pipeline).history[::-1][:limit]]

    # -- connectors' own keys
    def begin_keys(self, lease: Lease, task: str) -> None:
        with self._step("begin_keys"):
            p, _ = self._leased(lease)
            keys_ledger.begin(self._keys, p.name, task)

    def end_keys(
        self, lease: Lease, covered: Iterable[CoveredKeys] = (), tasks: Iterable[str] | None = None
    ) -> None:
        with self._step("end_keys"):
            p, _ = self._leased(lease)
            keys_ledger.end(self._keys, p.name, [*covered, *p.keys_covered()], tasks)

    def reset_keys(self, lease: Lease, streams: Sequence[StreamId]) -> None:
        with self._step("reset_keys"):
            p, _ = self._leased(lease)
            keys_ledger.reset(self._keys, p.name, streams)

    def connector_keys(self, pipeline: str) -> dict[KeyAddress, str]:
        return keys_ledger.durable(self._keys, pipeline)

    def open_keys(self, pipeline: str, task: str) -> KeyPort:
        """Opens a task's port to the connector keys, as ``task_keys.open_keys`` does for a store in
        a database."""
        return StoreKeys(lambda: self._keys, pipeline, task)

    # -- what is remembered of streams, and schemas, which only grow
    def remembered(self, pipeline: str, streams: Iterable[StreamId] | None = None) -> Remembered:
        rows = self._read(pipeline).names
        if streams is not None:
            rows = {kind: rows[kind] for kind in remembered.kinds(streams) if kind in rows}
        return remembered.remembered(rows)

    def remember(
        self, lease: Lease, more: Remembered, *, taken_up: Iterable[StreamId] = ()
    ) -> None:
        again, known = list(taken_up), self._read(lease.pipeline).names
        wanted = remembered.added(more, known, again)
        with self._step("remember", bool(rules.new_names(lease.pipeline, known, wanted))):
            p, _ = self._leased(lease)
            wanted = remembered.added(more, p.names, again)
            for kind, fresh in rules.new_names(p.name, p.names, wanted).items():
                p.names[kind] = p.names.get(kind, {}) | fresh

    def schema_version(self, lease: Lease, stream: StreamId, schema: RowSchema) -> RowSchema:
        return self.schema_versions(lease, {stream: schema})[stream]

    def schema_versions(
        self, lease: Lease, schemas: Mapping[StreamId, RowSchema]
    ) -> dict[StreamId, RowSchema]:
        stored = self._read(lease.pipeline).schemas
        same = all(s in stored and stored[s][-1].fields == new.fields for s, new in schemas.items())
        with self._step("schema_versions", not same):
            p, _ = self._leased(lease)
            answer: dict[StreamId, RowSchema] = {}
            for stream, schema in schemas.items():
                versions = p.schemas.get(stream, [])
                newest = versions[-1] if versions else None
                answer[stream] = rules.next_schema(newest, schema)
                if answer[stream] is not newest:
                    p.schemas[stream] = [*versions, answer[stream]]
            return answer

    def schemas(self, pipeline: str, stream: StreamId) -> dict[int, RowSchema]:
        return {s.version: s for s in self._read(pipeline).schemas.get(stream, [])}

    def newest_schemas(
        self, pipeline: str, streams: Iterable[StreamId]
    ) -> dict[StreamId, RowSchema]:
        known = self._read(pipeline).schemas
        return {stream: known[stream][-1] for stream in streams if known.get(stream)}

    def remember_source(self, lease: Lease, protocol: str, reference: str) -> None:
        source = StateSource(protocol, reference)
        with self._step("remember_source", self._read(lease.pipeline).source != source):
            p, _ = self._leased(lease)
            p.source = source

    def source_of(self, pipeline: str) -> StateSource | None:
        return self._read(pipeline).source

    def known_streams(self, pipeline: str) -> set[StreamId]:
        p = self._read(pipeline)
        with_state = {s.scope.stream for s in p.states if s.scope.stream is not None}
        return set(p.generations) | set(p.schemas) | with_state

    # -- connector configuration that a connector changed (CONTROL): secret
    def config_override(self, pipeline: str, role: str) -> tuple[str, dict[str, Any]] | None:
        return deepcopy(self._read(pipeline).overrides.get(role))

    def set_config_override(
        self, lease: Lease, role: str, base_hash: str, config: dict[str, Any]
    ) -> None:
        with self._step("set_config_override"):
            p, _ = self._leased(lease)
            p.overrides[role] = (base_hash, deepcopy(config))

    # -- runs
    def start_run(self, lease: Lease, run: str, started_at: str) -> None:
        with self._step("start_run"):
            p, _ = self._leased(lease)
            p.runs[run] = (started_at, lease.token)
            p.reports.pop(run, None)

    def finish_run(self, lease: Lease, run: str, report: dict[str, Any]) -> None:
        with self._step("finish_run"):
            p, _ = self._leased(lease)
            if run in p.runs:
                p.reports[run] = deepcopy(report)

    def runs(self, pipeline: str | None, limit: int = 100) -> list[dict[str, Any]]:
        with self._lock:
            names = self.pipelines() if pipeline is None else [pipeline]
            found = [
                (started_at, run, self._report(self._read(name), run, started_at, token))
                for name in names
                for run, (started_at, token) in self._read(name).runs.items()
            ]
        found.sort(key=lambda each: each[:2], reverse=True)
        return [report for _, _, report in found[:limit]]

    def forget_runs(self, lease: Lease, runs: Sequence[str]) -> None:
        with self._step("forget_runs"):
            p, _ = self._leased(lease)
            for run in runs:
                p.runs.pop(run, None)
                p.reports.pop(run, None)

    def _report(self, p: _Pipeline, run: str, started_at: str, token: str) -> dict[str, Any]:
        if run in p.reports:
            return deepcopy(p.reports[run])
        lock = self.lock(p.name)
        mine = lock if lock is not None and lock.token == token else None
        return rules.unfinished_report(p.name, run, started_at, mine)

    def pipelines(self) -> list[str]:
        return sorted(self._all)

    def _read(self, pipeline: str) -> _Pipeline:
        return self._all.get(pipeline) or _Pipeline(pipeline)

    def _leased(self, lease: Lease) -> tuple[_Pipeline, _LeaseRow]:
        p = self._all.get(lease.pipeline)
        if p is None or p.lease_row is None or p.lease_row.token != lease.token:
            raise rules.lease_lost(
                lease.pipeline, p.lease_row.holder if p and p.lease_row else None
            )
        return p, p.lease_row

    @contextmanager
    def _step(self, name: str, writes: bool = True) -> Generator[None]:
        if writes:
            self.on_step(f"store.{name}.before")
        with self._lock:
            yield
        if writes:
            self.on_step(f"store.{name}.after")


_KEY_TABLES = (
    "penstock_key_tasks (pipeline, task, marks, PRIMARY KEY (pipeline, task))",
    "penstock_keys (pipeline, slot, version, scope, owner, key, value, task, covers, mark, gone, "
    "PRIMARY KEY (pipeline, slot, version))",
)


class _MemoryLink(KeyConnection):
    """Connects every task and the driver to one SQLite database in memory, so that the rules of
    ``keys_ledger`` and the port of ``task_keys`` serve this store too. ``lock``: the store's,
    reentrant."""

    def __init__(self, lock: AbstractContextManager[object]) -> None:
        conn = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        super().__init__(conn, sqlite3.Error, "in memory")
        self._lock = lock
        for table in _KEY_TABLES:
            self.execute(f"CREATE TABLE {table}", ())

    @contextmanager
    def writing(self, place: KeyAddress, *, under: bool = False) -> Generator[None]:
        del place, under  # the lock excludes every writer, not only those of this key
        with self._lock:
            yield

    def close(self) -> None:
        """No-op: the content stays, as in a database."""

    @contextmanager
    def _errors(self) -> Generator[None]:
        with self._lock, super()._errors():
            yield
