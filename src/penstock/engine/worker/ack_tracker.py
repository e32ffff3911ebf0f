"""Decides which segments an ack of a destination covers. Pure.

A segment with a state is covered by the ack of its state mark. Where the state covers no unacked
row, a successful end of the destination covers it too: some destinations return only the first of
such states, or none. A shared state covers the rows of every scope, also of generations, which are
fed after it. A segment without a state is covered by the next acked mark of its scope (a shared
scope: any later shared mark), by the ack of its stream where the scope is that stream's, or, where
no mark follows it, when the destination ends successfully. A segment without a scope is covered
only when the destination ends successfully. Neighbour: ``engine.worker.feeder`` feeds and queries
this.
"""

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.model.catalog import StreamId
from penstock.model.segments import Segment, SegmentId
from penstock.model.state import StateScope, StateType
from penstock.protocols.writing import END

_NO_SCOPE = ""
_SHARED = StateScope(StateType.global_).key


@dataclass(slots=True, frozen=True)
class _Fed:
    """A segment that was fed. ``number``: of its state mark; None: it has no state."""

    number: int | None
    segment: SegmentId
    rows: int


class FedSegments:
    """Tracks fed segments. :meth:`begin` and :meth:`fed` are called by the thread that feeds, the
    rest by the thread that reads acks. Each segment is returned once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[_Fed]] = {}
        self._scopes: dict[int, str] = {}
        self._open: SegmentId | None = None
        self._marks = 0

    def begin(self, segment: SegmentId) -> None:
        """Notes that the segment's first row is about to be fed."""
        with self._lock:
            self._open = segment

    def fed(self, segment: Segment) -> int | None:
        """Notes that all rows of the segment have been fed. Returns the number of the state mark to
        feed next, which may be acked from now on; None: the segment has no state."""
        scope = _NO_SCOPE if segment.scope is None else segment.scope.key
        rows = sum(part.rows for piece in segment.slices for part in piece.parts)
        with self._lock:
            self._open = None
            number: int | None = None
            if segment.state is not None and segment.scope is not None:
                self._marks += 1
                number = self._marks
                self._scopes[number] = scope
            self._waiting.setdefault(scope, deque()).append(_Fed(number, segment.id, rows))
            return number

    def acked(self, seq: int) -> list[SegmentId]:
        """Returns the segments that this ack covers and no earlier one did; none for a number that
        was acked before or never given."""
        with self._lock:
            if seq == END:
                return self._everything()
            scope = self._scopes.get(seq)
            if scope is None:
                return []
            waiting = self._waiting[scope]
            count = next(place for place, fed in enumerate(waiting, 1) if fed.number == seq)
            return self._taken(waiting, count)

    def stream_acked(self, stream: StreamId) -> list[SegmentId]:
        """Returns the segments of the stream's own scope, at the end of the input: all of its rows
        are written. A segment of a shared scope has other streams' rows too, which may not be
        written."""
        with self._lock:
            key = StateScope(StateType.stream, stream).key
            waiting = self._waiting.pop(key, deque[_Fed]())
            return self._taken(waiting, len(waiting))

    def ended_well(self) -> list[SegmentId]:
        """Returns the segments that exit code 0 after the end of the input covers, where the
        destination stopped no stream before its end: those whose states cover no unacked row, and
        those after them without a state. Excludes everything from the first rows on that an unacked
        mark covers (L1): they are fed again, and newer ones must come after them."""
        with self._lock:
            shared = self._waiting.get(_SHARED, deque[_Fed]())
            others = sum(f.rows for k, w in self._waiting.items() if k != _SHARED for f in w)
            covered = self._taken(shared, _before_unacked_rows(shared, others))
            waits = any(fed.number is not None for fed in shared)
            for waiting in self._waiting.values():
                if waiting is not shared:
                    count = _before_unacked_rows(waiting, marked=waits)
                    covered += self._taken(waiting, count)
            return covered

    def _taken(self, waiting: deque[_Fed], count: int) -> list[SegmentId]:
        taken = [waiting.popleft() for _ in range(count)]
        for fed in taken:
            self._scopes.pop(fed.number or 0, None)
        return [fed.segment for fed in taken]

    def left(self) -> list[SegmentId]:
        """Returns the segments that were fed, wholly or in part, and are not covered."""
        with self._lock:
            found = [fed.segment for waiting in self._waiting.values() for fed in waiting]
            return sorted([*found, *([] if self._open is None else [self._open])])

    def _everything(self) -> list[SegmentId]:
        found = [fed.segment for waiting in self._waiting.values() for fed in waiting]
        self._waiting, self._scopes = {}, {}
        return found


def _before_unacked_rows(waiting: Iterable[_Fed], rows: int = 0, *, marked: bool = False) -> int:
    """Returns how many of one scope's segments, from the first, come before rows that a mark
    covers. ``rows``: of other scopes, which every mark of this one covers. ``marked``: a mark of
    another scope covers all rows of this one."""
    count, place = 0, 0
    for place, fed in enumerate(waiting, 1):
        rows += fed.rows
        if fed.number is not None:
            if rows:
                return count
            count = place
    return count if rows and marked else place
