"""Writes the states of a host's input (``penstock serve``) to the file from which they are sent
back to the host.

:class:`EveryState`: each of them, with the number of records that it covers. A state is written
when it is read, as it may be long; the counts follow once the covered records are decoded, and
before these are sealed. :class:`NewestStates`: the newest of each scope, before what it covers is
sealed; all others are superseded before they could be sent back. Neighbours:
``engine.worker.sealer`` reports records and rejects, ``engine.serve.Echo`` reads the file
(``Mailbox.states_path``).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from penstock.model.catalog import StreamId
from penstock.model.events import State


class HostStates(Protocol):
    """The states of one epoch. Records of a stream are numbered from 0, in the order in which they
    came."""

    def records(self, stream: StreamId, count: int) -> None:
        """Notes records that may become rows."""
        ...

    def refused(self, stream: StreamId, count: int) -> None:
        """Notes rejects that were not among the records."""
        ...

    def misfit(self, stream: StreamId, number: int) -> None:
        """Notes that a record was rejected when it was decoded; numbers come in order."""
        ...

    def state(self, state: State) -> None:
        """Takes a state."""
        ...

    def decoded(self) -> None:
        """Writes the pending counts: everything that the states so far cover has been decoded, and
        is sealed next."""
        ...


class NewestStates:
    """Implements :class:`HostStates` for a host that gets the newest state of each scope.
    ``write``: appends to the file."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._newest: dict[str, str] = {}

    def records(self, stream: StreamId, count: int) -> None:
        """No-op: nothing is counted."""

    def refused(self, stream: StreamId, count: int) -> None:
        """No-op: nothing is counted."""

    def misfit(self, stream: StreamId, number: int) -> None:
        """No-op: nothing is counted."""

    def state(self, state: State) -> None:
        self._newest[state.scope.key] = state.blob

    def decoded(self) -> None:
        for state in self._newest.items():
            self._write(_line(*state))
        self._newest.clear()


@dataclass(slots=True)
class _Uncounted:
    """A state that was written without counts. ``upto``: for each stream that it covers, the number
    of records received; ``refused``: rejects that were not received as records."""

    upto: dict[StreamId, int]
    refused: int


class EveryState:
    """Implements :class:`HostStates` for a host that gets every state, with its counts. ``write``:
    appends to the file."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._came: dict[StreamId, int] = {}
        self._fresh: set[StreamId] = set()  # with records or rejects since a state that covers them
        self._refused: dict[StreamId, int] = {}
        self._misfits: dict[StreamId, deque[int]] = {}  # numbers of rejected records, not counted
        self._counted: dict[StreamId, int] = {}  # records that counted states cover
        self._uncounted: list[_Uncounted] = []

    def records(self, stream: StreamId, count: int) -> None:
        self._came[stream] = self._came.get(stream, 0) + count
        self._fresh.add(stream)

    def refused(self, stream: StreamId, count: int) -> None:
        self._refused[stream] = self._refused.get(stream, 0) + count
        self._fresh.add(stream)

    def misfit(self, stream: StreamId, number: int) -> None:
        self._misfits.setdefault(stream, deque()).append(number)

    def state(self, state: State) -> None:
        of = state.scope.stream
        streams = self._fresh if of is None else self._fresh & {of}
        self._fresh = self._fresh - streams
        upto = {stream: self._came.get(stream, 0) for stream in streams}
        refused = sum(self._refused.pop(stream, 0) for stream in streams)
        self._write(_line(state.scope.key, state.blob))
        self._uncounted.append(_Uncounted(upto, refused))

    def decoded(self) -> None:
        counts = [self._counts(state) for state in self._uncounted]
        if counts:
            self._write(msgspec.json.encode({"counts": counts}) + b"\n")
        self._uncounted.clear()

    def _counts(self, state: _Uncounted) -> tuple[int, int]:
        """Returns (records that became rows, rejects) since the states before it."""
        taken, rejected = 0, state.refused
        for stream, upto in state.upto.items():
            taken += upto - self._counted.get(stream, 0)
            self._counted[stream] = upto
            misfits = self._misfits.get(stream, ())
            while misfits and misfits[0] < upto:
                misfits.popleft()
                taken, rejected = taken - 1, rejected + 1
        return taken, rejected


def _line(scope: str, blob: str) -> bytes:
    return msgspec.json.encode([scope, blob]) + b"\n"
