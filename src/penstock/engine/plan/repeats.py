"""Says of a planned stream whether its table may keep a row twice since the source sends it again.

Most sources compare their cursor by ``>=``, so that rows at the saved value come again in every
run; no protocol has a word for it. Under append a table keeps each of them. Pure. Neighbours:
``engine.plan.streams`` notes it in the plan, ``engine.reporting.accounting`` labels the run by it.
Not here: rows that no state covers (``Segment.exact``).
"""

from penstock.engine.plan.destination_endpoint import DestinationEndpoint
from penstock.engine.specs.plan import PlannedStream
from penstock.model.catalog import DestinationSyncMode, SyncMode, default_cursor
from penstock.tables.contract import PlannedDestination


def may_repeat(stream: PlannedStream, destination: PlannedDestination) -> bool:
    """Whether a later run may add a row again that the table has. Not under cdc, whose positions
    are exact; nor where rows are compared with those that were sent. A destination connector is at
    least once in any case."""
    configured, disposition = stream.configured, stream.disposition
    return (
        configured.sync_mode is SyncMode.incremental
        and not configured.fills_generation
        and not configured.sends
        and not configured.stream.begins_after_cursor
        and disposition.mode is DestinationSyncMode.append
        and not isinstance(destination, DestinationEndpoint)
    )


def repeats(stream: PlannedStream, destination: PlannedDestination) -> list[str]:
    """Returns the note about such a stream, which names its cursor."""
    if not may_repeat(stream, destination):
        return []
    cursor = ".".join(default_cursor(stream.configured))
    whose = f"its cursor {cursor}" if cursor else "the position that it keeps"
    key = "" if stream.configured.primary_key else ", with a primary_key,"
    return [
        f"stream {stream.id} is at-least-once: its source may send the rows at {whose} again in "
        "each run, and append keeps them all; `destination_sync_mode: append_dedup`"
        f"{key} keeps one row per key"
    ]
