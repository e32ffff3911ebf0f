"""Collects the failures of an epoch, and decides which streams a retry may fix.

A temporary failure (``Error.retry``) belongs to its stream. Where the source names none, or ended
without reporting on other streams, it belongs to every incomplete stream. A stream that failed for
good is not retried. Where the source as a whole failed for good, only streams whose own failure is
temporary are retried. A source that names the failed streams may add a summary at its end: a
failure in the source's own words that names no stream and follows theirs decides nothing.
Neighbours: ``engine.worker.lane_events`` adds failures, ``engine.sync.sync`` begins the next epoch.
"""

from collections.abc import Collection, Iterator

import msgspec

from penstock.errors import PenstockError
from penstock.model.catalog import StreamId
from penstock.model.events import Error


class FailureDecision(msgspec.Struct, frozen=True):
    """The decision. ``errors``: final ones. ``passing``: those that the ``retries``, (stream,
    seconds to wait) each, may fix. All in order of time."""

    errors: list[PenstockError]
    passing: list[PenstockError]
    retries: list[tuple[StreamId, float]]


class _Failure(msgspec.Struct, frozen=True):
    """A failure. ``event``: the source's event; None: Penstock found it. ``own``: in the source's
    own words."""

    error: PenstockError
    event: Error | None
    own: bool


class EpochFailures:
    """The failures of an epoch, in order of time."""

    def __init__(self) -> None:
        self._all: list[_Failure] = []

    def __iter__(self) -> Iterator[PenstockError]:
        return (failure.error for failure in self._all)

    def __len__(self) -> int:
        return len(self._all)

    def found(self, error: PenstockError) -> None:
        """Adds a failure that Penstock found."""
        self._all.append(_Failure(error, None, own=False))

    def add_event(self, event: Error, error: PenstockError, *, own: bool) -> None:
        """Adds a failure that the source reported."""
        self._all.append(_Failure(error, event, own))

    def settle(self, unfinished: Collection[StreamId]) -> FailureDecision:
        """Returns the decision. ``unfinished``: streams that are not complete."""
        events = [f.event for f in self._all if f.event is not None]
        final = {e.stream for e in events if e.retry is None}
        waits: dict[StreamId, float] = {}
        for error in events:
            stream, wait = error.stream, error.retry
            if stream is None or wait is None or stream not in unfinished or stream in final:
                continue
            waits[stream] = max(wait, waits.get(stream, 0.0))
        longest = max((e.retry for e in events if e.retry is not None), default=None)
        if longest is not None and not self._ends_all():
            waits |= {s: longest for s in unfinished if s not in waits and s not in final}
        summaries = self._summaries()
        passing = [f for f in self._all if f in summaries or _passes(f, waits)] if waits else []
        return FailureDecision(
            errors=[f.error for f in self._all if f not in passing],
            passing=[f.error for f in passing],
            retries=sorted(waits.items()),
        )

    def _ends_all(self) -> bool:
        """Whether the source failed for good as a whole, not for some streams only."""
        summaries = self._summaries()
        return any(
            f.event is None or (f.event.stream is None and f.event.retry is None)
            for f in self._all
            if f not in summaries
        )

    def _summaries(self) -> list[_Failure]:
        streams = False
        summaries: list[_Failure] = []
        for failure in self._all:
            event = failure.event
            if event is None:
                continue
            if event.stream is not None:
                streams = True
            elif event.retry is None and failure.own and streams:
                summaries.append(failure)
        return summaries


def _passes(failure: _Failure, waits: Collection[StreamId]) -> bool:
    event = failure.event
    return (
        event is not None
        and event.retry is not None
        and (event.stream is None or event.stream in waits)
    )
