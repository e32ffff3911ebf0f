"""What saved states call the streams of a source, and which streams may be read beside each other.

Pure functions over the catalog and the names that the store has. A protocol whose states name
streams otherwise than we do (``StateRole.names_of``) is told their names; those of synced streams
are kept in the store, so that a reset finds them without the source. Neighbours:
``engine.plan.streams`` and ``engine.sync.epochs`` refuse a mix, ``engine.inspect.states`` resets
one stream.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from penstock.model.catalog import ConfiguredStream, Stream, StreamId
from penstock.model.state import SavedState
from penstock.protocols.contract import ProtocolPackage, StateRole

_KIND = "called:"
_PASSED = "passed:"
_SHOWN = 5

Names = Mapping[str, Mapping[str, str]]


def state_role(
    package: ProtocolPackage,
    names: Names,
    synced: Iterable[StreamId],
    streams: Iterable[Stream] = (),
) -> StateRole:
    """The protocol's rules for the states of this pipeline. ``names``, ``synced``: the store's
    names and the streams that it knows; ``streams``: all that the source has now."""
    known = {**{s: set[str]() for s in synced}, **_kept(names)}
    for stream in streams:
        known[stream.id] = {*known.get(stream.id, ()), *package.state.names_of(stream)}
    return package.state.called(known)


def to_keep(package: ProtocolPackage, streams: Iterable[Stream]) -> dict[str, dict[str, str]]:
    """What the store is to remember of these streams."""
    found = {f"{_KIND}{s.id.key}": package.state.names_of(s) for s in streams}
    return {kind: {name: name for name in others} for kind, others in found.items() if others}


def meant(names: Names, stream: StreamId) -> StreamId:
    """The one stream whose state goes by this name."""
    known = _kept(names)
    found = [s for s, others in known.items() if stream.name in others]
    return found[0] if stream not in known and len(found) == 1 else stream


def passed_over(names: Names) -> list[StreamId]:
    """Streams that their source sent though the pipeline did not want them: its state went on
    without their rows, and must not speak for them when they are wanted."""
    return sorted(
        _stream(kind, _PASSED)
        for kind, told in names.items()
        if kind.startswith(_PASSED) and _newest(told) == "over"
    )


def meant_by(
    passed: Sequence[StreamId], streams: Iterable[Stream], role: StateRole
) -> dict[StreamId, tuple[StreamId, ...]]:
    """Those of ``streams`` that were ``passed`` over, also under another of their names, with the
    names that they were passed over by."""
    found: dict[StreamId, tuple[StreamId, ...]] = {}
    for stream in streams:
        called = {stream.id, *(StreamId(None, name) for name in role.names_of(stream))}
        marks = tuple(s for s in passed if s in called)
        if marks:
            found[stream.id] = marks
    return found


def passing(names: Names, stream: StreamId, *, over: bool) -> dict[str, dict[str, str]]:
    """What is to be added to ``names``: the stream is passed over from now on, or (``over`` false)
    is read from the start; nothing where they say it already."""
    kind, word = f"{_PASSED}{stream.key}", "over" if over else "read"
    told = names.get(kind, {})
    if _newest(told) == word or not (told or over):
        return {}
    return {kind: {str(1 + max(map(int, told), default=0)): word}}


def _newest(told: Mapping[str, str]) -> str | None:
    return told[str(max(map(int, told)))] if told else None


def begins_anew(configured: ConfiguredStream) -> bool:
    """It is read from the start in every sync, and must not be given a state (L6)."""
    return configured.fills_generation


def mixed(
    role: StateRole,
    states: Sequence[SavedState],
    anew: Sequence[StreamId],
    others: Sequence[StreamId],
    pipeline: str,
) -> str | None:
    """Why these streams cannot be read together, with the ways out: ``anew`` must be given no
    state, ``others`` go on from theirs, and the states do not split. None: they can."""
    if not anew or not others or role.splits(states, anew):
        return None
    return (
        f"{_listed(anew)} would begin anew while {_listed(others)} would go on from the saved"
        " state, and only the source knows which part of that state is whose: run"
        f" {_listed(anew)} in a pipeline of their own, give all of them one sync mode, or begin"
        f" all of them anew (`--full-refresh`, or first `penstock state reset {pipeline}`)"
    )


def _listed(streams: Sequence[StreamId]) -> str:
    more = f" and {len(streams) - _SHOWN} more" if len(streams) > _SHOWN else ""
    return ", ".join(str(s) for s in sorted(streams)[:_SHOWN]) + more


def _kept(names: Names) -> dict[StreamId, set[str]]:
    return {
        _stream(kind, _KIND): {*others} for kind, others in names.items() if kind.startswith(_KIND)
    }


def _stream(kind: str, prefix: str) -> StreamId:
    return StreamId(*msgspec.json.decode(kind.removeprefix(prefix), type=tuple[str | None, str]))
