"""Converts the forms in which users supply a state into AirbyteStateMessages: the protocol's, with
or without envelope and ``type``, and those of the Airbyte platform's API and of its page for a
connection's state (camelCase).

Pure. Not here: what a state means, and what is refused (``state``). Sources: protocol,
AirbyteStateMessage; the platform's API, ``ConnectionState``, ``StreamState``, ``GlobalState``.
"""

from typing import Any, cast

from penstock.model.state import StateType


def messages(raw: Any) -> list[Any]:
    """Returns the state messages in JSON data, where it has a known form; anything else is returned
    unchanged."""
    items = cast(list[Any], raw) if isinstance(raw, list) else [raw]
    return [message for item in items if item not in (None, {}) for message in _messages(item)]


def _messages(item: Any) -> list[Any]:
    if not isinstance(item, dict):
        return [item]
    given = cast(dict[str, Any], item)
    if given.get("type") == "STATE" and "state" in given:
        return messages(given["state"]) or [given["state"]]
    if isinstance(given.get("stateType"), str):
        return _of_connection(given)
    if _is_entry(given):
        return [_of_stream(given)]
    if given.get("type") or given.get("state_type") or given.get("data") is not None:
        return [given]
    stream, shared = given.get("stream"), given.get("global")
    if shared is None and _is_entry(stream):
        return [{**given, "type": StateType.stream.value}]
    if stream is None and isinstance(shared, dict) and "stream_states" in shared:
        return [{**given, "type": StateType.global_.value}]
    return [given]


def _is_entry(data: Any) -> bool:
    """Returns whether this is the state of one stream, with the stream's name in it."""
    given = cast(dict[str, Any], data) if isinstance(data, dict) else {}
    name = given.get("stream_descriptor", given.get("streamDescriptor"))
    return isinstance(name, dict) and "name" in name


def _entry(given: dict[str, Any]) -> dict[str, Any]:
    return {
        "stream_descriptor": given.get("stream_descriptor", given.get("streamDescriptor")),
        "stream_state": given.get("stream_state", given.get("streamState")),
    }


def _of_stream(given: dict[str, Any]) -> dict[str, Any]:
    return {"type": StateType.stream.value, "stream": _entry(given)}


def _of_connection(given: dict[str, Any]) -> list[Any]:
    """Returns the messages of the API's ``ConnectionState``."""
    match given["stateType"].lower():
        case "stream":
            return messages(given.get("streamState") or [])
        case "global" if isinstance(given.get("globalState"), dict):
            of = cast(dict[str, Any], given["globalState"])
            listed = cast(list[Any], of.get("streamStates", of.get("stream_states")) or [])
            body = {
                "shared_state": of.get("shared_state", of.get("sharedState")),
                "stream_states": [_entry(e) if _is_entry(e) else e for e in listed],
            }
            return [{"type": StateType.global_.value, "global": body}]
        case "legacy":
            return [{"type": StateType.legacy.value, "data": given.get("state")}]
        case "not_set":
            return []
        case _:
            return [given]
