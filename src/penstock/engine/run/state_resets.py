"""Deletes saved states before a run reads: for ``--full-refresh``, and of streams whose rows
replace a table. Deleted states are read from the start (L6). Requests refreshes (``--recreate``),
which delete no state before they are complete.

Each function changes the given store, which is in memory for a dry run, and adds a note about what
a user would not expect. Not here: ``penstock state reset`` (``engine.inspect``). Neighbour:
``engine.run`` decides when.
"""

from collections.abc import Callable, Sequence

from penstock.engine.plan.earlier_modes import overwritten
from penstock.engine.plan.prepare import Prepared
from penstock.model.catalog import StreamId
from penstock.store.contract import Lease, Reset, Store
from penstock.store.remembered import Remembered, asked

Note = Callable[[str], None]


def reset_states(store: Store, lease: Lease, prepared: Prepared, note: Note) -> None:
    """Deletes the states for ``--full-refresh``: of the run's streams, of streams that its source
    may send while it is read, and of streams that the source no longer has."""
    wanted = _of_run(store, lease, prepared) | set(prepared.plan.gone)
    _reset(store, lease, prepared, sorted(wanted), note)


def ask_for_refresh(store: Store, lease: Lease, prepared: Prepared, run: str, at: str) -> None:
    """Stores that this run's streams are to be refreshed (``--recreate``), and accepts their tables
    as they are, since the refresh replaces their rows."""
    streams = sorted(_of_run(store, lease, prepared))
    store.adopt(lease, streams)
    if prepared.keys is not None:  # a connector would continue from them
        store.reset_keys(lease, streams)
    before = store.remembered(lease.pipeline, streams).refresh
    last = store.last_epoch(lease.pipeline)
    wanted = {s: asked(run, at, last, before.get(s)) for s in streams}
    store.remember(lease, Remembered(refresh=wanted))


def _of_run(store: Store, lease: Lease, prepared: Prepared) -> set[StreamId]:
    """Returns the streams of the run, and those that its source may send while it is read."""
    wanted = {s.id for s in prepared.plan.streams}
    if prepared.plan.open:
        before = store.known_streams(lease.pipeline)
        wanted |= {s for s in before if prepared.pipeline.stream_settings(s) is not None}
    return wanted


def reset_overwritten(store: Store, lease: Lease, prepared: Prepared, note: Note) -> None:
    """Deletes the states of streams that the source reveals only while it is read and whose rows
    replace a table: reading from a state would leave only the increment (L6)."""
    known, earlier = sorted(store.known_streams(lease.pipeline)), prepared.rules.earlier
    settings = prepared.pipeline.stream_settings
    streams = [s for s in known if overwritten(settings(s), s, earlier)]
    if streams:  # even if no state is saved: a sealed state may cover them
        _reset(store, lease, prepared, streams, note)


def _reset(
    store: Store, lease: Lease, prepared: Prepared, streams: Sequence[StreamId], note: Note
) -> None:
    role = prepared.states
    states = store.states(lease.pipeline)
    if streams and not role.splits(states, streams):
        note(
            "only the source can split the saved state by stream: all of it was forgotten, and "
            "streams that are not in this run are read from the start as well when they run next"
        )
    reset = Reset(tuple(streams), lambda given: role.without(given, streams))
    store.replace_states(lease, reset.strip(states), reset)
