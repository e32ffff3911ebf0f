"""Determines whether a planned stream's table may hold a row twice because the source sends it
again.

Most sources compare their cursor by ``>=``, so every run repeats the rows at the saved value.
Readers of a log (tap-mongodb, tap-postgres) repeat the change at the saved position. No protocol
declares this. Under append a table keeps each copy. Pure. Neighbours: ``engine.plan.streams`` notes
it in the plan, ``engine.reporting.accounting`` labels the run by it. Not here: rows that no state
covers (``Segment.exact``).
"""

from collections.abc import Sequence

from penstock.engine.plan.destination_endpoint import DestinationEndpoint
from penstock.engine.specs.plan import PlannedStream
from penstock.model.catalog import DestinationSyncMode, SyncMode, default_cursor
from penstock.tables.contract import PlannedDestination

_SHOWN = 10
REPEATS = "at-least-once: "  # begins the note


def may_repeat(stream: PlannedStream, destination: PlannedDestination) -> bool:
    """Whether a later run may add a row that the table already has, also while the table is
    refreshed. Not where rows are compared with the rows already sent. Delivery to a destination
    connector is at least once in any case."""
    configured, disposition = stream.configured, stream.disposition
    return (
        configured.sync_mode is not SyncMode.full_refresh
        and (configured.refreshes or not configured.fills_generation)
        and not configured.sends
        and not configured.stream.begins_after_cursor
        and disposition.mode is DestinationSyncMode.append
        and not isinstance(destination, DestinationEndpoint)
    )


def repeats(streams: Sequence[PlannedStream], destination: PlannedDestination) -> list[str]:
    """Returns the note about such streams, with their cursors."""
    found = [s for s in streams if may_repeat(s, destination)]
    if not found:
        return []
    named = ", ".join(map(_with_cursor, found[:_SHOWN])) + (", ..." if len(found) > _SHOWN else "")
    keyed = all(s.configured.primary_key for s in found)
    upsert = "`mode: upsert` keeps" if keyed else "`mode: upsert` with a `primary_key` keeps"
    return [
        f"{REPEATS}{named}: a source may send the rows at its cursor again in each run, and "
        f"append keeps them all; {upsert} one row per key"
    ]


def _with_cursor(stream: PlannedStream) -> str:
    if stream.configured.sync_mode is SyncMode.cdc:
        return f"{stream.id} (its position in the log)"
    cursor = ".".join(default_cursor(stream.configured))
    return f"{stream.id} ({f'cursor {cursor}' if cursor else 'the position that its source keeps'})"
