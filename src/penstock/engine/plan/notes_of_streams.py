"""Joins notes that say the same of several streams into one, which names them all.

A note of a stream begins with its name: ``users: ...`` or ``stream users: ...``. Neighbours:
``reporting.accounting`` gives each note of a run as it comes, ``inspect.plan_check`` all of a plan.
"""

from collections.abc import Iterable

from penstock.short_texts import shown

_SHOWN = 10  # names in a note
_STREAM = "stream "


def joined_notes(notes: Iterable[str], streams: Iterable[str]) -> list[str]:
    """Returns the notes in order, each once, joined where they say the same of several streams."""
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
    """Remembers what was noted of which streams."""

    def __init__(self) -> None:
        self._names: dict[str, list[str]] = {}  # by what is said of them
        self._texts: dict[str, str] = {}

    def joined(self, text: str, streams: Iterable[str]) -> tuple[str | None, str]:
        """Returns the note that says the same of streams before, or None, and the note to have in
        its place. ``streams``: the names of the run's."""
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
