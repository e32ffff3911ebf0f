"""Formats the doubts that errors in a source's log raise about the end of its streams, for every
protocol.

Pure. Neighbours: ``airbyte.logged_errors`` and ``rapidbyte.source_stream`` count the errors;
``engine.worker.lane_events`` takes the doubts. Not here: masking (``masked_events``).
"""

from collections.abc import Iterable

from penstock.model.catalog import StreamId
from penstock.model.events import DoubtfulEnd

_SHOWN = 300  # characters of an error


def counted_errors(count: int, first: str) -> str:
    """Returns a clause with the number of errors that a source logged, and the first line of the
    first one."""
    line = next(iter(first.strip().splitlines()), "")
    shown = line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."
    if count == 1:
        return f"the source logged an error ({shown})"
    return f"the source logged {count:,} errors (the first: {shown})"


def after_errors(streams: Iterable[StreamId], count: int, first: str) -> DoubtfulEnd:
    """Returns the doubt about streams that were reported complete after errors were logged."""
    errors = counted_errors(count, first)
    reason = f"{errors} before it reported COMPLETE: rows may be missing"
    return DoubtfulEnd(tuple(streams), reason, complete=True)
