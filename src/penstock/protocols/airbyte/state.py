"""Parses, merges, resets and describes Airbyte's states, and builds the content of ``--state``.

Pure functions over saved states. A saved blob is the source's own AirbyteStateMessage, byte for
byte (L1). A GLOBAL one is rewritten only to remove a part (reset, full refresh, a STREAM state that
replaces it), to keep the entries of streams that a run did not read, and to restore the entry of
such a stream. Where a source has switched from STREAM to GLOBAL or back, a GLOBAL state and STREAM
states of other streams are saved side by side. Not here: when a state may be saved (``engine``),
where (``store``), the entries of GLOBAL (``state_entries``). Source: protocol, State &
Checkpointing and AirbyteStateMessage V1/V2.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import msgspec

from penstock.codec.exact_json import exact, exact_text
from penstock.errors import StateError
from penstock.model.catalog import Stream, StreamId
from penstock.model.state import StateScope, StateType, StoredState
from penstock.protocols.airbyte import state_forms
from penstock.protocols.airbyte.messages import (
    ABSENT,
    AirbyteGlobalState,
    AirbyteStateMessage,
    AirbyteStreamState,
    LineGlobalState,
    LineState,
    LineStateStats,
)
from penstock.protocols.airbyte.state_entries import (
    entries_of,
    of_entry,
    shares,
    shares_place,
    stream_of,
    with_entry,
    with_unread,
    without_entries,
)
from penstock.protocols.airbyte.stream_lookup import apart, meant_by
from penstock.protocols.stdio import wire_struct

_HEAD = msgspec.json.Decoder(LineState)
_GLOBAL = msgspec.json.Decoder(LineGlobalState)
_STATS = msgspec.json.Decoder(LineStateStats)
_SHARED = {t: StateScope(t) for t in (StateType.global_, StateType.legacy)}
# PER_STREAM: the name that the protocol page's description of AirbyteStateType uses for STREAM.
_TYPES = {**{t.value: t for t in StateType}, "PER_STREAM": StateType.stream}


def _absent(raw: msgspec.Raw) -> bool:
    return raw is ABSENT or bytes(raw) == b"null"


def scope_of(blob: str) -> StateScope:
    """Returns the scope of a state message, with its stream as the message spells it. A message
    without a discriminator is LEGACY; if it also lacks ``data``, its only body decides. Raises
    ``ValueError``."""
    try:
        head = _HEAD.decode(blob)
    except msgspec.DecodeError as e:
        raise ValueError(str(e)) from None
    word = head.type or head.state_type
    kind = StateType.legacy if word is None else _TYPES.get(word)
    if word is None and _absent(head.data) and (head.stream is None) is not _absent(head.global_):
        kind = StateType.stream if head.stream is not None else StateType.global_
    if kind is StateType.stream:
        if head.stream is None:
            raise ValueError("a STREAM state without `stream`")
        name = head.stream.stream_descriptor
        return StateScope(StateType.stream, StreamId(name.namespace, name.name))
    if kind is StateType.global_:
        if _absent(head.global_):
            raise ValueError("a GLOBAL state without `global`")
        return _SHARED[StateType.global_]
    if kind is StateType.legacy:
        return _SHARED[StateType.legacy]
    raise ValueError(f"a state of unknown type {word!r}")


def streams_with_entries(blob: str) -> frozenset[StreamId]:
    """Returns the streams, as spelled, with a non-null entry in a GLOBAL state: the source resumes
    those, and reads others from the start. Raises ``ValueError``."""
    try:
        entries = _GLOBAL.decode(_HEAD.decode(blob).global_).stream_states
    except msgspec.DecodeError as e:
        raise ValueError(str(e)) from None
    named = (e.stream_descriptor for e in entries if not _absent(e.stream_state))
    return frozenset(StreamId(name.namespace, name.name) for name in named)


def record_count(blob: str) -> int | None:
    """Returns the number of records since the previous state, as the source counts them; None: it
    does not."""
    try:
        stats = _STATS.decode(blob).source_stats
    except msgspec.DecodeError:
        return None
    count = None if stats is None else stats.record_count
    return int(count) if count is not None and count.is_integer() and count >= 0 else None


def state_file(states: Sequence[StoredState]) -> bytes | None:
    """Returns the content of ``--state``: the messages as the source sent them (with ``type``), the
    bare blob for LEGACY; None: there is no state. Next to STREAM states the entries of GLOBAL
    become STREAM states too, unless they share a position: Airbyte's Python CDK ignores a GLOBAL
    state in a list of several, and would read its streams from the start."""
    given = [s for s in states if not _is_null(s)]
    if not given:
        return None
    given.sort(key=_is_of_stream)
    first = given[0]
    if len(given) > 1 and first.scope.type is StateType.global_ and not shares(first):
        given[:1] = [of_entry(entry) for entry in entries_of(first)]
    if given[0].scope.type is StateType.legacy:
        return bytes(_HEAD.decode(given[-1].blob).data)
    return b"[" + b",".join(_typed(s) for s in given) + b"]"


def _typed(state: StoredState) -> bytes:
    """Returns the blob, with ``type`` added where the source did not write it."""
    if _HEAD.decode(state.blob).type is not None:
        return state.blob.encode()
    message = exact(state.blob)
    message["type"] = state.scope.type.value
    return exact_text(message)


def _is_null(state: StoredState) -> bool:
    """Returns whether the state is null, which resets its whole scope."""
    head = _HEAD.decode(state.blob)
    if state.scope.type is StateType.stream:
        return head.stream is None or _absent(head.stream.stream_state)
    if state.scope.type is StateType.legacy:
        return _absent(head.data)
    return False


def _is_empty(state: StoredState) -> bool:
    """Returns whether the message has neither a type nor `data`, so that it resets nothing."""
    head = _HEAD.decode(state.blob)
    return head.data is ABSENT and head.type is None and head.state_type is None


def _is_of_stream(state: StoredState) -> bool:
    """Sorts the GLOBAL state first: sources expect it there."""
    return state.scope.type is StateType.stream


class AirbyteState:
    """Handles saved states (``StateRole`` of ``protocols.contract``). ``read``: the streams of this
    run; None: unknown. ``apart``: the streams with namespace ``""`` that the source has next to one
    with none (``stream_lookup``)."""

    def __init__(
        self,
        read: frozenset[StreamId] | None = None,
        apart: frozenset[StreamId] = frozenset(),
    ) -> None:
        self._read, self._apart = read, apart

    def export(self, states: Sequence[StoredState]) -> Any:
        text = state_file(self._own(states))
        return None if text is None else exact(text)

    def parse(self, raw: Any) -> list[StoredState]:
        """Accepts what ``state_forms`` converts, one or a list of them, a V1 message, a bare LEGACY
        blob, and no state (null, ``[]``, ``{}``)."""
        items = state_forms.messages(raw)
        types = [_type_of(i) for i in items if _type_of(i) is not StateType.stream]
        if len(items) > 1 and (len(types) > 1 or StateType.legacy in types):
            raise StateError(
                "a list of several states may hold STREAM states and one GLOBAL state only",
                code="state.mixed",
                hint="give one LEGACY state, or STREAM states and at most one GLOBAL state",
            )
        found = [_saved(item, index, self._apart) for index, item in enumerate(items)]
        return self.merge([], found)

    def merge(self, saved: Sequence[StoredState], new: Sequence[StoredState]) -> list[StoredState]:
        """Merges new states into saved ones, whatever type the source sent before. LEGACY replaces
        everything, and any state replaces LEGACY. GLOBAL replaces the STREAM states of the streams
        that it names, or of all where it names none (see ``reading`` for what stays of GLOBAL);
        STREAM takes its stream out of GLOBAL. A null state removes what it would replace."""
        merged = {s.scope: s for s in self._own(saved)}
        for state in self._own(new):
            kind, null = state.scope.type, _is_null(state)
            if kind is StateType.legacy:
                merged = merged if _is_empty(state) else {}
            else:
                merged.pop(_SHARED[StateType.legacy], None)
                merged = _beside(merged, state, self._apart)
            if null:
                merged.pop(state.scope, None)
            elif self._read is not None and kind is StateType.global_:
                before = merged.get(state.scope)
                merged[state.scope] = with_unread(before, state, self._read, self._apart)
            else:
                merged[state.scope] = state
        return sorted(merged.values(), key=_is_of_stream)

    def reset(self, states: Sequence[StoredState], stream: StreamId) -> list[StoredState]:
        """Removes one stream: STREAM: its state; GLOBAL: its entry becomes null, ``shared_state``
        stays. Raises ``StateError`` for LEGACY."""
        if any(s.scope.type is StateType.legacy for s in states):
            raise StateError(
                f"the state of {stream} alone cannot be reset: a LEGACY state is one blob whose"
                " content only the source knows",
                code="state.legacy",
                hint="reset the whole state (`penstock state reset` without --stream)",
                stream=str(stream),
            )
        return self.without(states, (stream,))

    def names_of(self, stream: Stream) -> tuple[str, ...]:
        del stream
        return ()

    def called(self, names: Mapping[StreamId, Collection[str]]) -> "AirbyteState":
        return AirbyteState(self._read, self._apart | apart(names))

    def reading(self, streams: Collection[StreamId]) -> "AirbyteState":
        return AirbyteState(frozenset(streams), self._apart)

    def splits(self, states: Sequence[StoredState], streams: Collection[StreamId]) -> bool:
        """Returns whether single streams can be removed: from LEGACY only where it is empty; from
        GLOBAL where it has entries of streams, or no shared state."""
        return not streams or all(map(_splits, states))

    def without(
        self, states: Sequence[StoredState], streams: Collection[StreamId]
    ) -> list[StoredState]:
        """Removes streams as Airbyte's platform does: entries of GLOBAL become null, and the shared
        state is removed with the last of them; LEGACY is removed whole."""
        states = self._own(states)
        if not streams:
            return states
        gone = frozenset(streams)
        kept: list[StoredState] = []
        for state in states:
            if state.scope.type is StateType.global_:
                left = without_entries(state, gone, self._apart)
                kept += [left] if entries_of(left) else []
            elif state.scope.type is StateType.stream and state.scope.stream not in gone:
                kept.append(state)
        return kept

    def within(
        self, states: Sequence[StoredState], streams: Collection[StreamId]
    ) -> list[StoredState]:
        """Keeps only these streams' entries of a GLOBAL state with a shared part. The shared part
        is a position in a log: a stream that is not read while it advances must be read from the
        start later."""
        others = {
            stream_of(entry, self._apart)
            for state in states
            if state.scope.type is StateType.global_ and shares(state)
            for entry in entries_of(state)
        }
        return self.without(states, others - set(streams))

    def own(self, states: Sequence[StoredState], stream: StreamId) -> str | None:
        if not self.splits(states, (stream,)):
            return None
        for state in self._own(states):
            if state.scope.stream == stream:
                return exact_text(exact(state.blob)["stream"].get("stream_state")).decode()
            if state.scope.type is StateType.global_ and not shares(state):
                for entry in entries_of(state):
                    if stream_of(entry, self._apart) == stream:
                        return exact_text(entry["stream_state"]).decode()
        return None

    def with_own(
        self, states: Sequence[StoredState], stream: StreamId, own: str | None
    ) -> list[StoredState]:
        if own is not None and self.own(states, stream) == own:
            return list(states)
        if own is None or not self.splits(states, (stream,)) or any(map(shares_place, states)):
            return self.without(states, (stream,))
        entry = _entry(stream, exact(own))
        states = self._own(states)
        shared = next((s for s in states if s.scope.type is StateType.global_), None)
        if shared is None:
            return self.merge(states, [of_entry(entry, self._apart)])
        others = [s for s in states if s is not shared and s.scope.stream != stream]
        return [with_entry(shared, stream, entry, self._apart), *others]

    def stands_alone(self, states: Sequence[StoredState], streams: Collection[StreamId]) -> bool:
        return self.splits(states, streams) and not any(map(shares_place, states))

    def with_shown(
        self, states: Sequence[StoredState], stream: StreamId, shown: Any
    ) -> list[StoredState] | None:
        """Keeps the type of the stream's saved state. A stream without one gets a STREAM state,
        unless all streams share a LEGACY state or a position."""
        states, entry = self._own(states), _entry(stream, shown)
        for at, state in enumerate(states):
            if state.scope.stream == stream:
                message = exact(state.blob)
                message["stream"]["stream_state"] = shown
                blob = exact_text(message).decode()
                return [*states[:at], StoredState(state.scope, blob), *states[at + 1 :]]
            if state.scope.type is StateType.global_:
                named = {stream_of(e, self._apart) for e in entries_of(state)}
                if stream in named:
                    changed = with_entry(state, stream, entry, self._apart)
                    return [*states[:at], changed, *states[at + 1 :]]
        if not self.stands_alone(states, (stream,)):
            return None
        return self.with_own(states, stream, exact_text(shown).decode())

    def versions(self, states: Sequence[StoredState], stream: StreamId) -> frozenset[int]:
        """Returns none: streams have no versions."""
        del states, stream
        return frozenset()

    def describe(self, states: Sequence[StoredState]) -> dict[str, Any]:
        streams: list[dict[str, Any]] = []
        shared: Any = None
        states = self._own(states)
        alone = {s.scope.stream for s in states}  # their entries in GLOBAL are null
        for state in states:
            message = wire_struct.from_data(AirbyteStateMessage, exact(state.blob))
            if state.scope.type is StateType.legacy:
                shared = message.data
                continue
            entries = [] if message.stream is None else [message.stream]
            if message.global_ is not None:
                shared, entries = message.global_.shared_state, message.global_.stream_states
            ids = [_id_of(entry, self._apart) for entry in entries]
            streams += [
                {"namespace": id.namespace, "name": id.name, "state": entry.stream_state}
                for id, entry in zip(ids, entries, strict=True)
                if message.global_ is None or id not in alone
            ]
        kind = states[0].scope.type.value if states else None
        return {"type": kind, "streams": streams, "shared": shared}

    def _own(self, states: Sequence[StoredState]) -> list[StoredState]:
        """Returns the states with their streams' ids. Drops a state saved for a stream without a
        namespace before the source also had that name under ``""``, if it belongs to the latter:
        that stream is read from its start."""
        kept = (s for s in states if not self._apart or not _is_of_other(s, self._apart))
        return [_identified(s, self._apart) for s in kept]


def _identified(state: StoredState, apart: frozenset[StreamId]) -> StoredState:
    spelled = state.scope.stream
    if spelled is None or spelled.namespace != "" or spelled in apart:
        return state
    scope = StateScope(state.scope.type, StreamId.of("", spelled.name))
    return msgspec.structs.replace(state, scope=scope)


def _is_of_other(state: StoredState, apart: frozenset[StreamId]) -> bool:
    stream = state.scope.stream
    if stream is None or stream.namespace is not None or StreamId("", stream.name) not in apart:
        return False
    head = _HEAD.decode(state.blob)
    return head.stream is not None and head.stream.stream_descriptor.namespace == ""


def _beside(
    states: dict[StateScope, StoredState], new: StoredState, apart: frozenset[StreamId]
) -> dict[StateScope, StoredState]:
    """Returns the GLOBAL and STREAM states that may stay next to a new one. GLOBAL stays without
    the entry of a STREAM state's stream, as long as it has another. STREAM states stay for streams
    that GLOBAL does not name; none stay where GLOBAL names no stream."""
    stream = new.scope.stream
    if stream is not None:
        scope = _SHARED[StateType.global_]
        shared = states.pop(scope, None)
        left = None if shared is None else without_entries(shared, frozenset((stream,)), apart)
        return {scope: left, **states} if left and (left is shared or entries_of(left)) else states
    if not any(map(_is_of_stream, states.values())):
        return states
    entries = exact(new.blob)["global"].get("stream_states") or ()
    named = {stream_of(entry, apart) for entry in entries}
    return {
        scope: state
        for scope, state in states.items()
        if scope.stream is None or (named and scope.stream not in named)
    }


def _entry(stream: StreamId, state: Any) -> dict[str, Any]:
    name = {"name": stream.name}
    if stream.namespace is not None:
        name["namespace"] = stream.namespace
    return {"stream_descriptor": name, "stream_state": state}


def _splits(state: StoredState) -> bool:
    if state.scope.type is StateType.legacy:
        return msgspec.json.decode(_HEAD.decode(state.blob).data or b"null") in (None, {})
    if state.scope.type is StateType.global_:
        return not shares(state) or bool(entries_of(state))
    return True


def _id_of(entry: AirbyteStreamState, apart: frozenset[StreamId]) -> StreamId:
    name = entry.stream_descriptor
    return meant_by(name.namespace, name.name, apart)


def _type_of(item: Any) -> StateType:
    if not isinstance(item, dict):
        return StateType.legacy
    found = cast(dict[str, Any], item)
    kind = found.get("type") or found.get("state_type")
    return _TYPES.get(kind, StateType.legacy) if isinstance(kind, str) else StateType.legacy


def _saved(item: Any, index: int, apart: frozenset[StreamId]) -> StoredState:
    if not isinstance(item, dict):
        raise StateError(
            f"state {index + 1} is not a JSON object",
            code="state.invalid",
            hint="give what `penstock state export` writes, or the source's own state messages",
        )
    message = cast(dict[str, Any], item)
    if _type_of(message) is StateType.legacy and not _is_v1(message):
        message = {"type": StateType.legacy.value, "data": message}
    blob = exact_text(message).decode()
    try:
        scope = scope_of(blob)
        if scope.type is StateType.global_:
            wire_struct.from_data(AirbyteGlobalState, message["global"])
    except ValueError as e:
        raise StateError(
            f"state {index + 1} is not an Airbyte state message: {e}",
            code="state.invalid",
            hint="give what `penstock state export` writes, or the source's own state messages",
        ) from None
    return _identified(StoredState(scope, blob), apart)


def _is_v1(message: dict[str, Any]) -> bool:
    """Returns whether this is a LEGACY message, not a bare blob that is an object."""
    typed = (message.get("type") or message.get("state_type")) == StateType.legacy
    return typed or ("data" in message and message.keys() <= {"data", "sourceStats"})
