"""Joins equal notes about several streams into one note, which names them all.

A note about a stream begins with its name: ``users: ...`` or ``stream users: ...``. Neighbours:
``reporting.accounting`` gives each note of a run as it comes, ``inspect.plan_check`` all of a plan.
"""

from collections.abc import Iterable

from penstock.short_texts import shown

_SHOWN = 10  # names in a note
_STREAM = "stream "


def joined_notes(notes: Iterable[str], streams: Iterable[str]) -> list[str]:
    """Returns the notes in order and without repetitions; equal notes about several streams are
    joined."""
    known, of_streams = set(streams), NotesOfStreams()
    found: dict[str, None] = {}
    for note in notes:
        before, text = of_streams.joined(note, known)
        if before is None or before not in found:
            found[text] = None
        else:
            found = {text if other == before else other: None for other in found}
    return list(found)


class NotesOfStreams:
    """Remembers which streams each note named."""

    def __init__(self) -> None:
        self._names: dict[str, list[str]] = {}  # by the note's text without names
        self._texts: dict[str, str] = {}

    def joined(self, text: str, streams: Iterable[str]) -> tuple[str | None, str]:
        """Returns the earlier note with the same text about other streams, or None, and the note
        that replaces it. ``streams``: the names of the run's."""
        head, colon, rest = text.partition(": ")
        name = head.removeprefix(_STREAM)
        if not colon or name not in {shown(stream) for stream in streams}:
            return None, text
        word = _STREAM if head.startswith(_STREAM) else ""
        what = f"{word}: {rest}"
        names, before = self._names.setdefault(what, []), self._texts.get(what)
        if name in names:
            return before, self._texts[what]
        names.append(name)
        if len(names) > 1:
            word = "streams " if word else ""
        listed = ", ".join(names[:_SHOWN])
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        self._texts[what] = f"{word}{listed}{more}: {rest}"
        return before, self._texts[what]
