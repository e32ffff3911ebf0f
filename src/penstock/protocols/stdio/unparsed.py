"""What a connector prints that is no message of its protocol: counted, and shown while it is rare.

Nothing here is ever fatal, and no count is one event a line. Neighbours: ``protocols/*`` say what
is noise to them and what they call it.
"""

from collections.abc import Iterator

import msgspec

from penstock.model.events import Counted, Event, Log

_LOGGED = 20  # of each kind of noise; the rest is only counted
_SHOWN = 1000  # characters of a noise line
_KINDS = 200  # distinct keys of Counted; a connector chooses some of their words


class Noise:
    """Counts by kind. They are given by :meth:`counted`, once a chunk."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._logged: dict[str, int] = {}

    def count(self, what: str, number: int = 1) -> None:
        if what not in self._logged and len(self._logged) >= _KINDS:
            what = f"{what.partition(':')[0]}:others"
        self._logged.setdefault(what, 0)
        self._counts[what] = self._counts.get(what, 0) + number

    def counted(self) -> Iterator[Event]:
        counts, self._counts = self._counts, {}
        for what, number in counts.items():
            yield Counted(what, number)

    def noise(self, what: str, raw: bytes | msgspec.Raw) -> Iterator[Event]:
        """Count a line, and log it as text while there are few of its kind."""
        self.count(what)
        seen = self._logged.get(what, _LOGGED)
        if seen < _LOGGED:
            self._logged[what] = seen + 1
            text = bytes(raw)[: _SHOWN * 4].decode(errors="replace").strip()[:_SHOWN]
            more = " (further lines of this kind are only counted)" if seen + 1 == _LOGGED else ""
            yield Log("INFO", f"{what}: {text}{more}")
