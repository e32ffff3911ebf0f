"""Counts the output of a connector that is not a message of its protocol, and logs the first lines
of each kind.

Such output is never fatal, and counts come once a chunk, not once a line. Neighbours:
``protocols/*`` decide which lines are unparsed and name their kinds.
"""

from collections.abc import Iterator

import msgspec

from penstock.model.events import Event, LogEvent, SkippedItems

_LOGGED = 20  # lines of each kind; the rest is only counted
_SHOWN = 1000  # characters of a logged line
_KINDS = 200  # distinct keys of Counted, since a connector's own words are in some of them


class UnparsedOutput:
    """Counts unparsed output by kind. :meth:`counted` yields the counts, once a chunk."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._logged: dict[str, int] = {}

    def count(self, kind: str, number: int = 1) -> None:
        """Counts without logging. Beyond ``_KINDS`` kinds the part before the colon counts."""
        if kind not in self._logged and len(self._logged) >= _KINDS:
            kind = f"{kind.partition(':')[0]}:others"
        self._logged.setdefault(kind, 0)
        self._counts[kind] = self._counts.get(kind, 0) + number

    def counted(self) -> Iterator[Event]:
        """Yields the counts since the last call, and resets them."""
        counts, self._counts = self._counts, {}
        for kind, number in counts.items():
            yield SkippedItems(kind, number)

    def report(self, kind: str, raw: bytes | msgspec.Raw) -> Iterator[Event]:
        """Counts a line, and logs it while there are few of its kind."""
        self.count(kind)
        logged = self._logged.get(kind, _LOGGED)
        if logged < _LOGGED:
            self._logged[kind] = logged + 1
            text = bytes(raw)[: _SHOWN * 4].decode(errors="replace").strip()[:_SHOWN]
            last = logged + 1 == _LOGGED
            more = " (further lines of this kind are only counted)" if last else ""
            yield LogEvent("INFO", f"{kind}: {text}{more}")
