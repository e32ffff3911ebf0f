"""Decides which segments an ack of a destination covers. Pure.

A segment with a state is covered by the ack of its state mark. One without is covered by the next
acked mark of its scope (a shared scope: any later shared mark), by the ack of its stream where the
scope is that stream's, or when the destination ends well; one without a scope only when the
destination ends well. Neighbour: ``engine.worker.feeder`` feeds and asks.
"""

import threading
from collections import deque

from penstock.model.catalog import StreamId
from penstock.model.segments import Segment, SegmentId
from penstock.model.state import StateScope, StateType
from penstock.protocols.writing import END

_NO_SCOPE = ""


class FedSegments:
    """Tracks fed segments. :meth:`begin` and :meth:`fed` are called by the thread that feeds, the
    rest by the thread that reads acks. Each segment is returned once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[tuple[int | None, SegmentId]]] = {}
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
        """Returns the segments that this ack covers and no earlier one did; none for a number that
        was acked before or never given."""
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

    def stream_acked(self, stream: StreamId) -> list[SegmentId]:
        """Returns the segments of the stream's own scope, at the end of the input: all of its rows
        are written. A segment of a shared scope has other streams' rows too, which may not be."""
        with self._lock:
            waiting = self._waiting.pop(StateScope(StateType.stream, stream).key, ())
            for number, _ in waiting:
                self._scopes.pop(number or 0, None)
            return [segment for _, segment in waiting]

    def ended_well(self) -> list[SegmentId]:
        """Returns the segments without a state that exit code 0 after the end of the input covers,
        where the destination stopped no stream before its end.
        Those after a mark that was not acked are not covered: its rows are fed again, and newer
        ones must come after them."""
        with self._lock:
            covered: list[SegmentId] = []
            for waiting in self._waiting.values():
                while waiting and waiting[0][0] is None:
                    covered.append(waiting.popleft()[1])
            return covered

    def left(self) -> list[SegmentId]:
        """Returns the segments that were fed, wholly or in part, and are not covered."""
        with self._lock:
            found = [segment for waiting in self._waiting.values() for _, segment in waiting]
            return sorted([*found, *([] if self._open is None else [self._open])])

    def _everything(self) -> list[SegmentId]:
        found = [segment for waiting in self._waiting.values() for _, segment in waiting]
        self._waiting, self._scopes = {}, {}
        return found
