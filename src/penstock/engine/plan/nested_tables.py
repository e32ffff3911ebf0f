"""Finds planned tables that lie inside one another, and tables that are rewritten while readers use
them.

A new table above or below another one is a problem; an existing table is only noted, and continues.
Pure except for what the destination finds out (``PlannedDestination.nested``). Neighbours:
``engine.plan.streams`` and ``engine.plan.replan`` call; ``tables.nested_folders`` looks at folders.
"""

from collections.abc import Sequence

from penstock.engine.specs.plan import PlannedStream
from penstock.model.catalog import DestinationSyncMode
from penstock.tables.contract import PlannedDestination

_SHOWN = 10


def nested_tables(
    streams: Sequence[PlannedStream], destination: PlannedDestination
) -> tuple[list[str], list[str]]:
    """Returns (problems, notes), one sentence each: new tables that would lie inside another
    table's folder or around it, and existing tables that do."""
    problems: list[str] = []
    notes: list[str] = []
    found = destination.nested([stream.table for stream in streams])
    for stream in streams:
        nested = found.get(stream.table)
        if nested is None:
            continue
        place = destination.location(stream.table)
        if nested.new:
            problems.append(
                f"stream {stream.id}: its new table {place} would "
                f"{nested.relation('lie', 'have')}: {nested.danger}; give the destination another "
                "path, or (to a pipeline that has not run yet) a destination.namespace or "
                "destination.prefix"
            )
        else:
            outer = nested.other if nested.outer else place
            notes.append(
                f"stream {stream.id}: its table {place} {nested.relation('lies', 'has')}: "
                f"{nested.danger}, so run no VACUUM on {outer}; to part them, give one of the two "
                "pipelines another destination path and run it once with --recreate"
            )
    return problems, notes


def rewritten_tables(
    streams: Sequence[PlannedStream], destination: PlannedDestination
) -> list[str]:
    """Returns the note about tables whose loads replace files that readers may be using."""
    dedup = DestinationSyncMode.append_dedup
    found = [str(s.id) for s in streams if s.replaces_table or s.disposition.mode is dedup]
    if destination.rewrite_note is None or not found:
        return []
    named = ", ".join(found[:_SHOWN]) + (", ..." if len(found) > _SHOWN else "")
    return [f"{named}: {destination.rewrite_note}"]
