"""Which states a destination's word covers: positions in each stream, counted in frames. Pure.

A position is how many frames of a stream were fed, over all of its runs. What a run's checkpoint or
good end says moves the stream's covered position; a mark is acked once every stream that it speaks
for is covered as far as it was fed when the mark came. A stream whose run failed is never covered
any further: nothing of it is given to a destination again, though what is dropped counts as fed.
Neighbours: ``writer`` feeds and asks, ``answers`` hears. Source: the protocol, section 7.
"""

import threading
from collections import deque
from dataclasses import dataclass

from penstock.model.catalog import StreamId


@dataclass(slots=True)
class _Mark:
    seq: int
    left: int  # streams that are not covered yet


class Marks:
    """``fed`` and ``add`` belong to the thread that feeds, ``covered`` to those that hear."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fed: dict[StreamId, int] = {}
        self._covered: dict[StreamId, int] = {}
        self._open: set[StreamId] = set()  # fed further than covered
        self._waiting: dict[StreamId, deque[tuple[int, _Mark]]] = {}

    def fed(self, stream: StreamId, frames: int = 1) -> None:
        """Before they are given, or what the destination says of them could be first."""
        with self._lock:
            self._fed[stream] = self._fed.get(stream, 0) + frames
            self._open.add(stream)

    def position(self, stream: StreamId) -> int:
        with self._lock:
            return self._fed.get(stream, 0)

    def add(self, seq: int, stream: StreamId | None, *, ahead: bool = False) -> list[int]:
        """The marks that may be acked at once: this one, where everything fed before it is covered.
        ``stream`` None: it speaks for all. ``ahead``: it also waits for the next frame of its
        stream, which says that the stream is empty."""
        with self._lock:
            wanted = list(self._open) if stream is None else [stream] * (stream in self._open)
            needs = {s: self._fed[s] for s in wanted}
            if ahead and stream is not None:
                needs[stream] = self._fed.get(stream, 0) + 1
            mark = _Mark(seq, len(needs))
            for one, position in needs.items():
                self._waiting.setdefault(one, deque()).append((position, mark))
            return [] if needs else [seq]

    def covered(self, stream: StreamId, position: int) -> list[int]:
        """The destination has everything of this stream up to here: the marks that may be acked
        now, in order."""
        with self._lock:
            position = min(position, self._fed.get(stream, 0))
            if position <= self._covered.get(stream, 0):
                return []
            self._covered[stream] = position
            if position == self._fed[stream]:
                self._open.discard(stream)
            waiting = self._waiting.get(stream, deque())
            ready: list[int] = []
            while waiting and waiting[0][0] <= position:
                mark = waiting.popleft()[1]
                mark.left -= 1
                if not mark.left:
                    ready.append(mark.seq)
            return sorted(ready)
