"""Compares the counters of a ``stream-result`` with the rows sent to a process.

Pure. The four counters are those of the process since its ``start-stream``, and every row is in
``received`` and in one of the other three. Not here: reading a result (``messages``), handling of
failed rows (``writer``, ``failed_rows``). Source: reference §1.3, §5 (host checklist).
"""

from penstock.errors import DestinationError
from penstock.model.catalog import StreamId
from penstock.protocols.syncmaven.messages import Result


def uncounted(result: Result, rows: int) -> int:
    """Returns how many of the sent ``rows`` the destination neither took, skipped nor failed."""
    return rows - result.success - result.skipped - result.failed


def contradiction(result: Result, rows: int, stream: StreamId) -> DestinationError | None:
    """Returns why the counters cannot be true for so many rows: they name more than were sent, or
    more than were received. None: they can be true, even if some rows are in none."""
    counted = rows - uncounted(result, rows)
    if counted <= result.received <= rows:
        return None
    return DestinationError(
        f"{stream}: the destination counts {result.received} rows received,"
        f" {result.success} taken, {result.skipped} left out and {result.failed} failed"
        f" of {rows} that it was sent",
        code="destination.miscounted",
        hint="its counters cannot be trusted, so nothing counts as written",
        stream=str(stream),
    )


def missing(result: Result, rows: int, stream: StreamId) -> DestinationError | None:
    """Returns why rows that are in no counter can neither be skipped nor rejected; None: each is in
    one."""
    left = uncounted(result, rows)
    if left <= 0:
        return None
    return DestinationError(
        f"{stream}: {left} of {rows} rows are missing in the destination's counters",
        code="destination.miscounted",
        hint="`on_failed_rows: accept` and `isolate` apply to rows that it counts as failed; the "
        "result of these is unknown, so they are sent again",
        stream=str(stream),
    )
