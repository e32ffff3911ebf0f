"""Determines how the loads of each planned stream go into its table.

Neighbours: ``tables.load_way`` decides, ``engine.inspect.plan_check`` shows it,
``engine.plan.lane_jobs`` has lanes write parts in the shape of their table."""

from penstock.engine.plan.prepare import Prepared
from penstock.engine.specs.plan import PlannedStream
from penstock.model.catalog import DestinationSyncMode
from penstock.model.table_columns import metadata_fields, stored
from penstock.spark.session import choose_master, is_cluster
from penstock.tables.files.merge_job import compared_in_tasks
from penstock.tables.load_way import PlannedLoads, PlannedWay, planned_way


def shaped(prepared: Prepared, stream: PlannedStream) -> bool:
    """Whether a stream's lanes write its parts in the shape of its table: rows only need to be
    appended, and the table is on this machine."""
    rewritten = stream.queried or stream.disposition.mode is DestinationSyncMode.append_dedup
    named = prepared.rules.metadata is not None
    if rewritten or not named or not prepared.destination.takes_parts:
        return False
    return not on_cluster(prepared)


def shaped_with_keys(prepared: Prepared, stream: PlannedStream) -> bool:
    """Whether the lanes of a stream with keys write its parts in this shape too: no row was read
    before, or the load replaces all rows, so that the parts most likely become files of the table
    unchanged. A Spark task proves that no key comes twice; else it merges them."""
    given, names = stream.disposition, prepared.rules.metadata
    known = stream.id in prepared.rules.schemas and not stream.replaces_table
    if given.mode is not DestinationSyncMode.append_dedup or given.history:
        return False
    if names is None or known:
        return False
    if stream.queried or not prepared.destination.takes_parts or on_cluster(prepared):
        return False
    fields = (*stream.schema.fields, *metadata_fields(names))
    kinds = {f.name: stored(f.type).kind for f in fields}
    if given.deleted_column in kinds:
        return False
    return compared_in_tasks(kinds, given.primary_key, given.cursor, arrival=given.arrival)


def on_cluster(prepared: Prepared) -> bool:
    """Whether Spark's tasks may run on other machines."""
    return is_cluster(choose_master(prepared.pipeline.spark.master, 1, 1))


def load_way(prepared: Prepared, stream: PlannedStream) -> PlannedWay | None:
    """Returns how the stream's loads go into its table; None: a destination connector gets its
    rows."""
    if not prepared.destination.has_tables:
        return None
    names = prepared.rules.metadata
    fields = (*stream.schema.fields, *(metadata_fields(names) if names else ()))
    return planned_way(
        PlannedLoads(
            disposition=stream.disposition,
            kinds={f.name: stored(f.type).kind for f in fields},
            files=prepared.destination.takes_parts,
            shaped=shaped(prepared, stream),
            queried=stream.queried,
            replaces=stream.replaces_table,
        )
    )


def host_notes(prepared: Prepared) -> list[str]:
    """Returns the note about tables that another host may change, where another host may continue
    the pipeline: its store is Postgres, or Spark is a cluster."""
    note = prepared.destination.place.host_note
    elsewhere = on_cluster(prepared) or prepared.pipeline.state.backend != "sqlite"
    return [note] if note is not None and elsewhere else []
