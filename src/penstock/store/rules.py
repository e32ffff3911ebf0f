"""Decides, for every store alike, load numbers, states that may be saved, changes, and errors.

Pure functions over the vocabulary. Not here: storage (``memory``, ``sql``, ``ledger``), which call
them, so that the store in memory behaves as the one in a database.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec

from penstock.errors import LeaseLost, StateError
from penstock.model.catalog import StreamId
from penstock.model.segments import ConsumedSlice, Group, Load
from penstock.model.state import StateScope, StateType, StoredState
from penstock.model.types import RowSchema
from penstock.store.contract import (
    ExpectedLoad,
    GroupIntent,
    Holder,
    KeyedGroup,
    LoadIntent,
    PipelineLock,
    Reset,
)
from penstock.store.keys import SHARED
from penstock.store.pipeline_lock import described, unlock_command

HISTORY_KEPT = 1000  # saved states per pipeline, the newest
HISTORY_BYTES = 32 << 20  # of them together, in characters; the newest is kept whatever its size
# stands for every open group among the keys of :func:`settled`, for every stream in floors
ANYTHING = ""


class LoadNumbers(msgspec.Struct, frozen=True):
    """Holds the load numbers of one stream. ``last``: the last number given. ``table``: the number
    of its table after every load in the ledger is committed; None: any. ``adopts``: the table's
    number is accepted, whatever it is (``Store.adopt``). ``anew``: the next load of rows that were
    read since replaces the table's rows; an earlier version of Penstock stored it for
    ``--recreate`` (now: ``remembered.Refresh``)."""

    last: int = 0
    table: int | None = 0
    adopts: bool = False
    anew: bool = False


def number_groups(
    state_id: str,
    intents: Sequence[GroupIntent],
    last_group: int,
    numbers: dict[str, LoadNumbers],
    floors: Mapping[str, int],
    *,
    into_tables: bool,
) -> list[KeyedGroup]:
    """Makes groups from ``intents``, with ids after ``last_group`` and a number for each load.
    ``numbers``: by stream key; updated in place (L3: no number is given twice). ``floors``: by
    stream key, see :func:`floors_of`. ``into_tables`` False: a destination connector has the rows
    already, and the table's number is unknown from then on."""
    groups: list[KeyedGroup] = []
    for offset, intent in enumerate(intents, 1):
        loads: list[Load] = []
        for load in intent.loads:
            stream = load.stream.key
            was = numbers.get(stream, LoadNumbers())
            number, table = was.last + 1, was.table
            fields = _fields_of(load)
            anew = was.anew
            if anew and load.reaches_table and intent.epoch > floors.get(stream, 0):
                fields["replaces"], anew = True, False
            loads.append(
                Load(
                    key=f"{state_id}/{stream}",
                    number=number,
                    follows=table,
                    token=secrets.token_hex(8),
                    **fields,
                )
            )
            if not into_tables:
                table = None
            elif load.reaches_table:
                table = number
            numbers[stream] = LoadNumbers(number, table, was.adopts, anew)
        groups.append(
            KeyedGroup(
                id=last_group + offset,
                loads=tuple(loads),
                states=intent.states,
                epoch=intent.epoch,
                consumes=intent.consumes,
                keys=intent.keys,
            )
        )
    return groups


def expected_loads(
    state_id: str, numbers: Mapping[str, LoadNumbers], open_groups: Iterable[Group]
) -> dict[StreamId, ExpectedLoad]:
    """Implements ``Store.expected_loads``. ``numbers``: by stream key. A load of ``open_groups``
    may or may not be in its table; the one before it is."""
    before: dict[str, int | None] = {}
    for group in open_groups:
        for load in group.loads:
            before.setdefault(load.stream.key, load.follows)
    return {
        stream_from_key(stream): ExpectedLoad(f"{state_id}/{stream}", number)
        for stream, n in numbers.items()
        if not n.adopts and (number := before.get(stream, n.table))
    }


def adopted(was: LoadNumbers) -> LoadNumbers:
    """Returns a stream's numbers after ``Store.adopt``."""
    return LoadNumbers(was.last, None, adopts=True, anew=was.anew)


def refreshed(groups: Iterable[Group]) -> dict[StreamId, int]:
    """Returns the streams whose refresh these groups publish, each with the newest epoch of its
    generation."""
    return {
        load.stream: load.segments[-1].epoch
        for group in groups
        for load in group.loads
        if load.replaces and load.disposition.refreshes
    }


def renumbered(
    group: KeyedGroup,
    committed: AbstractSet[tuple[str, int]],
    numbers: dict[str, LoadNumbers],
) -> KeyedGroup:
    """Gives new numbers and tokens to a group's uncommitted loads of the streams in ``numbers``.
    ``committed``: (key, number) of committed loads. ``numbers``: by stream key, of
    :func:`renumbering`; updated in place, so groups must be given oldest first."""
    loads: list[Load] = []
    for load in group.loads:
        was = numbers.get(load.stream.key)
        if was is None or (load.key, load.number) in committed:
            loads.append(load)
            continue
        number = was.last + 1
        token = secrets.token_hex(8)
        loads.append(msgspec.structs.replace(load, number=number, follows=was.table, token=token))
        table = number if load.reaches_table else was.table
        numbers[load.stream.key] = LoadNumbers(number, table, was.adopts, was.anew)
    return msgspec.structs.replace(group, loads=tuple(loads))


def renumbering(was: LoadNumbers, above: int) -> LoadNumbers:
    """Returns the numbers after which :func:`renumbered` continues. ``above``: the number that the
    stream's table has."""
    return LoadNumbers(max(was.last, above), None, was.adopts, was.anew)


def _fields_of(load: LoadIntent) -> dict[str, Any]:
    return {name: getattr(load, name) for name in LoadIntent.__struct_fields__}


def speaks_for(group: KeyedGroup) -> set[str]:
    """Returns the keys of the scopes of a group's states and of its checkpoints of connector
    keys."""
    return {s.scope.key for s in group.states} | {covered.scope for covered in group.keys}


def touches(group: KeyedGroup) -> set[str]:
    """Returns the scope keys by which a group can defer the states of younger groups: those of
    :func:`speaks_for` and of the streams that it loads."""
    return speaks_for(group) | {load.stream.key for load in group.loads}


def settled(done: Iterable[KeyedGroup], first: dict[str, int]) -> list[KeyedGroup]:
    """Selects, of the groups whose loads are all committed, those whose states may be saved.

    A group with states is deferred while an older group is not settled that touches one of its
    scopes, or any older group where one of the two has a shared state (L1: everything before a
    state is committed first; docs/guarantees.md: a table that fails holds the shared state back).
    ``done``: oldest first. ``first``: per key of :func:`touches`, and for ANYTHING, the smallest id
    of a group with an uncommitted load; deferred groups are added in place.
    """
    free: list[KeyedGroup] = []
    for group in done:
        keys = speaks_for(group)
        watched = keys | {SHARED} | ({ANYTHING} if SHARED in keys else set())
        if not keys or all(first.get(k, group.id) >= group.id for k in watched):
            free.append(group)
            continue
        for key in touches(group) | {ANYTHING}:
            first[key] = min(first.get(key, group.id), group.id)
    return free


def states_of(groups: Iterable[Group], floors: Mapping[str, int]) -> list[StoredState]:
    """Returns the states of these groups that are to be saved, oldest first: those whose group's
    epoch is above the floor of every stream and the floor of the state's own scope."""
    everything = floors.get(ANYTHING, 0)
    return [
        state
        for g in groups
        for state in g.states
        if g.epoch > max(everything, floors.get(state.scope.key, 0))
    ]


def floors_of(floors: Mapping[str, int]) -> dict[StreamId | None, int]:
    """Converts stored floors to floors by stream; None: the floor of every stream."""
    return {
        None if key == ANYTHING else stream_from_key(key): epoch for key, epoch in floors.items()
    }


def restated(
    states: Sequence[StoredState], change: Callable[[Sequence[StoredState]], list[StoredState]]
) -> tuple[StoredState, ...]:
    """Applies a change to the whole states among ``states``. Partial states stay, and so do parts
    of a whole state that do not count (``StoredState.without``)."""
    left_out = {s.scope: s.without for s in states if s.part is None}
    whole = change([s for s in states if s.part is None])
    marked = (msgspec.structs.replace(s, without=left_out.get(s.scope, ())) for s in whole)
    return (*marked, *(s for s in states if s.part is not None))


def stripped(group: KeyedGroup, reset: Reset) -> KeyedGroup:
    """Returns a stored group without the states and connector keys of the reset streams."""
    gone = {stream.key for stream in reset.streams}
    return msgspec.structs.replace(
        group,
        states=tuple(
            s
            for s in restated(group.states, reset.strip)
            if s.part is None or s.scope.key not in gone
        ),
        keys=tuple(covered for covered in group.keys if covered.scope not in gone),
    )


class StateChanges(msgspec.Struct, frozen=True):
    """Holds the difference between two lists of saved states. ``written``: (position, state) whose
    content or position differs from the stored one; ``saved``: the states whose content differs;
    ``gone``: scopes that have no state any more."""

    written: list[tuple[int, StoredState]]
    saved: list[StoredState]
    gone: list[StateScope]


def state_changes(old: Sequence[StoredState], new: Sequence[StoredState]) -> StateChanges:
    """Compares two lists of saved states. Raises ``StateError`` (``state.duplicate``) if ``new``
    has two states for one scope."""
    before = {s.scope.key: (at, s) for at, s in enumerate(old)}
    after = {s.scope.key: (at, s) for at, s in enumerate(new)}
    if len(after) != len(new):
        raise StateError(
            "there are two states for the same stream",
            code="state.duplicate",
            hint="give each stream one state",
        )
    return StateChanges(
        written=[placed for key, placed in after.items() if before.get(key) != placed],
        saved=[s for key, (_, s) in after.items() if key not in before or before[key][1] != s],
        gone=[s.scope for key, (_, s) in before.items() if key not in after],
    )


def scope_from_key(key: str, kind: str) -> StateScope:
    """Converts a stored ``StateScope.key`` and a ``StateType`` value to the scope."""
    return StateScope(StateType(kind), None if key == SHARED else stream_from_key(key))


def stream_from_key(key: str) -> StreamId:
    """Converts a stored ``StreamId.key`` to the stream."""
    return StreamId(*msgspec.json.decode(key, type=tuple[str | None, str]))


def check_marked(
    pipeline: str, done: Sequence[tuple[int, Load]], open_loads: Mapping[int, Any], last_group: int
) -> None:
    """Raises ``StateError`` (``state.unknown_load``) for a load that the ledger never had.
    ``done``: (group id, load) to mark as committed. ``open_loads``: per stored group the (key,
    number) of its loads; a load of a settled group, which is deleted, may be marked again."""
    for group, load in done:
        known = open_loads.get(group)
        if (known is None and not 0 < group <= last_group) or (
            known is not None and (load.key, load.number) not in known
        ):
            raise StateError(
                f"load {load.number} of stream {load.stream} was never recorded in group {group} "
                f"of pipeline {pipeline!r}",
                code="state.unknown_load",
                stream=str(load.stream),
                hint="this is a fault in Penstock, nothing was changed: please report it",
            )


def new_names(
    pipeline: str, known: Mapping[str, dict[str, str]], wanted: Mapping[str, dict[str, str]]
) -> dict[str, dict[str, str]]:
    """Returns the part of ``wanted`` that is not stored yet: kind -> {original: name}. ``known``:
    the stored rows. Raises ``StateError`` (``state.name_changed``) if a stored name would change:
    names only grow."""
    fresh: dict[str, dict[str, str]] = {}
    for kind, names in wanted.items():
        stored = known.get(kind, {})
        for original, cleaned in names.items():
            if original not in stored:
                fresh.setdefault(kind, {})[original] = cleaned
            elif stored[original] != cleaned:
                raise StateError(
                    f"{original!r} is stored as {stored[original]!r} and cannot become "
                    f"{cleaned!r} (pipeline {pipeline!r}, map {kind})",
                    code="state.name_changed",
                    hint="a stored name never changes: keep it",
                )
    return fresh


def next_schema(newest: RowSchema | None, schema: RowSchema) -> RowSchema:
    """Returns ``newest`` itself where its fields equal those of ``schema``, else ``schema`` under
    the next version (the first is 1)."""
    if newest is not None and newest.fields == schema.fields:
        return newest
    return RowSchema(schema.fields, (newest.version if newest else 0) + 1)


def consumed_twice(pipeline: str, item: ConsumedSlice) -> StateError:
    """Makes the error for a share of a segment that was consumed or abandoned before."""
    segment = f"segment {item.segment.seq} of epoch {item.segment.epoch}"
    return StateError(
        f"{segment} was already taken or discarded for stream {item.stream} of pipeline "
        f"{pipeline!r}: loading it again would double its rows",
        code="state.consumed_twice",
        stream=str(item.stream),
        hint="this is a fault in Penstock, nothing was changed: please report it",
    )


def lease_lost(pipeline: str, holder: Holder | None) -> LeaseLost:
    """Makes the error for a write under a lease that the pipeline no longer has (L12). ``holder``:
    that of the current lease; None: there is none."""
    now = f"; {holder.name} (run {holder.run}) has it since {holder.started_at}" if holder else ""
    return LeaseLost(
        f"this run no longer holds pipeline {pipeline!r}{now}: nothing more of it is committed",
        hint=f"see `penstock runs {pipeline}`; run it again when no other run is under way",
    )


def history_kept(sizes: Iterable[int]) -> int:
    """Returns how many entries of the state history are kept. ``sizes``: of their states, in
    characters, newest first."""
    total = kept = 0
    for size in sizes:
        total += size
        if kept == HISTORY_KEPT or (kept and total > HISTORY_BYTES):
            break
        kept += 1
    return kept


def history_entry(at: str, run: str, scope: str, kind: str, blob: str | None) -> dict[str, Any]:
    """Makes an entry of ``Store.state_history``. ``at``: ISO 8601, UTC. ``scope``:
    ``StateScope.key``. ``kind``: a ``StateType`` value. ``blob`` None: the state was removed."""
    return {"at": at, "run": run, "scope": scope, "type": kind, "blob": blob}


def unfinished_report(
    pipeline: str, run: str, started_at: str, lock: PipelineLock | None
) -> dict[str, Any]:
    """Makes the report that ``Store.runs`` returns for a run without one: a report's keys, with
    None for unknown values. ``lock``: the lease that the run still has; None: it has none."""
    alive = False if lock is None else lock.alive
    notes: list[str] = []
    if lock is not None and alive is None:
        notes = [
            f"this run may be running, or dead: the pipeline's lock has {described(lock.holder)}, "
            "whose process cannot be checked from here (another machine or container, or an "
            f"earlier start of this one); `{unlock_command(pipeline)}` breaks the lock"
        ]
    elif alive is False:
        notes = ["the run ended without a report"]
    error = {
        "code": "run.died",
        "message": "the run ended without a report: its process was killed or its machine failed",
        "hint": "run the pipeline again: what it had sealed is loaded first, nothing is lost",
        "where": None,
        "stream": None,
        "connector": None,
        "exit_code": None,
    }
    return {
        "run": run,
        "pipeline": pipeline,
        "status": "failed" if alive is False else "running",
        "exit_code": None,
        "started_at": started_at,
        "seconds": None,
        "guarantee": None,
        "streams": [],
        "time": None,
        "memory": None,
        "notes": notes,
        "error": error if alive is False else None,
        "log": None,
    }
