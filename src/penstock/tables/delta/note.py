"""Defines the JSON that Penstock writes as the userMetadata of its commits to Delta tables (L3)."""

import msgspec


class CommitNote(msgspec.Struct, frozen=True):
    """Says which load a commit is: its key, number and token. ``user``: the userMetadata that the
    session was set to write."""

    penstock: str  # the load's key; the field's name is stored in tables
    number: int
    token: str
    user: str | None = None


def parse_note(note: str) -> CommitNote | None:
    """Reads a commit's userMetadata; None: it is another program's."""
    if '"penstock"' not in note:
        return None
    try:
        return msgspec.json.decode(note, type=CommitNote)
    except msgspec.DecodeError:
        return None
