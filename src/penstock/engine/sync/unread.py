"""Gives streams their own share of the saved state when they are read again, and keeps the share of
streams that this run does not read (L1, L6).

Runs once in a sync, when what earlier runs sealed is loaded and saved, and before a source gets a
state. Not here: which streams these are (``engine.plan.unread``). Neighbour: ``engine.sync.sync``
calls it.
"""

from collections.abc import Collection

from penstock.engine.plan.unread import moved_on, undivided, with_own
from penstock.engine.specs.plan import PlannedStream, UnreadStreams
from penstock.engine.sync.progress import SyncProgress
from penstock.errors import StateError
from penstock.model.catalog import StreamId
from penstock.protocols.contract import SharedStates
from penstock.store.contract import Reset
from penstock.store.remembered import Refresh, Remembered


def settle_unread(
    progress: SyncProgress, unread: UnreadStreams, wanted: Collection[PlannedStream]
) -> None:
    """Settles the states of streams that were not read (``unread.again``) and of those that will
    not be. ``wanted``: the planned streams that are read now. Each step may be repeated after a
    crash: shares are given back before they are forgotten, and kept before a source can overwrite
    them. Raises ``StateError`` where an earlier run sealed a state that cannot be split."""
    session = progress.session
    known = session.store.remembered(session.pipeline)
    _give_back(progress, unread)
    # A later run saves the state of undelivered rows together with them.
    pending = {*session.failures.blocked, *session.failures.halted}
    left = {*unread.left} - known.unread.keys() - pending
    refreshes = _read_now(progress, known, wanted)
    cursors = {
        s.id: s.configured.cursor_field
        for s in wanted
        if s.configured.cursor_field
        and not (s.configured.stream.source_defined_cursor or s.configured.refreshes)
    }
    role = progress.state_role()
    shares: dict[StreamId, str | None] = {}
    if isinstance(role, SharedStates):
        states = progress.states()
        whole = undivided(states)
        shares = {s: None if s in unread.placeless else role.own(states, s) or whole for s in left}
    more = Remembered(unread=shares, cursors=cursors, refresh=refreshes)
    if shares or cursors or refreshes or unread.names:
        session.store.remember(session.lease, more, taken_up=unread.names)


def _read_now(
    progress: SyncProgress, known: Remembered, wanted: Collection[PlannedStream]
) -> dict[StreamId, Refresh]:
    """Returns the pending refreshes of those streams that are now read by another cursor, or for
    the first time: their cursor is recorded when the refresh ends."""
    session = progress.session
    last = session.store.last_epoch(session.pipeline)
    found: dict[StreamId, Refresh] = {}
    for stream in wanted:
        before = known.pending_refreshes.get(stream.id)
        if before is not None and stream.configured.refreshes:
            now = before.read_by(stream.configured.cursor_field, last)
            if now != before:
                found[stream.id] = now
    return found


def _give_back(progress: SyncProgress, unread: UnreadStreams) -> None:
    """Saves the states in which the streams have their own share. Deletes all states where they
    cannot be split and have skipped rows of a stream."""
    session, role, states = progress.session, progress.state_role(), progress.states()
    again = moved_on(states, unread.again)
    inseparable = [s for s in sorted(again) if not role.splits(states, (s,))]
    anew = [s for s in inseparable if s in unread.passed or not progress.go_on([s])]
    refused = [s for s in inseparable if s not in anew]
    if refused:
        raise StateError(
            f"{', '.join(map(str, refused))}: no earlier run read it, and only the source can "
            "split its saved state by stream",
            code="state.unread",
            hint="see `penstock plan` for what can be done; what is sealed is kept",
        )
    if anew:
        session.observer.note(
            f"{', '.join(map(str, anew))}: read from the start, because the source sent its rows "
            "in earlier runs that did not select it; only the source can split its saved state by "
            "stream, so all of it was forgotten, and streams that are not in this run are read "
            "from the start when they run next"
        )
    given = with_own(role, states, again)
    if given != states:
        strip = Reset((), lambda states: with_own(role, states, again))
        session.store.replace_states(session.lease, given, strip)
