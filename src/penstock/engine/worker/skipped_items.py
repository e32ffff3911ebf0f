"""Describes, for the report's notes, what a connector wrote that was skipped
(``model.events.SkippedItems``).

The stable key stays in each note, in brackets, for who looks for it in a log. Neighbours:
``lane_events`` and ``feeder`` count.
"""

from penstock.short_texts import shown

_OF_ANY = {
    "text_line": ("line", "lines", "that {is} no message of its protocol"),
    "not_a_message": ("JSON line", "JSON lines", "that {is} no message of its protocol"),
    "blank_line": ("empty line", "empty lines", ""),
    "oversized_line": ("line", "lines", "that {is} too long"),
    "state_unmatched": ("state", "states", "given back, unlike any that it was sent,"),
    "state_unused": ("state", "states", "given back that {was} not needed"),
    "state_given_back": ("state", "states", "given back"),
}
_OF_A_NAME = {
    "stream_not_configured": ("message", "messages", "of {name}, which this run does not sync,"),
    "status_not_configured": ("status", "statuses", "of {name}, which this run does not sync,"),
    "state_not_configured": ("state", "states", "of {name}, which this run does not sync,"),
    "unknown_type": ("message", "messages", "of the unknown type {name}"),
    "unknown_status": ("status", "statuses", "with the unknown word {name}"),
    "malformed": ("message", "messages", "{name} that {is} malformed"),
    "unexpected": ("message", "messages", "{name} that {was} not expected"),
    "unexpected_type": ("message", "messages", "{name} that {was} not expected"),
}


def skipped_note(what: str, count: int) -> str:
    """Returns a note: ``3 messages of users, which this run does not sync, were skipped
    (stream_not_configured:users)``. A key without words stands for itself."""
    kind, _, name = what.partition(":")
    words = _OF_A_NAME.get(kind) if name else _OF_ANY.get(what)
    if words is None:
        return f"{shown(what)}: {count}"
    one, several, rest = words
    is_, was = ("is", "was") if count == 1 else ("are", "were")
    rest = rest.format_map({"name": shown(name), "is": is_, "was": was})
    return (
        " ".join(filter(None, (f"{count:,}", one if count == 1 else several, rest, was, "skipped")))
        + f" ({shown(what)})"
    )
