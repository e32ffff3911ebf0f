"""Reads and writes connector keys in SQL: which task may write, which versions become durable.

A key has several versions: the durable one (no task), and those that tasks wrote and no committed
checkpoint covers yet; the newest counts. A version may be a tombstone of a deleted key; it stays as
long as it hides an older version. Every store uses these functions, in tasks and in the driver,
over one small interface (:class:`Sql`). They are plain SQL, because tasks write keys in a
connector's process, where SQLAlchemy must not be imported: it would cost every lane's start more
than all other imports. ``Sql`` is implemented by ``task_keys`` (a task's own connection),
``database.PlainSql`` (the driver's transactions) and ``memory``. Not here: leases (``sql``), when a
checkpoint is committed (``ledger``)."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from penstock.model.catalog import StreamId
from penstock.store.checksums import opened_bytes, sealed_bytes
from penstock.store.damage import value_damaged
from penstock.store.database_url import chunks
from penstock.store.keys import (
    PAGE_BYTES,
    PAGE_KEYS,
    PATH,
    CoveredKeys,
    KeyAddress,
    bounds_of,
    keys_closed,
    scope_of,
)

Values = tuple[Any, ...]
Stamp = tuple[str, str, int]  # task, scope (``keys.covers``), mark

_DURABLE = ""  # stands for the task in the durable version of a key
_NEXT = b"\0"  # of keys in order: what follows a key
_OF_TASK = " AND task || '' = ?"  # slots are few, a task's keys many: its index is no use
_INSERT = (
    "INSERT INTO penstock_keys (pipeline, slot, version, scope, owner, key, value, task, covers, "
    "mark, gone) "
)
_BETTER_IS_DURABLE = (
    " AND EXISTS (SELECT 1 FROM penstock_keys AS better WHERE better.pipeline = "
    "penstock_keys.pipeline AND better.slot = penstock_keys.slot AND better.task = ? "
    "AND better.version > penstock_keys.version)"
)
_HIDES_NOTHING = (
    " AND gone = 1 AND NOT EXISTS (SELECT 1 FROM penstock_keys AS older WHERE older.pipeline = "
    "penstock_keys.pipeline AND older.slot = penstock_keys.slot "
    "AND older.version < penstock_keys.version)"
)
_UNDER = "pipeline = ? AND scope = 'path' AND owner = ? AND key >= ? AND key < ?"
_THERE = (  # the scope is no parameter, so that the index of paths is used
    f"FROM penstock_keys AS k WHERE {_UNDER} AND gone = 0 AND NOT EXISTS (SELECT 1 FROM "
    "penstock_keys AS newer WHERE newer.pipeline = k.pipeline AND newer.slot = k.slot "
    "AND newer.version > k.version)"
)


class Sql(Protocol):
    """Runs statements with ``?`` for values on a store's database."""

    def rows(self, sql: str, values: Values, *, share: bool = False) -> list[Any]:
        """Runs a query and returns its rows. ``share``: locks them against changes until the
        transaction ends."""
        ...

    def execute(self, sql: str, values: Values) -> None:
        """Runs a statement that returns no rows."""
        ...


# -- a task's calls


def slot_of(place: KeyAddress) -> str:
    """Hashes the three parts of a key's name (SHA-256, hexadecimal), for the index."""
    text = json.dumps([place.scope, place.owner, place.key])
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def newest(sql: Sql, pipeline: str, place: KeyAddress) -> tuple[int, str | None]:
    """Returns the newest version number of a key (0: none) and its value; None: no such key."""
    found = sql.rows(
        "SELECT version, value, gone FROM penstock_keys WHERE pipeline = ? AND slot = ? "
        "ORDER BY version DESC LIMIT 1",
        (pipeline, slot_of(place)),
    )
    if not found:
        return 0, None
    version, value, gone = found[0]
    return version, None if gone else _text(pipeline, place, value)


def count_under(sql: Sql, pipeline: str, under: KeyAddress) -> int:
    """Counts the keys under a path; see ``KeyPort.count_under``."""
    return int(sql.rows(f"SELECT count(*) {_THERE}", (pipeline, *_range(under)))[0][0])


def page_under(
    sql: Sql, pipeline: str, under: KeyAddress, after: str | None
) -> list[tuple[str, str]]:
    """Returns a page of the keys under a path; see ``KeyPort.page_under``. Reads sizes first, so
    that no more values are in memory than a page has."""
    owner, low, high = _range(under)
    if after is not None:
        low = after.encode() + _NEXT
    sizes = sql.rows(
        f"SELECT key, length(value) {_THERE} ORDER BY key LIMIT ?",
        (pipeline, owner, low, high, PAGE_KEYS),
    )
    if not sizes:
        return []
    size, last = 0, bytes(sizes[0][0])
    for key, length in sizes:
        size += length
        if size > PAGE_BYTES:
            break
        last = bytes(key)
    page = (pipeline, owner, low, last + _NEXT)
    rows = sql.rows(f"SELECT key, value {_THERE} ORDER BY key", page)
    names = ((bytes(key).decode(), value) for key, value in rows)
    found = [
        (key, _text(pipeline, KeyAddress(PATH, under.owner, key), value)) for key, value in names
    ]
    return found or page_under(sql, pipeline, under, last.decode())  # deleted meanwhile


def mark_for(sql: Sql, pipeline: str, task: str, mark: int | None) -> int:
    """Returns the mark for what ``task`` writes, the number of the checkpoint that will cover it:
    ``mark``, or a new one if that is None. Raises ``StateError`` (``store.keys_closed``) if the
    task may not write."""
    mine = (pipeline, task)
    if mark is None:
        where = "WHERE pipeline = ? AND task = ?"
        sql.execute(f"UPDATE penstock_key_tasks SET marks = marks + 1 {where}", mine)
    found = sql.rows(
        "SELECT marks FROM penstock_key_tasks WHERE pipeline = ? AND task = ?",
        mine,
        share=mark is not None,
    )
    if not found:
        raise keys_closed(pipeline, task)
    return mark or int(found[0][0])


def put(
    sql: Sql,
    pipeline: str,
    place: KeyAddress,
    version: int,
    value: str | None,
    stamp: Stamp,
) -> None:
    """Writes a version of a key; ``value`` None: a tombstone. Versions with the same task and mark
    replace each other, so that a key written in a loop stays small."""
    slot, (task, _, mark) = slot_of(place), stamp
    sql.execute(
        f"DELETE FROM penstock_keys WHERE pipeline = ? AND slot = ?{_OF_TASK} AND mark + 0 = ?",
        (pipeline, slot, task, mark),
    )
    names = (place.scope, place.owner.encode(), place.key.encode())
    stored = b"" if value is None else sealed_bytes(value.encode(), slot)
    sql.execute(
        f"{_INSERT}VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (pipeline, slot, version, *names, stored, *stamp, int(value is None)),
    )


def is_put(sql: Sql, pipeline: str, place: KeyAddress, version: int, stamp: Stamp) -> bool:
    """Returns whether a :func:`put` of this task is committed. The caller excludes writers of the
    key; no other write of the task has this version and stamp."""
    values = (pipeline, slot_of(place), version, *stamp)
    mine = "pipeline = ? AND slot = ? AND version = ? AND task = ? AND covers = ? AND mark = ?"
    return bool(sql.rows(f"SELECT 1 FROM penstock_keys WHERE {mine}", values))


def delete_under(sql: Sql, pipeline: str, under: KeyAddress, stamp: Stamp) -> None:
    """Deletes every key that ``page_under`` finds. The caller excludes writers of such keys."""
    task, covers, mark = stamp
    span = (pipeline, *_range(under))
    sql.execute(
        f"{_INSERT}SELECT pipeline, slot, version + 1, scope, owner, key, ?, ?, ?, ?, 1 {_THERE}",
        (b"", task, covers, mark, *span),
    )
    sql.execute(
        f"DELETE FROM penstock_keys WHERE {_UNDER} AND task = ? AND mark = ? AND gone = 0",
        (*span, task, mark),
    )


def discard(sql: Sql, pipeline: str, task: str, mark: int) -> None:
    """Deletes what a task wrote under ``mark``: since its last checkpoint."""
    _drop(sql, pipeline, " AND task = ? AND mark = ?", (task, mark))


# -- the driver's, in a transaction that has checked the lease


def begin(sql: Sql, pipeline: str, task: str) -> None:
    """Permits a task to write keys."""
    sql.execute(
        "INSERT INTO penstock_key_tasks (pipeline, task, marks) VALUES (?, ?, 0) "
        "ON CONFLICT DO NOTHING",
        (pipeline, task),
    )


def end(
    sql: Sql, pipeline: str, covered: Iterable[CoveredKeys], tasks: Iterable[str] | None
) -> None:
    """Forbids these tasks (None: all) to write keys, and deletes what they wrote beyond
    ``covered``. Waits for a task's write that is under way."""
    bounds = bounds_of(covered)
    for which, names in [("", ())] if tasks is None else _among("task", tasks):
        # first: it waits for writes that are under way
        sql.execute(f"DELETE FROM penstock_key_tasks WHERE pipeline = ?{which}", (pipeline, *names))
        for task, covers in _written(sql, pipeline, which, names):
            beyond = (task, covers, bounds.get((task, covers), 0))
            _drop(sql, pipeline, " AND task = ? AND covers = ? AND mark > ?", beyond)


def has_overlay(sql: Sql, pipeline: str) -> bool:
    """Returns whether the pipeline has versions of keys that are not durable."""
    one = "SELECT 1 FROM penstock_keys WHERE pipeline = ? AND task <> ? LIMIT 1"
    return bool(sql.rows(one, (pipeline, _DURABLE)))


def promote(sql: Sql, pipeline: str, covered: Iterable[CoveredKeys]) -> None:
    """Makes durable what these checkpoints cover, and deletes durable versions that a newer durable
    one of the same key replaces."""
    touched: set[str] = set()
    for (task, covers), upto in bounds_of(covered).items():
        where = "WHERE pipeline = ? AND task = ? AND covers = ? AND mark <= ?"
        mine = (pipeline, task, covers, upto)
        slots = {row[0] for row in sql.rows(f"SELECT slot FROM penstock_keys {where}", mine)}
        if slots:
            touched |= slots
            sql.execute(
                f"UPDATE penstock_keys SET task = ?, covers = '', mark = 0 {where}",
                (_DURABLE, *mine),
            )
    for which, slots in _among("slot", touched):
        values = (_DURABLE, *slots, _DURABLE)
        _drop(sql, pipeline, f"{_OF_TASK}{which}{_BETTER_IS_DURABLE}", values)
        _drop(sql, pipeline, f"{_OF_TASK}{which}{_HIDES_NOTHING}", values[:-1])


def reset(sql: Sql, pipeline: str, streams: Iterable[StreamId] | None) -> None:
    """Deletes the streams' own keys, and what only checkpoints of their states would have made
    durable. ``streams`` None: deletes every key of the pipeline."""
    if streams is None:
        _drop(sql, pipeline, "", ())
        return
    given = {stream.key for stream in streams}
    for which, owners in _among("owner", [key.encode() for key in given]):
        _drop(sql, pipeline, f" AND scope IN ('stream', 'path'){which}", owners)
    written = {covers for _, covers in _written(sql, pipeline)}
    for which, covers in _among("covers", [text for text in written if scope_of(text) in given]):
        _drop(sql, pipeline, which, covers)


def durable(sql: Sql, pipeline: str) -> dict[KeyAddress, str]:
    """Returns the durable keys and their values, sorted by key."""
    columns = "SELECT scope, owner, key, value FROM penstock_keys"
    where = "WHERE pipeline = ? AND task = ? AND gone = 0"
    rows = sql.rows(f"{columns} {where}", (pipeline, _DURABLE))
    named = (
        (KeyAddress(scope, bytes(owner).decode(), bytes(key).decode()), value)
        for scope, owner, key, value in rows
    )
    return {place: _text(pipeline, place, value) for place, value in sorted(named)}


def verify(sql: Sql, pipeline: str) -> None:
    """Raises ``StateError`` (``state.damaged``) if a key that has a value is damaged."""
    columns = "SELECT scope, owner, key, value FROM penstock_keys"
    for scope, owner, key, value in sql.rows(
        f"{columns} WHERE pipeline = ? AND gone = 0", (pipeline,)
    ):
        place = KeyAddress(scope, bytes(owner).decode(), bytes(key).decode())
        _text(pipeline, place, value)


def _text(pipeline: str, place: KeyAddress, value: bytes) -> str:
    """Returns the value of a key. Raises ``StateError`` (``state.damaged``)."""
    try:
        return opened_bytes(bytes(value), slot_of(place)).decode()
    except ValueError:  # of the checksum, or of UTF-8
        raise value_damaged(pipeline, f"the connector's key {place.key!r}") from None


def _written(sql: Sql, pipeline: str, which: str = "", values: Values = ()) -> list[Any]:
    """Returns (task, scope as of ``keys.covers``) of the versions that are not durable."""
    distinct = "SELECT DISTINCT task, covers FROM penstock_keys WHERE pipeline = ? AND task <> ?"
    return sql.rows(f"{distinct}{which}", (pipeline, _DURABLE, *values))


def _range(under: KeyAddress) -> tuple[bytes, bytes, bytes]:
    """Returns the owner, the first key, and the end of the range of keys that begin with a path's
    (exclusive): a byte of UTF-8 is never 0xff."""
    low = under.key.encode()
    return under.owner.encode(), low, low[:-1] + bytes([low[-1] + 1]) if low else b"\xff"


def _drop(sql: Sql, pipeline: str, which: str, values: Values) -> None:
    sql.execute(f"DELETE FROM penstock_keys WHERE pipeline = ?{which}", (pipeline, *values))


def _among(column: str, values: Iterable[str | bytes]) -> Iterator[tuple[str, Values]]:
    for part in chunks(values):
        yield f" AND {column} IN ({', '.join('?' * len(part))})", tuple(part)
