"""Takes GLOBAL states apart: the entries of single streams, and the part that streams share.

Pure functions over saved states; a state is rewritten only to change an entry. Not here: when that
is done (``state``), which stream a name means (``stream_lookup``). Source: protocol,
AirbyteStateMessage V2.
"""

from typing import Any

from penstock.codec.exact_json import exact, exact_text
from penstock.model.catalog import StreamId
from penstock.model.state import StateScope, StateType, StoredState
from penstock.protocols.airbyte.stream_lookup import meant_by


def shares(state: StoredState) -> bool:
    """Returns whether a GLOBAL state has a shared part."""
    return exact(state.blob)["global"].get("shared_state") not in (None, {})


def shares_place(state: StoredState) -> bool:
    return state.scope.type is StateType.global_ and shares(state)


def with_entry(
    state: StoredState, stream: StreamId, entry: dict[str, Any], apart: frozenset[StreamId]
) -> StoredState:
    """Returns a GLOBAL state with ``entry`` as the stream's entry."""
    message = exact(state.blob)
    entries = [*(message["global"].get("stream_states") or ())]
    at = [i for i, each in enumerate(entries) if stream_of(each, apart) == stream]
    if not at:
        entries.append(entry)
    for index in at:
        entries[index] = {**entries[index], "stream_state": entry["stream_state"]}
    message["global"]["stream_states"] = entries
    return StoredState(state.scope, exact_text(message).decode())


def with_unread(
    saved: StoredState | None,
    new: StoredState,
    read: frozenset[StreamId],
    apart: frozenset[StreamId],
) -> StoredState:
    """Returns the new GLOBAL state with the saved one's entries of streams that were not ``read``
    and that the new one lacks; the same object where there are none, or where streams share a
    position."""
    if saved is None or shares(saved) or shares(new):
        return new
    message = exact(new.blob)
    entries = [*(message["global"].get("stream_states") or ())]
    known = read | {stream_of(entry, apart) for entry in entries}
    unread = [entry for entry in entries_of(saved) if stream_of(entry, apart) not in known]
    if not unread:
        return new
    message["global"]["stream_states"] = [*entries, *unread]
    return StoredState(new.scope, exact_text(message).decode())


def stream_of(entry: Any, apart: frozenset[StreamId]) -> StreamId:
    name = entry["stream_descriptor"]
    return meant_by(name.get("namespace"), name["name"], apart)


def entries_of(state: StoredState) -> list[Any]:
    """Returns the non-null stream entries of a GLOBAL state."""
    entries = exact(state.blob)["global"].get("stream_states") or ()
    return [e for e in entries if e.get("stream_state") is not None]


def of_entry(entry: Any, apart: frozenset[StreamId] = frozenset()) -> StoredState:
    """Returns the STREAM state for an entry of a GLOBAL one."""
    message = {"type": StateType.stream.value, "stream": entry}
    scope = StateScope(StateType.stream, stream_of(entry, apart))
    return StoredState(scope, exact_text(message).decode())


def without_entries(
    state: StoredState, gone: frozenset[StreamId], apart: frozenset[StreamId]
) -> StoredState:
    """Returns a GLOBAL state with null for these streams' entries; the same object where none has
    an entry."""
    message = exact(state.blob)
    changed = False
    for entry in message["global"].get("stream_states") or ():
        if stream_of(entry, apart) in gone:
            changed |= entry.get("stream_state") is not None
            entry["stream_state"] = None
    return StoredState(state.scope, exact_text(message).decode()) if changed else state
