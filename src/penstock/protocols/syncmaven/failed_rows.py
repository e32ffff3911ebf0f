"""Finds the rows that a destination fails, where its counters give only their number.

The rows of a checkpoint are sent again, in halves and halves of these, each with its own process
and result, until a row fails alone: that one is a reject. On the way, rows that the destination had
taken are sent again, so this needs a destination that merges rows; their number is counted. Not
here: when this is done (``writer``). Source: reference §6.
"""

from collections.abc import Callable, Generator
from contextlib import closing

import msgspec

from penstock.errors import DestinationError
from penstock.model.catalog import StreamId
from penstock.model.events import LogEvent, SkippedItems
from penstock.protocols.syncmaven.counters import contradiction, missing
from penstock.protocols.syncmaven.messages import HaltMessage
from penstock.protocols.syncmaven.outgoing import StreamEncoder, bodies_of, row_of
from penstock.protocols.syncmaven.sessions import SessionLines, Sessions
from penstock.protocols.writing import Answer

MOST_PROCESSES = 1000  # for one checkpoint

Found = Generator[Answer, None, DestinationError | HaltMessage | None]


class FailedRows:
    """``sessions``: makes the sessions that send rows of the stream."""

    def __init__(
        self, encoder: StreamEncoder, stream: StreamId, sessions: Callable[[], Sessions]
    ) -> None:
        self._encoder, self._stream, self._make = encoder, stream, sessions
        self._processes = 0

    def find(self, lines: list[bytes]) -> Found:
        """Sends the rows again and yields a ``Reject`` for each that fails alone. The value: why it
        could not go on; None: every other row was taken or skipped, and skipped rows are
        counted."""
        rows = [line for block in lines for line in bodies_of(block)]
        yield LogEvent("INFO", f"{self._stream}: looking for the rows that failed, of {len(rows)}")
        return (yield from self._halves(rows))

    def _halves(self, rows: list[bytes]) -> Found:
        if len(rows) == 1:
            return (yield from self._sent(rows))
        middle = len(rows) // 2
        for half in (rows[:middle], rows[middle:]):
            fault = yield from self._sent(half)
            if fault is not None:
                return fault
        return None

    def _sent(self, rows: list[bytes]) -> Found:
        self._processes += 1
        if self._processes > MOST_PROCESSES:
            return DestinationError(
                f"{self._stream}: too many rows fail to find each of them",
                code="destination.rows_failed",
                hint="a smaller checkpoint_every makes the search shorter; its log may give the "
                "reason",
                stream=str(self._stream),
            )
        with closing(self._make()) as sessions:
            most = self._encoder.most_rows or len(rows)
            for at in range(0, len(rows), most):
                some = rows[at : at + most]
                yield from sessions.send([SessionLines(0, b"".join(some), len(some))])
            yield from sessions.end()
        yield SkippedItems("rows_sent_again_to_find_failed_ones", len(rows))
        if sessions.fault is not None:
            return sessions.fault
        ((_, _, outcome),) = sessions.results
        fault = contradiction(outcome, len(rows), self._stream)
        if fault is not None:
            return fault
        if outcome.success + outcome.skipped == len(rows):
            if outcome.skipped:
                yield SkippedItems("skipped_by_destination", outcome.skipped, self._stream)
            return None
        if len(rows) > 1:
            return (yield from self._halves(rows))
        fault = missing(outcome, 1, self._stream)
        if fault is not None:
            return fault
        body = row_of(rows[0])
        reason = "the destination failed it when it was sent alone"
        yield self._encoder.reject(msgspec.json.decode(body), reason, body)
        return None
