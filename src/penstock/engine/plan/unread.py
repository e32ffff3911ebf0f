"""Decides for which streams the saved state holds a share that is not theirs, since earlier runs
did not read them.

A source may write the positions of unselected streams into one state. Such a state is saved
unchanged (L1). The store keeps the share that a stream's own last run left (``store.remembered``).
When the stream is read again it continues from that share, or begins at its start. A share that
cannot be separated from the others is kept as a digest of the saved states: they are the stream's
own as long as they are unchanged. Pure. Not here: how states are split
(``protocols.contract.SharedStates``), when shares are kept and given back (``engine.sync.unread``).
Neighbour: ``engine.plan.streams`` plans a run.
"""

import hashlib
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence, Set

import msgspec

from penstock.config.pipeline import Pipeline
from penstock.engine.plan.earlier_modes import overwritten
from penstock.engine.plan.state_names import begins_anew, meant_by
from penstock.engine.specs.plan import PlannedStream, UnreadStreams
from penstock.model.catalog import Catalog, StreamId, SyncMode
from penstock.model.state import StoredState
from penstock.protocols.contract import SharedStates, StateRole
from penstock.store.remembered import Remembered

_DIGEST = "="
"""The prefix of a share that is a digest; no JSON text begins with it."""

_BROUGHT = frozenset({"state import", "state set", "state rewind"})


def unread_streams(
    pipeline: Pipeline,
    catalog: Catalog,
    streams: Sequence[PlannedStream],
    role: StateRole,
    states: Sequence[StoredState],
    earlier: Remembered,
    known: Set[StreamId],
    *,
    brought: Callable[[], bool],
    stateless: bool,
) -> UnreadStreams:
    """Returns the streams that earlier runs did not read, or that this run will not read.
    ``known``: streams synced before. ``brought``: whether a user may have set or imported the saved
    state. ``stateless``: the states of this run's streams are deleted before it begins."""
    if not isinstance(role, SharedStates):
        return UnreadStreams()
    unread, wanted = earlier.unread, {s.id for s in streams}
    if catalog.open:
        found = {s: (s,) for s in unread if pipeline.stream_settings(s) is not None}
    else:
        found = meant_by(unread, [s.configured.stream for s in streams], role)
    again = {s: _first(unread[name] for name in names) for s, names in found.items()}
    if catalog.open:  # a table that is replaced would be left with the increment alone
        of = pipeline.stream_settings
        again = {s: None if overwritten(of(s), s, earlier) else own for s, own in again.items()}
    else:
        again |= _never_read(streams, role, states, earlier, known, brought)
    every = {s.id for s in catalog.streams} | known | unread.keys()
    left = every - wanted - again.keys() - {name for names in found.values() for name in names}
    if catalog.open:
        left = {s for s in left if pipeline.stream_settings(s) is None}
    log_based = {s for s, modes in earlier.modes.items() if modes.sync_mode is SyncMode.cdc}
    return UnreadStreams(
        again=dict.fromkeys(again) if stateless else again,
        names=frozenset({*again, *(name for names in found.values() for name in names)}),
        passed=frozenset(s for s, names in found.items() if earlier.passed_over & {*names}),
        left=tuple(sorted(left)),
        placeless=frozenset((left - known - earlier.modes.keys()) | (left & log_based)),
    )


def _never_read(
    streams: Sequence[PlannedStream],
    role: StateRole,
    states: Sequence[StoredState],
    earlier: Remembered,
    known: Set[StreamId],
    brought: Callable[[], bool],
) -> dict[StreamId, None]:
    """Returns the streams that the state covers though no run has read them: in a home of the
    version before, and where a source is ahead of its catalog."""
    had = known | earlier.modes.keys() | earlier.unread.keys() | earlier.owned
    found = [
        s.id
        for s in streams
        if s.id not in had
        and role.splits(states, (s.id,))
        and role.without(states, (s.id,)) != states
    ]
    return {} if not found or brought() else dict.fromkeys(found)


def brought_by_user(history: Iterable[Mapping[str, object]]) -> bool:
    """Whether a user set or imported a state, by the states' history."""
    return any(entry["run"] in _BROUGHT for entry in history)


def undivided(states: Sequence[StoredState]) -> str | None:
    """Returns the share of a stream that the states do not hold separately: a digest of all of
    them. None: there are no states."""
    if not states:
        return None
    found = sorted((s.scope.type.value, str(s.scope.stream), s.blob) for s in states)
    return _DIGEST + hashlib.sha256(msgspec.json.encode(found)).hexdigest()


def moved_on(
    states: Sequence[StoredState], shares: Mapping[StreamId, str | None]
) -> dict[StreamId, str | None]:
    """Returns the shares of streams that do not own the states. Shares that are digests of other
    states become unknown (None)."""
    digests = any(own is not None and own.startswith(_DIGEST) for own in shares.values())
    now = undivided(states) if digests else None
    return {
        s: None if own is not None and own.startswith(_DIGEST) else own
        for s, own in shares.items()
        if own is None or own != now
    }


def _first(shares: Iterable[str | None]) -> str | None:
    return next((share for share in shares if share is not None), None)


def with_own(
    role: StateRole, states: Sequence[StoredState], again: Mapping[StreamId, str | None]
) -> list[StoredState]:
    """Returns the states in which each of these streams has its own share; of states that cannot be
    split, only the rest without those streams (:func:`inseparable`)."""
    left, again = list(states), moved_on(states, again)
    if not isinstance(role, SharedStates):
        return left
    without = [s for s, own in again.items() if own is None]
    if role.splits(left, without):  # many at once: a state may be large
        left, again = role.without(left, without), {s: own for s, own in again.items() if own}
    for stream, own in again.items():
        left = role.with_own(left, stream, own)
    return left


def separable(
    role: StateRole, states: Sequence[StoredState], unread: Mapping[StreamId, str | None]
) -> dict[StreamId, str | None]:
    """Returns the streams whose share of the states can be separated."""
    unread = moved_on(states, unread)
    without = [s for s, own in unread.items() if own is None]
    all_of_them = role.splits(states, without)
    return {
        s: own
        for s, own in unread.items()
        if (own is None and all_of_them) or role.splits(states, (s,))
    }


def inseparable(
    role: StateRole,
    states: Sequence[StoredState],
    unread: UnreadStreams,
    streams: Sequence[PlannedStream],
    pipeline: str,
) -> str | None:
    """Returns why these streams cannot be read, with the user's options: the saved state may have
    skipped rows of streams that the last run did not read; None: they can. Where it certainly has,
    they begin at their start, and so do all others."""
    going_on = {s.id for s in streams if not begins_anew(s.configured)}
    asked = (going_on & moved_on(states, unread.again).keys()) - unread.passed
    lost = sorted(s for s in asked if not role.splits(states, (s,)))
    if not lost:
        return None
    names, name = ", ".join(map(str, lost)), shlex.quote(pipeline)
    return (
        f"stream {names}: the last run did not read it, and only the source can split its one "
        "saved state by stream: rows may have been skipped. Read all streams from the"
        f" start (`--full-refresh`, or first `penstock state reset {name}`), or run {names} in a"
        f" pipeline of its own; if you know that the state is right for {names} too, save it as"
        f" such: `penstock state export {name} > state.json`, then `penstock state import {name}"
        " state.json`"
    )


def unread_notes(
    role: StateRole, states: Sequence[StoredState], unread: UnreadStreams
) -> list[str]:
    """Returns a note for each stream that continues from another position than that in the saved
    state."""
    notes: list[str] = []
    for stream, own in separable(role, states, unread.again).items():
        if stream in unread.passed:
            since = "" if own is None else " of what came after its own last run"
            notes.append(
                f"{stream}: read from the start{since}, since the source sent its rows in earlier "
                "runs, which did not select it"
            )
        elif with_own(role, states, {stream: own}) != list(states):
            then = "its start" if own is None else "the state of its own last run"
            notes.append(
                f"stream {stream}: its part of the saved state was written in runs that did not"
                f" read it; it goes on from {then}"
            )
    return notes
