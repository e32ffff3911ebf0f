"""Which segments an ack of a destination covers. Pure.

A segment with a state is covered by the ack of its mark. One without is covered by the next mark
of its scope that is acked (a shared scope: any later shared one), or by a good end; one that has no
scope only by a good end. Neighbour: ``engine.worker.feeder`` feeds and asks.
"""

import threading
from collections import deque

from penstock.model.segments import Segment, SegmentId
from penstock.protocols.contract import END

_NO_SCOPE = ""


class Cover:
    """``fed`` belongs to the thread that feeds, the rest to the one that hears. A segment is named
    once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[tuple[int | None, SegmentId]]] = {}
        self._scopes: dict[int, str] = {}
        self._open: SegmentId | None = None
        self._marks = 0

    def begin(self, segment: SegmentId) -> None:
        """Its first row is about to be fed."""
        with self._lock:
            self._open = segment

    def fed(self, segment: Segment) -> int | None:
        """Its rows have all been fed. The number of the mark to feed next, where it has a state;
        from then on that mark may be acked."""
        scope = _NO_SCOPE if segment.scope is None else segment.scope.key
        with self._lock:
            self._open = None
            number: int | None = None
            if segment.state is not None and segment.scope is not None:
                self._marks += 1
                number = self._marks
                self._scopes[number] = scope
            self._waiting.setdefault(scope, deque()).append((number, segment.id))
            return number

    def acked(self, seq: int) -> list[SegmentId]:
        """What this ack covers and none before it did; nothing for a number that was acked, or
        never given."""
        with self._lock:
            if seq == END:
                return self._everything()
            scope = self._scopes.get(seq)
            if scope is None:
                return []
            covered: list[SegmentId] = []
            waiting = self._waiting[scope]
            while waiting:
                number, segment = waiting.popleft()
                covered.append(segment)
                self._scopes.pop(number or 0, None)
                if number == seq:
                    break
            return covered

    def ended_well(self) -> list[SegmentId]:
        """Exit code 0 after the end of the input: what has no state is covered now, unless a mark
        before it was not acked: those rows are fed again, and newer ones must come after them."""
        with self._lock:
            covered: list[SegmentId] = []
            for waiting in self._waiting.values():
                while waiting and waiting[0][0] is None:
                    covered.append(waiting.popleft()[1])
            return covered

    def left(self) -> list[SegmentId]:
        """Fed, wholly or in part, and not covered."""
        with self._lock:
            found = [segment for waiting in self._waiting.values() for _, segment in waiting]
            return sorted([*found, *([] if self._open is None else [self._open])])

    def _everything(self) -> list[SegmentId]:
        found = [segment for waiting in self._waiting.values() for _, segment in waiting]
        self._waiting, self._scopes = {}, {}
        return found
