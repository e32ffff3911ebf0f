"""Connector keys in SQL, the driver's side: who may write, what becomes durable, what vanishes.

Functions over an open transaction whose caller has checked the lease. A key has several versions:
the durable one (no task), and those that tasks wrote and no committed checkpoint covers yet; the
newest counts. Values never pass through here but to be shown. Neighbours: ``task_keys`` writes the
versions, ``ledger`` promotes them with the states of a group.
"""

from collections.abc import Iterable

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update

from penstock.model.catalog import StreamId
from penstock.state.database import chunks, rows_of
from penstock.state.keys import Covered, Place, bounds_of, scope_of
from penstock.state.schema import KEY_TASKS, KEYS

_DURABLE = ""  # the task of what nobody can take back


def begin(conn: Connection, pipeline: str, task: str) -> None:
    known = rows_of(KEY_TASKS, pipeline).where(KEY_TASKS.c.task == task)
    if conn.execute(known).one_or_none() is None:
        conn.execute(insert(KEY_TASKS).values(pipeline=pipeline, task=task, marks=0))


def end(
    conn: Connection, pipeline: str, covered: Iterable[Covered], tasks: Iterable[str] | None
) -> None:
    """These tasks (None: all) write no more, and what they wrote beyond ``covered`` is gone."""
    wanted = None if tasks is None else list(tasks)
    fences: list[list[str] | None] = [None] if wanted is None else [*chunks(wanted)]
    bounds = bounds_of(covered)
    for part in fences:
        writers = delete(KEY_TASKS).where(KEY_TASKS.c.pipeline == pipeline)
        written = select(KEYS.c.task, KEYS.c.covers).where(*_overlay(pipeline)).distinct()
        if part is not None:
            writers = writers.where(KEY_TASKS.c.task.in_(part))
            written = written.where(KEYS.c.task.in_(part))
        # first: it waits for writes that are under way
        conn.execute(writers)
        for task, covers in conn.execute(written).all():
            conn.execute(
                delete(KEYS).where(
                    KEYS.c.pipeline == pipeline,
                    KEYS.c.task == task,
                    KEYS.c.covers == covers,
                    KEYS.c.mark > bounds.get((task, covers), 0),
                )
            )


def has_overlay(conn: Connection, pipeline: str) -> bool:
    return conn.execute(select(KEYS.c.slot).where(*_overlay(pipeline)).limit(1)).first() is not None


def promote(conn: Connection, pipeline: str, covered: Iterable[Covered]) -> None:
    """What these checkpoints cover is durable, where no newer version of its key is already."""
    touched: set[str] = set()
    for (task, covers), upto in bounds_of(covered).items():
        mine = (
            KEYS.c.pipeline == pipeline,
            KEYS.c.task == task,
            KEYS.c.covers == covers,
            KEYS.c.mark <= upto,
        )
        slots = conn.scalars(select(KEYS.c.slot).where(*mine).distinct()).all()
        if slots:
            touched.update(slots)
            conn.execute(update(KEYS).where(*mine).values(task=_DURABLE, covers="", mark=0))
    for part in chunks(touched):
        durable = (
            KEYS.c.pipeline == pipeline,
            KEYS.c.slot.in_(part),
            KEYS.c.task == _DURABLE,
        )
        newest = (
            select(KEYS.c.slot, func.max(KEYS.c.version))
            .where(*durable)
            .group_by(KEYS.c.slot)
            .having(func.count() > 1)
        )
        for slot, version in conn.execute(newest).all():
            conn.execute(
                delete(KEYS).where(
                    KEYS.c.pipeline == pipeline,
                    KEYS.c.slot == slot,
                    KEYS.c.task == _DURABLE,
                    KEYS.c.version < version,
                )
            )


def reset(conn: Connection, pipeline: str, streams: Iterable[StreamId] | None) -> None:
    """``streams``: their own keys, and what only their states would have made durable; None: every
    key."""
    if streams is None:
        _drop(conn, pipeline, KEYS.c.pipeline == pipeline)
        return
    given = {stream.key for stream in streams}
    for part in chunks([key.encode() for key in given]):
        _drop(conn, pipeline, (KEYS.c.scope == "stream") & KEYS.c.owner.in_(part))
    written = conn.scalars(select(KEYS.c.covers).where(*_overlay(pipeline)).distinct()).all()
    for part in chunks([text for text in written if scope_of(text) in given]):
        _drop(conn, pipeline, KEYS.c.covers.in_(part))


def durable(conn: Connection, pipeline: str) -> dict[Place, str]:
    rows = conn.execute(rows_of(KEYS, pipeline).where(KEYS.c.task == _DURABLE))
    found = {
        Place(row.scope, bytes(row.owner).decode(), bytes(row.key).decode()): bytes(
            row.value
        ).decode()
        for row in rows
    }
    return dict(sorted(found.items()))


def _drop(conn: Connection, pipeline: str, which: ColumnElement[bool]) -> None:
    conn.execute(delete(KEYS).where(KEYS.c.pipeline == pipeline, which))


def _overlay(pipeline: str) -> tuple[ColumnElement[bool], ...]:
    return (KEYS.c.pipeline == pipeline, KEYS.c.task != _DURABLE)
