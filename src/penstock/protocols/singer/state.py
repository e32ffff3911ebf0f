"""Parses, merges, resets and describes Singer's state: one opaque blob, of which only ``bookmarks``
has a known form.

Pure functions over saved states. A saved blob is the value of the tap's own STATE message, byte for
byte (L1); it is rewritten only to remove a stream's bookmark (reset, full refresh), to keep the
bookmarks of streams that a run did not read, and to restore the bookmark of such a stream. Numbers
keep all their digits. A state is split by bookmarks whose stream is known, never by guessing. Not
here: when a state may be saved (``engine``), where (``state``). Sources: specification, State and
STATE Message; the conventions of singer-python's bookmarks (``bookmarks`` by tap_stream_id,
``currently_syncing``, ``activate_versions``), and taps that use other names for their streams.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, cast

from penstock.codec.exact_json import exact, exact_text
from penstock.errors import StateError
from penstock.model.catalog import Stream, StreamId
from penstock.model.state import StateScope, StateType, StoredState
from penstock.protocols.singer.stream_names import names_in_states

SCOPE = StateScope(StateType.legacy)

_BY_STREAM = ("bookmarks", "activate_versions")
_CURRENT = "currently_syncing"
_POINTER = "currently_"
"""The prefix of keys that only name the stream that the tap is reading."""


def state_file(states: Sequence[StoredState]) -> bytes | None:
    """Returns the content of ``--state``; None: there is no state."""
    blob = states[-1].blob if states else "null"
    return None if blob == "null" else blob.encode()


class SingerState:
    """Handles saved states (``StateRole`` of ``protocols.contract``). ``names``: for each stream of
    the source, the names that its state may use next to the tap_stream_id. ``read``: the streams of
    this run; None: unknown."""

    def __init__(
        self,
        names: Mapping[StreamId, Collection[str]] | None = None,
        read: frozenset[StreamId] | None = None,
    ) -> None:
        self._names = dict(names or {})
        self._read = read

    def export(self, states: Sequence[StoredState]) -> Any:
        text = state_file(states)
        return None if text is None else exact(text)

    def parse(self, raw: Any) -> list[StoredState]:
        """Accepts the bare value, a STATE message, Meltano's form (``singer_state``, or
        ``completed`` and ``partial``, where the first counts), a list of one, and no state (null,
        ``[]``, ``{}``)."""
        if isinstance(raw, list):
            items = cast(list[Any], raw)
            if len(items) > 1:
                raise StateError(
                    "a list of several states: a tap has one",
                    code="state.mixed",
                    hint="give the value of the last STATE message",
                )
            raw = items[0] if items else None
        value = _unwrapped(raw)
        if value in (None, {}):
            return []
        return [StoredState(SCOPE, exact_text(value).decode())]

    def merge(self, saved: Sequence[StoredState], new: Sequence[StoredState]) -> list[StoredState]:
        """Returns the last state (but see :meth:`reading`); none where that is null."""
        states = [*saved, *new]
        if not states or states[-1].blob == "null":
            return []
        last = states[-1]
        if saved and new and self._read is not None:
            owners = _Owners(self._names, self._read)
            read = frozenset(s.name for s in self._read)
            last = _with_unread(exact(saved[-1].blob), last, read, owners)
        return [last]

    def reset(self, states: Sequence[StoredState], stream: StreamId) -> list[StoredState]:
        """Removes a stream's bookmark. Raises ``StateError`` where the stream's bookmarks cannot be
        identified with certainty."""
        if not self.splits(states, (stream,)):
            raise StateError(
                f"the state of {stream} alone cannot be reset: only the tap knows which part of"
                " its state is this stream's",
                code="state.legacy",
                hint="reset the whole state (`penstock state reset` without --stream), or name the"
                " stream as `penstock state show` does",
                stream=str(stream),
            )
        return self.without(states, (stream,))

    def names_of(self, stream: Stream) -> tuple[str, ...]:
        return tuple(sorted(names_in_states(stream) - {stream.id.name}))

    def called(self, names: Mapping[StreamId, Collection[str]]) -> "SingerState":
        return SingerState({**self._names, **names}, self._read)

    def reading(self, streams: Collection[StreamId]) -> "SingerState":
        return SingerState(self._names, frozenset(streams))

    def splits(self, states: Sequence[StoredState], streams: Collection[StreamId]) -> bool:
        """Returns whether these streams can be removed from the states: each has its own bookmark,
        or everything in a state is known to belong to other streams."""
        gone = frozenset(s.name for s in streams)
        owners = _Owners(self._names, streams)
        return not gone or all(_splits(exact(s.blob), gone, owners) for s in states)

    def without(
        self, states: Sequence[StoredState], streams: Collection[StreamId]
    ) -> list[StoredState]:
        if not streams:
            return list(states)
        if not self.splits(states, streams):
            return []
        gone = frozenset(s.name for s in streams)
        owners = _Owners(self._names, streams)
        kept = [_without(s, gone, owners) for s in states]
        return [s for s in kept if not (owners.all_in(gone) and _speaks_for_none(s))]

    def within(
        self, states: Sequence[StoredState], streams: Collection[StreamId]
    ) -> list[StoredState]:
        """Keeps all positions. Removes a pointer to a stream that is not read: taps skip every
        stream before that one."""
        read, owners = frozenset(s.name for s in streams), _Owners(self._names, streams)
        return [_pointing_to(s, read, owners) for s in states]

    def own(self, states: Sequence[StoredState], stream: StreamId) -> str | None:
        if not states or not self.splits(states, (stream,)):
            return None
        value = exact(states[-1].blob)
        if not isinstance(value, dict) or _says_beside(cast(dict[str, Any], value)):
            return None
        owners = _Owners(self._names, (stream,))
        found: dict[str, dict[str, Any]] = {}
        for part, name, mark in _by_stream(value):
            if stream.name in owners.of(name):
                found.setdefault(part, {})[name] = mark
        return exact_text(found).decode() if found else None

    def with_own(
        self, states: Sequence[StoredState], stream: StreamId, own: str | None
    ) -> list[StoredState]:
        if own is None:
            return self.without(states, (stream,))
        if self.own(states, stream) == own:
            return list(states)
        left = self.without(states, (stream,))
        value = exact(left[-1].blob) if left else {}
        if not isinstance(value, dict) or _says_beside(cast(dict[str, Any], value)):
            return left
        for part, marks in exact(own).items():
            value[part] = {**(value.get(part) or {}), **marks}
        return [StoredState(SCOPE, exact_text(value).decode())]

    def stands_alone(self, states: Sequence[StoredState], streams: Collection[StreamId]) -> bool:
        owners = _Owners(self._names, streams)
        beside = any(_may_be_of_any(exact(s.blob), owners) for s in states)
        return not beside and self.splits(states, streams)

    def with_shown(
        self, states: Sequence[StoredState], stream: StreamId, shown: Any
    ) -> list[StoredState] | None:
        """Replaces a bookmark that the state has. Only the tap knows the name of another."""
        value = exact(states[-1].blob) if states else None
        marks = _bookmarks(value)
        if marks is None or stream.name not in marks:
            return None
        marks[stream.name] = shown
        return [StoredState(SCOPE, exact_text(value).decode())]

    def versions(self, states: Sequence[StoredState], stream: StreamId) -> frozenset[int]:
        """Looks in the places of PipelineWise's taps (``version`` in the bookmark) and of
        singer-python (``activate_versions``)."""
        owners = _Owners(self._names, (stream,))
        named = [
            _version(mark) if part == "bookmarks" else mark
            for state in states[-1:]
            for part, name, mark in _by_stream(exact(state.blob))
            if stream.name in owners.of(name)
        ]
        return frozenset(v for v in named if isinstance(v, int) and not isinstance(v, bool))

    def describe(self, states: Sequence[StoredState]) -> dict[str, Any]:
        """Describes the states for the user. ``shared``: everything next to the bookmarks; the
        whole blob where it has none."""
        streams: list[dict[str, Any]] = []
        shared: Any = None
        for state in states[-1:]:
            shared = exact(state.blob)
            marks = _bookmarks(shared)
            if marks is None:
                continue
            shared = {k: v for k, v in shared.items() if k != "bookmarks"} or None
            streams = [{"namespace": None, "name": n, "state": s} for n, s in marks.items()]
        kind = StateType.legacy.value if states else None
        return {"type": kind, "streams": streams, "shared": shared}


def _bookmarks(value: Any) -> dict[str, Any] | None:
    marks = cast(dict[str, Any], value).get("bookmarks") if isinstance(value, dict) else None
    return cast(dict[str, Any], marks) if isinstance(marks, dict) else None


class _Owners:
    """Maps a name in a state to the streams that it may mean: by a stream's own name, else by its
    other names, else case-insensitively. ``asked``: streams with only their own names."""

    def __init__(
        self, names: Mapping[StreamId, Collection[str]], asked: Collection[StreamId]
    ) -> None:
        self._own = {s.name: frozenset({s.name}) for s in (*names, *asked)}
        self._others: dict[str, frozenset[str]] = {}
        self._folded: dict[str, frozenset[str]] = {}
        for stream, others in names.items():
            for name in others:
                _add(self._others, name, stream.name)
            for name in (stream.name, *others):
                _add(self._folded, name.casefold(), stream.name)

    def of(self, name: str) -> frozenset[str]:
        """Returns the names of the streams; empty: no known stream."""
        owners = self._own.get(name) or self._others.get(name)
        return owners or self._folded.get(name.casefold(), frozenset())

    def all_in(self, gone: frozenset[str]) -> bool:
        """Returns whether no other stream than these is known."""
        return self._own.keys() <= gone


def _add(owners: dict[str, frozenset[str]], name: str, stream: str) -> None:
    owners[name] = owners.get(name, frozenset()) | {stream}


def _by_stream(value: Any) -> Iterator[tuple[str, str, Any]]:
    """Yields (part, name, bookmark) for every entry of a state that is stored by stream."""
    for part in _BY_STREAM if isinstance(value, dict) else ():
        bookmarks = value.get(part)
        if isinstance(bookmarks, dict):
            for name, bookmark in cast(dict[str, Any], bookmarks).items():
                yield part, name, bookmark


def _speaks_for_none(state: StoredState) -> bool:
    """Returns whether a state has nothing by stream, but something else: a position that all
    share."""
    value = exact(state.blob)
    marked = any(_says(mark) for *_, mark in _by_stream(value))
    return isinstance(value, dict) and not marked and _says_beside(cast(dict[str, Any], value))


def _says_beside(state: dict[str, Any]) -> bool:
    bare = {k: v for k, v in state.items() if not isinstance(v, dict) or k not in _BY_STREAM}
    return any(_says(v) for k, v in bare.items() if not k.startswith(_POINTER))


def _may_be_of_any(value: Any, owners: _Owners) -> bool:
    """Returns whether a part of a state may belong to any stream: a position next to the bookmarks,
    or a bookmark under a name that no known stream has (``charges_events`` of the stream
    ``charges``)."""
    if not isinstance(value, dict):
        return _says(value)
    unknown = any(_says(mark) and not owners.of(name) for _, name, mark in _by_stream(value))
    return unknown or _says_beside(cast(dict[str, Any], value))


def _version(mark: Any) -> Any:
    return cast(dict[str, Any], mark).get("version") if isinstance(mark, dict) else None


def _says(value: Any) -> bool:
    """Returns whether a part of a state has content."""
    return value not in (None, {}, [], "")


def _splits(value: Any, gone: frozenset[str], owners: _Owners) -> bool:
    if not isinstance(value, dict):
        return not _says(value)
    state = cast(dict[str, Any], value)
    unknown = _says_beside(state)
    marked: set[str] = set()
    for part, name, mark in _by_stream(state):
        whose = owners.of(name)
        if whose & gone and not whose <= gone:
            return False
        if _says(mark) and not whose:
            unknown = True
        elif _says(mark) and part == "bookmarks":
            marked |= whose
    return not unknown or gone <= marked


def _without(state: StoredState, gone: frozenset[str], owners: _Owners) -> StoredState:
    """Returns the state without these streams' bookmarks and versions; the same object where it has
    none."""
    value = exact(state.blob)
    if not isinstance(value, dict):
        return state
    blob = cast(dict[str, Any], value)
    removed = [(part, name) for part, name, _ in _by_stream(blob) if owners.of(name) & gone]
    for part, name in removed:
        del blob[part][name]
    current = blob.get(_CURRENT)
    changed = bool(removed)
    if isinstance(current, str) and owners.of(current) & gone:
        blob[_CURRENT] = None
        changed = True
    return StoredState(state.scope, exact_text(blob).decode()) if changed else state


def _pointing_to(state: StoredState, read: frozenset[str], owners: _Owners) -> StoredState:
    """Returns the state without a pointer to a known stream that is not ``read``; the same object
    where it has none."""
    if _CURRENT not in state.blob:
        return state
    value = exact(state.blob)
    current = cast(dict[str, Any], value).get(_CURRENT) if isinstance(value, dict) else None
    whose = owners.of(current) if isinstance(current, str) else frozenset[str]()
    if not whose or whose & read:
        return state
    return StoredState(state.scope, exact_text({**value, _CURRENT: None}).decode())


def _with_unread(
    saved: Any, new: StoredState, read: frozenset[str], owners: _Owners
) -> StoredState:
    """Returns the new state with the saved one's bookmarks and versions of known streams that were
    not ``read`` and that the new one lacks; the same object where there are none, or where either
    has a position next to its bookmarks, which may belong to all streams."""
    value = exact(new.blob)
    if not (isinstance(saved, dict) and isinstance(value, dict)):
        return new
    blob = cast(dict[str, Any], value)
    if _says_beside(cast(dict[str, Any], saved)) or _says_beside(blob):
        return new
    named: dict[str, set[str]] = {}
    for part, name, _ in _by_stream(blob):
        named.setdefault(part, {name}).update(owners.of(name))
    unread = [
        (part, name, mark)
        for part, name, mark in _by_stream(saved)
        if (whose := owners.of(name)) and not whose & (read | named.get(part, set()))
        and isinstance(blob.setdefault(part, {}), dict)
    ]  # fmt: skip
    for part, name, mark in unread:
        blob[part][name] = mark
    return StoredState(new.scope, exact_text(blob).decode()) if unread else new


def _unwrapped(raw: Any) -> Any:
    if not isinstance(raw, dict):
        return raw
    given = cast(dict[str, Any], raw)
    kind = given.get("type")
    if isinstance(kind, str) and kind.upper() == "STATE" and "value" in given:
        return given["value"]
    for key in ("completed", "partial"):
        inner = given.get(key)
        if isinstance(inner, dict) and "singer_state" in inner:
            return cast(dict[str, Any], inner)["singer_state"]
    if given.keys() == {"singer_state"}:
        return given["singer_state"]
    return given
