"""Reads and writes the ledger in SQL: groups, their loads, consumed segments, states (L1, L3).

Functions over an open transaction whose caller has checked the lease. Not here: which states may be
saved (``rules``); the lease, names and runs (``sql``). Statements take many rows at once: a group,
and a call, may have 10,000 loads.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import and_, delete, func, select, update
from sqlalchemy.engine import Connection, Row

from penstock.model.catalog import StreamId
from penstock.model.segments import ConsumedSlice, Group, Load, SegmentId
from penstock.model.state import StateScope, StoredState
from penstock.store import checksums, damage, keys_ledger, names_and_schemas, remembered, rules
from penstock.store.contract import GroupIntent, Holder, KeyedGroup, Merge, Reset
from penstock.store.database import PlainSql, insert_all, rows_of, update_all
from penstock.store.database_url import chunks
from penstock.store.keys import CoveredKeys
from penstock.store.schema import (
    CONSUMED,
    EPOCHS,
    GROUP_KEYS,
    GROUPS,
    HISTORY,
    LOADS,
    NUMBERS,
    PIPELINES,
    STATES,
)

FLOORS = "the record of resets"


class LeasedRow(msgspec.Struct):
    """Holds the row of a pipeline whose lease was checked in the open transaction. ``now``: seconds
    since 1970 by the store's clock; ``epoch``, ``last_group``, ``last_history``: the last numbers
    given; ``stored_floors``: stored form of :attr:`floors`, by stream key
    (:func:`rules.floors_of`)."""

    name: str
    state_id: str
    holder: Holder
    now: float
    epoch: int
    last_group: int
    last_history: int
    stored_floors: str

    @property
    def floors(self) -> dict[str, int]:
        """Reads the floors. Raises ``StateError`` (``state.damaged``)."""
        text = damage.open_value(self.name, self.stored_floors, FLOORS)
        return msgspec.json.decode(text, type=dict[str, int])


def intend(
    conn: Connection, leased: LeasedRow, intents: Sequence[GroupIntent], *, committed: bool = False
) -> list[Group]:
    """Inserts groups, and gives each its id and each load its number. ``committed``: their loads
    are committed already. Raises ``StateError`` (``state.consumed_twice``) if a share of a segment
    was consumed before."""
    stored = _numbers(conn, leased, {load.stream.key for i in intents for load in i.loads})
    numbers = dict(stored)
    groups = rules.number_groups(
        leased.state_id,
        intents,
        leased.last_group,
        numbers,
        leased.floors,
        into_tables=not committed,
    )
    _consume(conn, leased, [ConsumedSlice(*item) for group in groups for item in group.consumes])
    leased.last_group += len(groups)
    _set(conn, leased, last_group=leased.last_group)
    _put_numbers(conn, leased.name, stored, numbers)
    insert_all(
        conn,
        GROUPS,
        [
            {
                "pipeline": leased.name,
                "id": g.id,
                "done": int(committed or not g.loads),
                "body": _group_text(g),
            }
            for g in groups
        ],
    )
    insert_all(
        conn,
        GROUP_KEYS,
        [{"pipeline": leased.name, "key": k, "id": g.id} for g in groups for k in rules.touches(g)],
    )
    insert_all(
        conn,
        LOADS,
        [
            {
                "pipeline": leased.name,
                "id": g.id,
                "key": load.key,
                "number": load.number,
                "committed": int(committed),
            }
            for g in groups
            for load in g.loads
        ],
    )
    _end_refreshes(conn, leased, groups)
    return list(groups)


def _end_refreshes(conn: Connection, leased: LeasedRow, groups: Sequence[KeyedGroup]) -> None:
    """Ends the pending refreshes whose generations these groups publish."""
    epochs = rules.refreshed(groups)
    if epochs:
        kinds = remembered.refresh_kinds(epochs)
        known = names_and_schemas.names(conn, leased.name, kinds)
        ended = remembered.refreshes_ended(known, epochs, leased.epoch)
        wanted = remembered.added(ended, known, ())
        names_and_schemas.grow_names(conn, leased.name, known, wanted)


def adopt(conn: Connection, leased: LeasedRow, streams: Iterable[str]) -> None:
    """Accepts the tables of streams with any load number (see ``Store.adopt``). ``streams``: their
    keys."""
    wanted = set(streams)
    stored = _numbers(conn, leased, wanted)
    after = {s: rules.adopted(stored.get(s, rules.LoadNumbers())) for s in wanted}
    _put_numbers(conn, leased.name, stored, after)


def adopt_all(conn: Connection, leased: LeasedRow) -> None:
    """Does :func:`adopt` for every stream that has a load number."""
    query = select(NUMBERS.c.stream).where(NUMBERS.c.pipeline == leased.name)
    adopt(conn, leased, list(conn.scalars(query)))


def renumber(conn: Connection, leased: LeasedRow, above: Mapping[StreamId, int]) -> set[StreamId]:
    """Gives new numbers to uncommitted loads; see ``Store.renumber``. Reads the bodies of groups
    only if a stream is renumbered."""
    stored = _numbers(conn, leased, {s.key for s in above})
    wanted = {s for s in above if s.key in stored and stored[s.key].adopts}
    if not wanted:
        return set()
    numbers = {s.key: rules.renumbering(stored[s.key], above[s]) for s in wanted}
    for row in conn.execute(rows_of(GROUPS, leased.name).order_by(GROUPS.c.id)).all():
        before = _group(leased.name, row.id, row.body)
        done = committed_loads(conn, leased.name, row.id)
        group = rules.renumbered(before, done, numbers)
        if group == before:
            continue
        body = _group_text(group)
        mine = (GROUPS.c.pipeline == leased.name, GROUPS.c.id == row.id)
        conn.execute(update(GROUPS).where(*mine).values(body=body))
        left = (LOADS.c.pipeline == leased.name, LOADS.c.id == row.id, LOADS.c.committed == 0)
        conn.execute(delete(LOADS).where(*left))
        names = {"pipeline": leased.name, "id": row.id, "committed": 0}
        loads = [{**names, "key": x.key, "number": x.number} for x in group.loads]
        insert_all(conn, LOADS, [x for x in loads if (x["key"], x["number"]) not in done])
    _put_numbers(conn, leased.name, {key: stored[key] for key in numbers}, numbers)
    return wanted


def all_numbers(conn: Connection, pipeline: str) -> dict[str, rules.LoadNumbers]:
    """Returns the load numbers of every stream, by its key."""
    return {row.stream: _load_numbers(row) for row in conn.execute(rows_of(NUMBERS, pipeline))}


def _numbers(
    conn: Connection, leased: LeasedRow, streams: Iterable[str]
) -> dict[str, rules.LoadNumbers]:
    return {
        row.stream: _load_numbers(row)
        for part in chunks(streams)
        for row in conn.execute(rows_of(NUMBERS, leased.name).where(NUMBERS.c.stream.in_(part)))
    }


def _load_numbers(row: Row[Any]) -> rules.LoadNumbers:
    return rules.LoadNumbers(row.number, row.table_number, bool(row.adopts), bool(row.anew))


def _put_numbers(
    conn: Connection,
    pipeline: str,
    stored: dict[str, rules.LoadNumbers],
    numbers: dict[str, rules.LoadNumbers],
) -> None:
    rows = [
        {
            "pipeline": pipeline,
            "stream": stream,
            "number": n.last,
            "table_number": n.table,
            "adopts": int(n.adopts),
            "anew": int(n.anew),
        }
        for stream, n in numbers.items()
    ]
    for part in chunks(stored):
        conn.execute(
            delete(NUMBERS).where(NUMBERS.c.pipeline == pipeline, NUMBERS.c.stream.in_(part))
        )
    insert_all(conn, NUMBERS, rows)


def mark(conn: Connection, leased: LeasedRow, done: Sequence[tuple[int, Load]]) -> None:
    """Marks loads committed, and groups done whose loads are all committed. ``done``: (group id,
    load). Raises ``StateError`` (``state.unknown_load``)."""
    left: dict[int, dict[tuple[str, int], bool]] = {}
    for part in chunks({group for group, _ in done}):
        for row in conn.execute(rows_of(LOADS, leased.name).where(LOADS.c.id.in_(part))):
            left.setdefault(row.id, {})[row.key, row.number] = not row.committed
    rules.check_marked(leased.name, done, left, leased.last_group)
    marked = {(g, load.key, load.number) for g, load in done if g in left}
    for group, key, number in marked:
        left[group][key, number] = False
    update_all(
        conn,
        LOADS,
        {"committed": 1},
        [
            {"pipeline": leased.name, "id": group, "key": key, "number": number}
            for group, key, number in marked
        ],
    )
    full = [group for group, loads in left.items() if not any(loads.values())]
    update_all(
        conn, GROUPS, {"done": 1}, [{"pipeline": leased.name, "id": group} for group in full]
    )
    for part in chunks({load.stream.key for _, load in done if load.reaches_table}):
        mine = (NUMBERS.c.pipeline == leased.name, NUMBERS.c.adopts == 1)
        conn.execute(update(NUMBERS).where(*mine, NUMBERS.c.stream.in_(part)).values(adopts=0))


def settle(conn: Connection, leased: LeasedRow, merge: Merge) -> None:
    """Saves the states of done groups that no older group defers (``rules.settled``), makes durable
    the connector keys that their checkpoints cover, and deletes these groups."""
    done = rows_of(GROUPS, leased.name).where(GROUPS.c.done == 1).order_by(GROUPS.c.id)
    finished = [_group(leased.name, row.id, row.body) for row in conn.execute(done)]
    if not finished:
        return
    free = rules.settled(finished, _first_unfinished(conn, leased.name, finished))
    new = rules.states_of(free, leased.floors)
    if new:
        saved = saved_states(conn, leased.name)
        save_states(conn, leased, saved, merge(saved.whole(leased.name), new))
    keys_ledger.promote(PlainSql(conn), leased.name, [covered for g in free for covered in g.keys])
    for part in chunks([g.id for g in free]):
        conn.execute(delete(GROUPS).where(GROUPS.c.pipeline == leased.name, GROUPS.c.id.in_(part)))


def _first_unfinished(
    conn: Connection, pipeline: str, finished: Sequence[KeyedGroup]
) -> dict[str, int]:
    unfinished = and_(GROUPS.c.pipeline == pipeline, GROUPS.c.done == 0)
    oldest = conn.scalar(select(func.min(GROUPS.c.id)).where(unfinished))
    if oldest is None:
        return {}
    first: dict[str, int] = {rules.ANYTHING: oldest}
    same = and_(GROUP_KEYS.c.pipeline == GROUPS.c.pipeline, GROUP_KEYS.c.id == GROUPS.c.id)
    keys = {key for g in finished for key in rules.speaks_for(g)} | {rules.SHARED}
    for part in chunks(keys):
        rows = conn.execute(
            select(GROUP_KEYS.c.key, func.min(GROUP_KEYS.c.id))
            .join(GROUPS, same)
            .where(unfinished, GROUP_KEYS.c.key.in_(part))
            .group_by(GROUP_KEYS.c.key)
        )
        first.update((key, least) for key, least in rows)
    return first


def open_groups(conn: Connection, pipeline: str) -> list[Group]:
    """Returns the groups that have an uncommitted load, oldest first."""
    rows = rows_of(GROUPS, pipeline).where(GROUPS.c.done == 0).order_by(GROUPS.c.id)
    return [_group(pipeline, row.id, row.body) for row in conn.execute(rows)]


def verify_groups(conn: Connection, pipeline: str) -> None:
    """Raises ``StateError`` (``state.damaged``) if a stored group is damaged, or is marked as done
    and has a load that is not committed, or the other way round."""
    committed: dict[int, list[bool]] = {}
    for row in conn.execute(rows_of(LOADS, pipeline)):
        committed.setdefault(row.id, []).append(row.committed == 1)
    for row in conn.execute(rows_of(GROUPS, pipeline)):
        damage.open_value(pipeline, row.body, _group_of(row.id))
        loads = committed.get(row.id, [])
        if row.done not in (0, 1) or (loads and all(loads) != bool(row.done)):
            raise damage.value_damaged(pipeline, f"which of {_group_of(row.id)} are committed")


def keys_covered(conn: Connection, pipeline: str) -> list[CoveredKeys]:
    """Returns the connector keys that checkpoints of the stored groups cover."""
    rows = conn.execute(rows_of(GROUPS, pipeline))
    groups = (_group(pipeline, row.id, row.body) for row in rows)
    return [covered for group in groups for covered in group.keys]


def committed_loads(conn: Connection, pipeline: str, group: int) -> set[tuple[str, int]]:
    """Returns (key, number) of a group's committed loads."""
    rows = conn.execute(rows_of(LOADS, pipeline).where(LOADS.c.id == group, LOADS.c.committed == 1))
    return {(row.key, row.number) for row in rows}


def consumed(conn: Connection, pipeline: str, epochs: Iterable[int]) -> set[ConsumedSlice]:
    """Returns the consumed and the abandoned shares of these epochs' segments."""
    found: set[ConsumedSlice] = set()
    for part in chunks(epochs):
        rows = rows_of(CONSUMED, pipeline).where(CONSUMED.c.epoch.in_(part))
        found |= _as_consumed(pipeline, conn.execute(rows))
    return found


def _as_consumed(pipeline: str, rows: "Iterable[Row[Any]]") -> set[ConsumedSlice]:
    """Raises ``StateError`` (``state.damaged``): the rows of the segment that the changed number
    names would never be loaded."""
    streams: dict[str, StreamId] = {}
    found: set[ConsumedSlice] = set()
    for row in rows:
        key = damage.open_value(pipeline, row.stream, _share_of(row.epoch, row.seq))
        stream = streams.get(key)
        if stream is None:
            stream = streams[key] = rules.stream_from_key(key)
        found.add(ConsumedSlice(SegmentId(row.epoch, row.seq), stream))
    return found


def strip_groups(conn: Connection, leased: LeasedRow, reset: Reset) -> None:
    """Removes the reset streams' states and keys from the stored groups, whose states are not saved
    yet."""
    found = conn.execute(rows_of(GROUPS, leased.name))
    for row in found.all():
        group = rules.stripped(_group(leased.name, row.id, row.body), reset)
        mine = (GROUPS.c.pipeline == leased.name, GROUPS.c.id == row.id)
        conn.execute(update(GROUPS).where(*mine).values(body=_group_text(group)))


def give_up_groups(conn: Connection, leased: LeasedRow) -> None:
    """Deletes all groups, for a reset of everything: their rows are read from the source again, and
    so are rows of segments that only a damaged number marks as consumed."""
    conn.execute(delete(GROUPS).where(GROUPS.c.pipeline == leased.name))
    for row in conn.execute(rows_of(CONSUMED, leased.name)).all():
        try:
            checksums.opened(row.stream, _share_of(row.epoch, row.seq))
        except checksums.Mismatch:
            damaged = (CONSUMED.c.pipeline == leased.name, CONSUMED.c.stream == row.stream)
            numbers = (CONSUMED.c.epoch == row.epoch, CONSUMED.c.seq == row.seq)
            conn.execute(delete(CONSUMED).where(*damaged, *numbers))


def abandon(conn: Connection, leased: LeasedRow, items: Iterable[ConsumedSlice]) -> None:
    """Inserts shares of segments as consumed, except those that are consumed already."""
    wanted = dict.fromkeys(items)
    known = consumed(conn, leased.name, {item.segment.epoch for item in wanted})
    _put_consumed(conn, leased.name, [item for item in wanted if item not in known])


def forget(conn: Connection, leased: LeasedRow, epochs: Iterable[int]) -> None:
    """Deletes the consumed shares of these epochs' segments; the epochs stay closed."""
    for part in chunks(epochs):
        conn.execute(
            delete(CONSUMED).where(CONSUMED.c.pipeline == leased.name, CONSUMED.c.epoch.in_(part))
        )
        mine = (EPOCHS.c.pipeline == leased.name, EPOCHS.c.epoch.in_(part))
        conn.execute(update(EPOCHS).where(*mine).values(shares=None))


def _consume(conn: Connection, leased: LeasedRow, items: Sequence[ConsumedSlice]) -> None:
    """Inserts shares of segments as consumed. Raises ``StateError`` if one is already. Reads only
    the range of seq that ``items`` span: an epoch may have 100,000 consumed shares."""
    taken: set[ConsumedSlice] = set()
    for epoch in {item.segment.epoch for item in items}:
        numbers = [item.segment.seq for item in items if item.segment.epoch == epoch]
        rows = conn.execute(
            rows_of(CONSUMED, leased.name).where(
                CONSUMED.c.epoch == epoch, CONSUMED.c.seq.between(min(numbers), max(numbers))
            )
        )
        taken |= _as_consumed(leased.name, rows)
    for item in items:
        if item in taken:
            raise rules.consumed_twice(leased.name, item)
        taken.add(item)
    _put_consumed(conn, leased.name, items)


def _put_consumed(conn: Connection, pipeline: str, items: Iterable[ConsumedSlice]) -> None:
    insert_all(
        conn,
        CONSUMED,
        [
            {
                "pipeline": pipeline,
                "epoch": item.segment.epoch,
                "seq": item.segment.seq,
                "stream": checksums.sealed(
                    item.stream.key, _share_of(item.segment.epoch, item.segment.seq)
                ),
            }
            for item in items
        ],
    )


class SavedStates(msgspec.Struct):
    """Holds the stored states of a pipeline, in their order. A damaged state has an empty blob
    here. ``damaged``: scopes of these. ``bare``: scope keys of states without a checksum, which an
    earlier version of Penstock saved."""

    states: list[StoredState]
    damaged: list[StateScope]
    bare: set[str]

    def whole(self, pipeline: str) -> list[StoredState]:
        """Returns the states. Raises ``StateError`` (``state.damaged``) if one is damaged."""
        for scope in self.damaged:
            raise damage.state_damaged(pipeline, scope)
        return self.states

    def sound(self) -> list[StoredState]:
        """Returns the states that are not damaged."""
        return [state for state in self.states if state.scope not in self.damaged]


def saved_states(conn: Connection, pipeline: str) -> SavedStates:
    """Returns the saved states, in the order in which they were saved."""
    found = SavedStates([], [], set())
    for row in conn.execute(rows_of(STATES, pipeline).order_by(STATES.c.position)):
        scope, text = rules.scope_from_key(row.scope, row.type), ""
        try:
            text = checksums.opened(row.blob, _state_of(scope))
        except checksums.Mismatch:
            found.damaged.append(scope)
        if not checksums.is_sealed(row.blob):
            found.bare.add(row.scope)
        found.states.append(StoredState(scope, text))
    return found


def save_states(
    conn: Connection, leased: LeasedRow, saved: SavedStates, new: Sequence[StoredState]
) -> None:
    """Replaces the saved states by ``new``, and adds the changes to the history. Writes only the
    states that differ, and those that have no checksum yet. Raises ``StateError``
    (``state.duplicate``)."""
    changes = rules.state_changes(saved.states, new)
    written = changes.written + [
        (at, s) for at, s in enumerate(new) if s.scope.key in saved.bare and s in saved.states
    ]
    written = list({s.scope.key: (at, s) for at, s in written}.values())
    keys = [s.scope.key for _, s in written] + [scope.key for scope in changes.gone]
    for part in chunks(keys):
        conn.execute(
            delete(STATES).where(STATES.c.pipeline == leased.name, STATES.c.scope.in_(part))
        )
    insert_all(
        conn,
        STATES,
        [
            {
                "pipeline": leased.name,
                "scope": s.scope.key,
                "type": s.scope.type.value,
                "position": at,
                "blob": checksums.sealed(s.blob, _state_of(s.scope)),
            }
            for at, s in written
        ],
    )
    removed: list[tuple[StateScope, str | None]] = [(scope, None) for scope in changes.gone]
    _remember(conn, leased, removed + [(s.scope, s.blob) for s in changes.saved])


def _remember(
    conn: Connection, leased: LeasedRow, changes: Sequence[tuple[StateScope, str | None]]
) -> None:
    if not changes:
        return
    rows = [
        {
            "pipeline": leased.name,
            "id": number,
            "at": leased.now,
            "run": leased.holder.run,
            "scope": scope.key,
            "type": scope.type.value,
            "blob": None if blob is None else checksums.sealed(blob, history_of(scope.key)),
        }
        for number, (scope, blob) in enumerate(changes, leased.last_history + 1)
    ]
    insert_all(conn, HISTORY, rows[-rules.HISTORY_KEPT :])
    leased.last_history += len(rows)
    _set(conn, leased, last_history=leased.last_history)
    mine = HISTORY.c.pipeline == leased.name
    last = leased.last_history - rules.HISTORY_KEPT
    # while no state is larger than HISTORY_BYTES / HISTORY_KEPT, their number bounds their size
    if any(len(blob or "") > rules.HISTORY_BYTES // rules.HISTORY_KEPT for _, blob in changes):
        sizes = select(HISTORY.c.id, func.length(HISTORY.c.blob)).where(mine, HISTORY.c.id > last)
        found = conn.execute(sizes.order_by(HISTORY.c.id.desc())).all()
        kept = rules.history_kept(size or 0 for _, size in found)
        last = found[kept].id if kept < len(found) else last
    conn.execute(delete(HISTORY).where(mine, HISTORY.c.id <= last))


def history_of(scope: str) -> str:
    """Returns the identity with which an entry of the state history is sealed."""
    return f"the history of {scope}"


def _state_of(scope: StateScope) -> str:
    return f"the {scope.type.value} state {scope.key}"


def _group(pipeline: str, number: int, body: str) -> KeyedGroup:
    text = damage.open_value(pipeline, body, _group_of(number))
    return msgspec.json.decode(text, type=KeyedGroup)


def _group_text(group: KeyedGroup) -> str:
    return checksums.sealed(msgspec.json.encode(group).decode(), _group_of(group.id))


def _group_of(number: int) -> str:
    return f"group {number} of loads"


def _share_of(epoch: int, seq: int) -> str:
    return f"what was loaded of epoch {epoch}, segment {seq},"


def _set(conn: Connection, leased: LeasedRow, **values: int) -> None:
    conn.execute(update(PIPELINES).where(PIPELINES.c.name == leased.name).values(**values))
