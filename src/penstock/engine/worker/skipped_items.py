"""Describes, for the report's notes, what a connector wrote that was skipped
(``model.events.SkippedItems``).

The stable key stays in each note, in brackets, for who looks for it in a log. Neighbours:
``lane_events`` and ``feeder`` count.
"""

from penstock.engine.specs.observer import counted
from penstock.short_texts import shown

_OF_ANY = {
    "text_line": ("line", "that is no message of its protocol"),
    "not_a_message": ("JSON line", "that is no message of its protocol"),
    "blank_line": ("empty line", ""),
    "oversized_line": ("line", "that is too long"),
    "state_unmatched": ("state", "given back that equals none that it was sent"),
    "state_unused": ("state", "given back that was not needed"),
    "state_given_back": ("state", "given back"),
}
_OF_A_NAME = {
    "stream_not_configured": ("message", "of {}, which this run does not sync"),
    "status_not_configured": ("status", "of {}, which this run does not sync"),
    "state_not_configured": ("state", "of {}, which this run does not sync"),
    "unknown_type": ("message", "of the unknown type {}"),
    "unknown_status": ("status", "with the unknown word {}"),
    "malformed": ("message", "{} that is malformed"),
    "unexpected": ("message", "{} that was not expected"),
    "unexpected_type": ("message", "{} that was not expected"),
}
_PLURALS = {"status": "statuses"}


def skipped_note(what: str, count: int) -> str:
    """Returns a note: ``3 messages of users, which this run does not sync, were skipped
    (stream_not_configured:users)``. A key without words stands for itself."""
    kind, _, name = what.partition(":")
    words = _OF_A_NAME.get(kind) if name else _OF_ANY.get(what)
    if words is None:
        return f"{shown(what)}: {count}"
    noun, rest = words[0], words[1].format(shown(name))
    if count != 1 and noun in _PLURALS:
        number = f"{count:,} {_PLURALS[noun]}"
    else:
        number = counted(count, noun)
    if count != 1:
        rest = rest.replace("that is", "that are").replace("that was", "that were")
        rest = rest.replace("equals", "equal")
    comma = "," if ", which" in rest else ""
    were = "was" if count == 1 else "were"
    return f"{number}{rest and f' {rest}'}{comma} {were} skipped ({shown(what)})"
