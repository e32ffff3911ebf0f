"""Maps the stream names in saved states, and decides which streams may be read together.

Pure functions over the catalog and the store's names. Where a protocol's states name streams
differently from its catalog (``StateRole.names_of``), the store keeps the names of synced streams,
so that a reset finds them without the source. Neighbours: ``engine.plan.streams`` and
``engine.sync.epochs`` refuse a mix, ``engine.inspect.states`` resets one stream.
"""

from collections.abc import Collection, Iterable, Sequence

from penstock.model.catalog import ConfiguredStream, Stream, StreamId
from penstock.model.state import StoredState
from penstock.protocols.contract import ProtocolPackage, StateRole
from penstock.store.remembered import Remembered

_SHOWN = 5


def state_role(
    package: ProtocolPackage,
    earlier: Remembered,
    synced: Iterable[StreamId],
    streams: Iterable[Stream] = (),
) -> StateRole:
    """Returns the protocol's rules for the states of this pipeline. ``earlier``, ``synced``: what
    the store remembers, and the streams that it has; ``streams``: the source's catalog."""
    unread = earlier.unread.keys() - earlier.passed_over  # those may be names of records
    known: dict[StreamId, Collection[str]] = dict.fromkeys((*synced, *unread), ())
    known.update(earlier.state_names)
    for stream in streams:
        known[stream.id] = {*known.get(stream.id, ()), *package.state.names_of(stream)}
    return package.state.called(known)


def names_in_states(
    package: ProtocolPackage, streams: Iterable[Stream]
) -> dict[StreamId, frozenset[str]]:
    """Returns the names that states use for these streams, for the store."""
    found = {s.id: frozenset(package.state.names_of(s)) for s in streams}
    return {stream: names for stream, names in found.items() if names}


def meant(earlier: Remembered, stream: StreamId) -> StreamId:
    """Returns the stream whose state has this name, if exactly one has; else ``stream``."""
    known = earlier.state_names
    found = [s for s, others in known.items() if stream.name in others]
    return found[0] if stream not in known and len(found) == 1 else stream


def meant_by(
    unread: Collection[StreamId], streams: Iterable[Stream], role: StateRole
) -> dict[StreamId, tuple[StreamId, ...]]:
    """Returns those of ``streams`` that are in ``unread``, under their id or a name that states use
    for them, each with its ids there."""
    found: dict[StreamId, tuple[StreamId, ...]] = {}
    for stream in streams:
        called = {stream.id, *(StreamId(None, name) for name in role.names_of(stream))}
        names = tuple(s for s in unread if s in called)
        if names:
            found[stream.id] = names
    return found


def begins_anew(configured: ConfiguredStream) -> bool:
    """Whether every sync reads the stream from the start, and must give it no state (L6)."""
    return configured.fills_generation


def mixed(
    role: StateRole,
    states: Sequence[StoredState],
    anew: Sequence[StreamId],
    others: Sequence[StreamId],
    pipeline: str,
) -> str | None:
    """Returns why these streams cannot be read together, with the user's options; None: they can.
    ``anew`` must be given no state, ``others`` continue from theirs, and the states cannot be
    split."""
    if not anew or not others or role.splits(states, anew):
        return None
    return (
        f"{_listed(anew)} would start from the beginning while {_listed(others)} would go on from "
        "the saved"
        " state, and only the source knows which part of that state is whose: run"
        f" {_listed(anew)} in a pipeline of their own, give all of them one sync mode, or start "
        f"all of them from the beginning (`--full-refresh`, or first `penstock state reset "
        f"{pipeline}`)"
    )


def _listed(streams: Sequence[StreamId]) -> str:
    more = f" and {len(streams) - _SHOWN} more" if len(streams) > _SHOWN else ""
    return ", ".join(str(s) for s in sorted(streams)[:_SHOWN]) + more
