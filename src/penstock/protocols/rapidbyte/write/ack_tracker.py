"""Decides which states a destination has acknowledged, by positions in each stream counted in
frames. Pure.

A position is the number of frames of a stream that were fed, over all of its runs. A run's
checkpoint or successful end advances the stream's covered position. A state is acked once every
stream that it covers is covered up to the position it had when the state was added. A stream whose
run failed never advances: it is not fed again, while its dropped rows still count as fed.
Neighbours: ``writer`` adds frames and states, ``answers`` advances. Source: the protocol, section
7.
"""

import threading
from collections import deque
from dataclasses import dataclass

from penstock.model.catalog import StreamId


@dataclass(slots=True)
class _PendingState:
    seq: int
    left: int  # streams that are not covered yet


class AckTracker:
    """Tracks the states of one write that are not acked. The feeding thread calls ``fed`` and
    ``add``, the threads of the runs call ``covered``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fed: dict[StreamId, int] = {}
        self._covered: dict[StreamId, int] = {}
        self._open: set[StreamId] = set()  # fed further than covered
        self._waiting: dict[StreamId, deque[tuple[int, _PendingState]]] = {}

    def fed(self, stream: StreamId, frames: int = 1) -> None:
        """Counts frames as fed. Called before they are put, so that an acknowledgement of them
        cannot come first."""
        with self._lock:
            self._fed[stream] = self._fed.get(stream, 0) + frames
            self._open.add(stream)

    def position(self, stream: StreamId) -> int:
        """Returns the number of frames of the stream that were fed so far."""
        with self._lock:
            return self._fed.get(stream, 0)

    def add(self, seq: int, stream: StreamId | None, *, ahead: bool = False) -> list[int]:
        """Adds a state. Returns the numbers of the states that may be acked at once: this one,
        where everything fed before it is covered. ``stream`` None: it covers all streams.
        ``ahead``: it also waits for the next frame of its stream, which carries an empty
        generation."""
        with self._lock:
            wanted = list(self._open) if stream is None else [stream] * (stream in self._open)
            needs = {s: self._fed[s] for s in wanted}
            if ahead and stream is not None:
                needs[stream] = self._fed.get(stream, 0) + 1
            state = _PendingState(seq, len(needs))
            for one, position in needs.items():
                self._waiting.setdefault(one, deque()).append((position, state))
            return [] if needs else [seq]

    def covered(self, stream: StreamId, position: int) -> list[int]:
        """Advances a stream: the destination has its frames up to ``position``. Returns the numbers
        of the states that may be acked now, in order."""
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
                state = waiting.popleft()[1]
                state.left -= 1
                if not state.left:
                    ready.append(state.seq)
            return sorted(ready)
