"""Implements ``contract.Store`` in a database: SQLite on one machine, Postgres for a cluster.

Every write of a run locks its pipeline's row, compares the lease's token and writes, in one
transaction (L12). A whole call is repeated if its database is unreachable (``patience``); before
that, the write's own token shows whether a commit without an answer succeeded (``write_tokens``).
Not here: connections and what differs between the two databases (``database``), tables
(``schema``), groups, loads and states (``ledger``), connector keys (``keys_ledger``), rows of names
and schemas (``names_and_schemas``), what these rows mean and the decisions shared with ``memory``
(``remembered``, ``rules``)."""

import json
import os
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, TypeVar

import msgspec
from sqlalchemy import delete, insert, select, update
from sqlalchemy.engine import Connection, Row
from sqlalchemy.sql.expression import Update

from penstock.model.catalog import StreamId
from penstock.model.segments import ConsumedSlice, Group, Load
from penstock.model.state import StateScope, StoredState
from penstock.model.types import RowSchema
from penstock.store import keys_ledger, ledger, names_and_schemas, remembered, rules
from penstock.store.checksums import Mismatch, opened, sealed
from penstock.store.contract import (
    ExpectedLoad,
    GroupIntent,
    Holder,
    Lease,
    Merge,
    PipelineLock,
    Reset,
    StateSource,
    Store,
)
from penstock.store.damage import open_value
from penstock.store.database import Database, PlainSql, insert_all, rows_of
from penstock.store.database_url import chunks
from penstock.store.keys import CoveredKeys, KeyAddress, lane_task
from penstock.store.ledger import FLOORS, LeasedRow
from penstock.store.lock_holder import boot, is_alive, iso_time, start_mark
from penstock.store.pipeline_lock import locked, may_take, renewal
from penstock.store.remembered import Remembered
from penstock.store.schema import (
    EPOCHS,
    GENERATIONS,
    HISTORY,
    OVERRIDES,
    PIPELINES,
    RUNS,
    SCHEMAS,
    STATES,
)
from penstock.store.write_tokens import WriteToken

C = TypeVar("C")

_held: set[str] = set()  # the tokens of this process's leases, in every store


def _repeated(method: Callable[..., Any]) -> Callable[..., Any]:
    """Repeats a method of :class:`SqlStore`, with the same arguments, while its database is
    unreachable."""

    @wraps(method)
    def call(self: "SqlStore", *args: Any, **kw: Any) -> Any:
        # an iterator would be empty the second time
        again = [[*x] if isinstance(x, Iterator) else x for x in args]
        named = {name: [*x] if isinstance(x, Iterator) else x for name, x in kw.items()}
        return self.patience.whole(lambda: method(self, *again, **named))

    return call


def _repeats_calls(cls: type[C]) -> type[C]:
    """Makes every method of ``Store`` except ``close`` and ``waiting`` a :func:`_repeated` one:
    each is one transaction."""
    for name in vars(Store):
        if not name.startswith("_") and name not in ("close", "waiting"):
            setattr(cls, name, _repeated(getattr(cls, name)))
    return cls


@_repeats_calls
class SqlStore:
    """Stores the progress of pipelines in a :class:`Database` (:class:`contract.Store`); safe for
    use by several threads."""

    def __init__(self, database: Database) -> None:
        self._db, self.patience = database, database.patience

    def __repr__(self) -> str:
        return f"SqlStore({self._db.place})"

    def close(self) -> None:
        self._db.close()

    def waiting(self) -> float:
        return self.patience.waiting()

    # -- the lease (L12)
    def acquire(
        self, pipeline: str, holder: Holder, ttl: float, over: PipelineLock | None = None
    ) -> Lease:
        holder = msgspec.structs.replace(holder, lease_seconds=ttl)
        token = uuid.uuid4().hex
        _held.add(token)
        try:
            return self._acquire(pipeline, holder, token, over)
        except BaseException:
            _held.discard(token)
            raise

    def _acquire(
        self, pipeline: str, holder: Holder, token: str, over: PipelineLock | None
    ) -> Lease:
        def acquired(conn: Connection) -> bool:
            self._db.lock_store(conn)
            query = select(PIPELINES.c.token).where(PIPELINES.c.name == pipeline)
            return conn.scalar(query) == token

        with self._db.writing(acquired) as conn:
            self._db.lock_store(conn)
            row = conn.execute(
                select(PIPELINES).where(PIPELINES.c.name == pipeline).with_for_update()
            ).one_or_none()
            found = None if row is None else _lock(row)
            if found is not None and not may_take(found, over):
                raise locked(pipeline, found)
            if row is None:
                conn.execute(insert(PIPELINES).values(_born(pipeline)))
            where = PIPELINES.c.name == pipeline
            conn.execute(
                update(PIPELINES)
                .where(where)
                .values(
                    token=token,
                    holder=msgspec.json.encode(holder).decode(),
                    holder_mark=start_mark(holder),
                    lease_until=renewal(self._db.now(conn) + holder.lease_seconds),
                )
            )
            state_id = conn.scalar(select(PIPELINES.c.state_id).where(where))
        return Lease(pipeline, token, str(state_id))

    def lock(self, pipeline: str) -> PipelineLock | None:
        with self._db.reading() as conn:
            row = conn.execute(select(PIPELINES).where(PIPELINES.c.name == pipeline)).one_or_none()
        return None if row is None else _lock(row)

    def renew(self, lease: Lease, ttl: float) -> None:
        with self._under_lease(lease) as (conn, leased):
            conn.execute(_pipeline(leased).values(lease_until=renewal(leased.now + ttl)))

    def release(self, lease: Lease) -> None:
        """Gives the lease back; no-op if another run has taken it over. If this fails, this process
        may still take the pipeline again."""
        _held.discard(lease.token)
        with self._db.writing() as conn:
            conn.execute(
                update(PIPELINES)
                .where(PIPELINES.c.name == lease.pipeline, PIPELINES.c.token == lease.token)
                .values(token=None, holder=None, holder_mark=None, lease_until=None)
            )

    # -- counters, never restarted
    def new_epoch(self, lease: Lease, lane: int) -> int:
        with self._under_lease(lease) as (conn, leased):
            epoch = leased.epoch + 1
            conn.execute(_pipeline(leased).values(epoch=epoch))
            conn.execute(insert(EPOCHS).values(pipeline=leased.name, epoch=epoch, lane=lane))
        return epoch

    def last_epoch(self, pipeline: str) -> int:
        with self._db.reading() as conn:
            query = select(PIPELINES.c.epoch).where(PIPELINES.c.name == pipeline)
            return conn.scalar(query) or 0

    def close_epochs(
        self, lease: Lease, last: dict[int, int], shares: Mapping[int, int] | None = None
    ) -> None:
        shares = shares or {}
        with self._under_lease(lease) as (conn, leased):
            for part in chunks(last):
                rows = conn.execute(rows_of(EPOCHS, leased.name).where(EPOCHS.c.epoch.in_(part)))
                known = {row.epoch: row for row in rows}
                free = [e for e in part if e not in known or known[e].last_seq is None]
                conn.execute(
                    delete(EPOCHS).where(EPOCHS.c.pipeline == leased.name, EPOCHS.c.epoch.in_(free))
                )
                insert_all(
                    conn,
                    EPOCHS,
                    [
                        {
                            "pipeline": leased.name,
                            "epoch": epoch,
                            "lane": known[epoch].lane if epoch in known else None,
                            "last_seq": last[epoch],
                            "shares": shares.get(epoch),
                        }
                        for epoch in free
                    ],
                )

    def closed_epochs(self, pipeline: str) -> dict[int, int]:
        with self._db.reading() as conn:
            rows = conn.execute(rows_of(EPOCHS, pipeline).where(EPOCHS.c.last_seq.is_not(None)))
            return {row.epoch: row.last_seq for row in rows}

    def shares(self, pipeline: str) -> dict[int, int]:
        with self._db.reading() as conn:
            rows = conn.execute(rows_of(EPOCHS, pipeline).where(EPOCHS.c.shares.is_not(None)))
            return {row.epoch: row.shares for row in rows}

    def open_epochs(self, pipeline: str) -> set[int]:
        with self._db.reading() as conn:
            rows = conn.execute(rows_of(EPOCHS, pipeline).where(EPOCHS.c.last_seq.is_(None)))
            return {row.epoch for row in rows}

    def new_generation(self, lease: Lease, streams: Iterable[StreamId]) -> dict[StreamId, int]:
        with self._under_lease(lease) as (conn, leased):
            wanted = {s.key: s for s in streams}
            known: dict[str, int] = {}
            for part in chunks(wanted):
                mine = (GENERATIONS.c.pipeline == leased.name, GENERATIONS.c.stream.in_(part))
                known.update(
                    (row.stream, row.generation)
                    for row in conn.execute(select(GENERATIONS).where(*mine))
                )
                conn.execute(delete(GENERATIONS).where(*mine))
            new = {key: known.get(key, 0) + 1 for key in wanted}
            insert_all(
                conn,
                GENERATIONS,
                [{"pipeline": leased.name, "stream": k, "generation": n} for k, n in new.items()],
            )
        return {wanted[key]: number for key, number in new.items()}

    def generations(self, pipeline: str) -> dict[StreamId, int]:
        with self._db.reading() as conn:
            rows = conn.execute(rows_of(GENERATIONS, pipeline))
            return {rules.stream_from_key(row.stream): row.generation for row in rows}

    # -- the ledger (L1, L3)
    def intend(self, lease: Lease, groups: Sequence[GroupIntent], merge: Merge) -> list[Group]:
        with self._under_lease(lease) as (conn, leased):
            written = ledger.intend(conn, leased, groups)
            ledger.settle(conn, leased, merge)
        return written

    def settle(self, lease: Lease, groups: Sequence[GroupIntent], merge: Merge) -> list[Group]:
        with self._under_lease(lease) as (conn, leased):
            written = ledger.intend(conn, leased, groups, committed=True)
            ledger.settle(conn, leased, merge)
        return written

    def loaded(self, lease: Lease, done: Sequence[tuple[int, Load]], merge: Merge) -> None:
        with self._under_lease(lease) as (conn, leased):
            ledger.mark(conn, leased, done)
            ledger.settle(conn, leased, merge)

    def expected_loads(self, pipeline: str) -> dict[StreamId, ExpectedLoad]:
        with self._db.reading() as conn:
            query = select(PIPELINES.c.state_id).where(PIPELINES.c.name == pipeline)
            found = ledger.all_numbers(conn, pipeline)
            groups = ledger.open_groups(conn, pipeline) if found else ()
            return rules.expected_loads(str(conn.scalar(query)), found, groups)

    def adopt(self, lease: Lease, streams: Iterable[StreamId]) -> None:
        with self._under_lease(lease) as (conn, leased):
            ledger.adopt(conn, leased, [s.key for s in streams])

    def renumber(self, lease: Lease, above: Mapping[StreamId, int]) -> set[StreamId]:
        with self._under_lease(lease) as (conn, leased):
            return ledger.renumber(conn, leased, above)

    def open_groups(self, pipeline: str) -> list[Group]:
        with self._db.reading() as conn:
            return ledger.open_groups(conn, pipeline)

    def committed_loads(self, pipeline: str, group: int) -> set[tuple[str, int]]:
        with self._db.reading() as conn:
            return ledger.committed_loads(conn, pipeline, group)

    def consumed(self, pipeline: str, epochs: Iterable[int]) -> set[ConsumedSlice]:
        with self._db.reading() as conn:
            return ledger.consumed(conn, pipeline, epochs)

    def abandon(self, lease: Lease, items: Iterable[ConsumedSlice]) -> None:
        with self._under_lease(lease) as (conn, leased):
            ledger.abandon(conn, leased, items)

    def forget(self, lease: Lease, epochs: Iterable[int]) -> None:
        with self._under_lease(lease) as (conn, leased):
            gone = list(epochs)
            ledger.forget(conn, leased, gone)
            _end_keys(conn, leased, (), [lane_task(epoch) for epoch in gone])

    # -- states
    def states(self, pipeline: str, *, only_sound: bool = False) -> list[StoredState]:
        with self._db.reading() as conn:
            saved = ledger.saved_states(conn, pipeline)
        return saved.sound() if only_sound else saved.whole(pipeline)

    def damaged_states(self, pipeline: str) -> list[StateScope]:
        with self._db.reading() as conn:
            return ledger.saved_states(conn, pipeline).damaged

    def verify(self, pipeline: str) -> None:
        with self._db.reading() as conn:
            ledger.saved_states(conn, pipeline).whole(pipeline)
            ledger.verify_groups(conn, pipeline)
            names_and_schemas.verify(conn, pipeline)
            query = select(PIPELINES.c.floors).where(PIPELINES.c.name == pipeline)
            _floors(pipeline, conn.scalar(query) or "{}")
            for row in conn.execute(rows_of(OVERRIDES, pipeline)):
                _config(row)
            keys_ledger.verify(PlainSql(conn), pipeline)

    def replace_states(
        self, lease: Lease, states: Sequence[StoredState], reset: Reset | None = None
    ) -> None:
        with self._under_lease(lease) as (conn, leased):
            ledger.save_states(conn, leased, ledger.saved_states(conn, leased.name), states)
            floors = {rules.ANYTHING: leased.epoch}
            if reset is not None:
                floors = {**leased.floors, **{s.key: leased.epoch for s in reset.streams}}
                ledger.strip_groups(conn, leased, reset)
                ledger.adopt(conn, leased, [s.key for s in reset.streams])
                keys_ledger.reset(PlainSql(conn), leased.name, reset.streams)
            else:
                keys_ledger.end(PlainSql(conn), leased.name, (), None)
                if not states:
                    ledger.give_up_groups(conn, leased)
                    ledger.adopt_all(conn, leased)
                    keys_ledger.reset(PlainSql(conn), leased.name, None)
            text = msgspec.json.encode(floors).decode()
            conn.execute(_pipeline(leased).values(floors=sealed(text, FLOORS)))

    def floors(self, pipeline: str) -> dict[StreamId | None, int]:
        with self._db.reading() as conn:
            query = select(PIPELINES.c.floors).where(PIPELINES.c.name == pipeline)
            return rules.floors_of(_floors(pipeline, conn.scalar(query) or "{}"))

    def state_history(self, pipeline: str, limit: int = 100) -> list[dict[str, Any]]:
        with self._db.reading() as conn:
            rows = conn.execute(
                rows_of(HISTORY, pipeline).order_by(HISTORY.c.id.desc()).limit(limit)
            )
            return [_history_entry(row) for row in rows]

    # -- connectors' own keys
    def begin_keys(self, lease: Lease, task: str) -> None:
        with self._under_lease(lease) as (conn, leased):
            keys_ledger.begin(PlainSql(conn), leased.name, task)

    def end_keys(
        self, lease: Lease, covered: Iterable[CoveredKeys] = (), tasks: Iterable[str] | None = None
    ) -> None:
        with self._under_lease(lease) as (conn, leased):
            _end_keys(conn, leased, covered, tasks)

    def reset_keys(self, lease: Lease, streams: Sequence[StreamId]) -> None:
        with self._under_lease(lease) as (conn, leased):
            keys_ledger.reset(PlainSql(conn), leased.name, streams)

    def connector_keys(self, pipeline: str) -> dict[KeyAddress, str]:
        with self._db.reading() as conn:
            return keys_ledger.durable(PlainSql(conn), pipeline)

    # -- what is remembered of streams, and schemas, which only grow
    def remembered(self, pipeline: str, streams: Iterable[StreamId] | None = None) -> Remembered:
        kinds = None if streams is None else remembered.kinds(streams)
        with self._db.reading() as conn:
            return remembered.remembered(names_and_schemas.names(conn, pipeline, kinds))

    def remember(
        self, lease: Lease, more: Remembered, *, taken_up: Iterable[StreamId] = ()
    ) -> None:
        again = list(taken_up)
        kinds = remembered.kinds(remembered.streams_of(more, again))
        with self._under_lease(lease) as (conn, leased):
            known = names_and_schemas.names(conn, leased.name, kinds)
            wanted = remembered.added(more, known, again)
            names_and_schemas.grow_names(conn, leased.name, known, wanted)

    def schema_version(self, lease: Lease, stream: StreamId, schema: RowSchema) -> RowSchema:
        return self.schema_versions(lease, {stream: schema})[stream]

    def schema_versions(
        self, lease: Lease, schemas: Mapping[StreamId, RowSchema]
    ) -> dict[StreamId, RowSchema]:
        with self._under_lease(lease) as (conn, leased):
            return names_and_schemas.schema_versions(conn, leased.name, schemas)

    def schemas(self, pipeline: str, stream: StreamId) -> dict[int, RowSchema]:
        with self._db.reading() as conn:
            return names_and_schemas.schemas(conn, pipeline, stream)

    def newest_schemas(
        self, pipeline: str, streams: Iterable[StreamId]
    ) -> dict[StreamId, RowSchema]:
        with self._db.reading() as conn:
            return names_and_schemas.newest_schemas(conn, pipeline, streams)

    def remember_source(self, lease: Lease, protocol: str, reference: str) -> None:
        with self._under_lease(lease) as (conn, leased):
            conn.execute(
                _pipeline(leased).values(source_protocol=protocol, source_reference=reference)
            )

    def source_of(self, pipeline: str) -> StateSource | None:
        with self._db.reading() as conn:
            row = conn.execute(select(PIPELINES).where(PIPELINES.c.name == pipeline)).one_or_none()
        if row is None or row.source_protocol is None:
            return None
        return StateSource(row.source_protocol, row.source_reference or "")

    def known_streams(self, pipeline: str) -> set[StreamId]:
        with self._db.reading() as conn:
            keys = {
                key
                for column in (GENERATIONS.c.stream, SCHEMAS.c.stream, STATES.c.scope)
                for key in conn.scalars(
                    select(column).where(column.table.c.pipeline == pipeline).distinct()
                )
            }
        return {rules.stream_from_key(key) for key in keys if key != rules.SHARED}

    # -- connector configuration that a connector changed (CONTROL): secret
    def config_override(self, pipeline: str, role: str) -> tuple[str, dict[str, Any]] | None:
        with self._db.reading() as conn:
            row = conn.execute(
                rows_of(OVERRIDES, pipeline).where(OVERRIDES.c.role == role)
            ).one_or_none()
        return None if row is None else (row.base_hash, _config(row))

    def set_config_override(
        self, lease: Lease, role: str, base_hash: str, config: dict[str, Any]
    ) -> None:
        with self._under_lease(lease) as (conn, leased):
            conn.execute(
                delete(OVERRIDES).where(
                    OVERRIDES.c.pipeline == leased.name, OVERRIDES.c.role == role
                )
            )
            conn.execute(
                insert(OVERRIDES).values(
                    pipeline=leased.name,
                    role=role,
                    base_hash=base_hash,
                    config=sealed(json.dumps(config), _config_of(role)),
                )
            )

    # -- runs
    def start_run(self, lease: Lease, run: str, started_at: str) -> None:
        with self._under_lease(lease) as (conn, leased):
            conn.execute(delete(RUNS).where(RUNS.c.pipeline == leased.name, RUNS.c.run == run))
            conn.execute(
                insert(RUNS).values(
                    pipeline=leased.name, run=run, token=lease.token, started_at=started_at
                )
            )

    def finish_run(self, lease: Lease, run: str, report: dict[str, Any]) -> None:
        with self._under_lease(lease) as (conn, leased):
            conn.execute(
                update(RUNS)
                .where(RUNS.c.pipeline == leased.name, RUNS.c.run == run)
                .values(report=json.dumps(report))
            )

    def runs(self, pipeline: str | None, limit: int = 100) -> list[dict[str, Any]]:
        query = select(RUNS).order_by(RUNS.c.started_at.desc(), RUNS.c.run.desc()).limit(limit)
        if pipeline is not None:
            query = query.where(RUNS.c.pipeline == pipeline)
        with self._db.reading() as conn:
            rows = conn.execute(query).all()
            held_by = conn.execute(select(PIPELINES).where(PIPELINES.c.token.is_not(None)))
            locks = {lock.token: lock for row in held_by if (lock := _lock(row))}
        return [
            json.loads(row.report)
            if row.report is not None
            else rules.unfinished_report(
                row.pipeline, row.run, row.started_at, locks.get(row.token)
            )
            for row in rows
        ]

    def forget_runs(self, lease: Lease, runs: Sequence[str]) -> None:
        with self._under_lease(lease) as (conn, leased):
            for run in runs:
                conn.execute(delete(RUNS).where(RUNS.c.pipeline == leased.name, RUNS.c.run == run))

    def pipelines(self) -> list[str]:
        with self._db.reading() as conn:
            return list(conn.scalars(select(PIPELINES.c.name).order_by(PIPELINES.c.name)))

    @contextmanager
    def _under_lease(self, lease: Lease) -> Generator[tuple[Connection, LeasedRow]]:
        """Opens a write transaction after comparing the lease's token. Raises ``LeaseLost``."""
        with (
            self._db.recognised(lease.pipeline) as token,
            self._db.writing(lambda conn: self._is_written(conn, lease, token)) as conn,
        ):
            row = _leased(conn, lease)
            yield (
                conn,
                LeasedRow(
                    name=row.name,
                    state_id=row.state_id,
                    holder=_holder(row.holder),
                    now=self._db.stamp(conn, token),
                    epoch=row.epoch,
                    last_group=row.last_group,
                    last_history=row.last_history,
                    stored_floors=row.floors,
                ),
            )

    def _is_written(self, conn: Connection, lease: Lease, written: WriteToken | None) -> bool:
        """Returns whether a write is committed whose commit got no answer. Raises ``LeaseLost``."""
        _leased(conn, lease)
        return self._db.is_written(conn, written)


def _leased(conn: Connection, lease: Lease) -> "Row[Any]":
    """Locks and returns the row of the lease's pipeline. Raises ``LeaseLost``."""
    row = conn.execute(
        select(PIPELINES).where(PIPELINES.c.name == lease.pipeline).with_for_update()
    ).one_or_none()
    if row is None or row.token != lease.token:
        taken_by = _holder(row.holder) if row is not None and row.holder else None
        raise rules.lease_lost(lease.pipeline, taken_by)
    return row


def _born(pipeline: str) -> dict[str, Any]:
    counters = dict.fromkeys(("epoch", "last_group", "last_history"), 0)
    return {"name": pipeline, "state_id": uuid.uuid4().hex, "floors": "{}", **counters}


def _end_keys(
    conn: Connection, leased: LeasedRow, covered: Iterable[CoveredKeys], tasks: Iterable[str] | None
) -> None:
    # bodies of groups may be long: they are read only where keys wait for their checkpoint
    sql = PlainSql(conn)
    waits = keys_ledger.has_overlay(sql, leased.name)
    written = ledger.keys_covered(conn, leased.name) if waits else []
    keys_ledger.end(sql, leased.name, [*covered, *written], tasks)


def _floors(pipeline: str, body: str) -> dict[str, int]:
    return msgspec.json.decode(open_value(pipeline, body, FLOORS), type=dict[str, int])


def _config_of(role: str) -> str:
    return f"the changed configuration of {role}"


def _config(row: "Row[Any]") -> dict[str, Any]:
    return json.loads(open_value(row.pipeline, row.config, _config_of(row.role)))


def _history_entry(row: "Row[Any]") -> dict[str, Any]:
    made = partial(rules.history_entry, iso_time(row.at), row.run, row.scope, row.type)
    try:
        blob = None if row.blob is None else opened(row.blob, ledger.history_of(row.scope))
    except Mismatch:
        return made(None) | {"damaged": True}
    return made(blob)


def _pipeline(leased: LeasedRow) -> Update:
    return update(PIPELINES).where(PIPELINES.c.name == leased.name)


def _lock(row: "Row[Any]") -> PipelineLock | None:
    """Returns the lock in a row of a pipeline; None: nobody has it."""
    if row.token is None:
        return None
    holder = _holder(row.holder)
    alive = is_alive(holder, row.holder_mark)
    if alive and (holder.pid, holder.boot) == (os.getpid(), boot()):
        alive = row.token in _held  # a lock that this process could not give back is free
    return PipelineLock(
        holder=holder,
        token=row.token,
        renewal=row.lease_until,
        seconds=holder.lease_seconds,
        alive=alive,
    )


def _holder(body: str) -> Holder:
    return msgspec.json.decode(body, type=Holder)
