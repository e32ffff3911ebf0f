"""Predicts which way the loads of a stream take into their table, and why.

The parts of a load become files of the table (``publish``), a process in a Spark task writes files
from parts and table (``merge``), Spark writes all files of the table again (``rewrite``), or Spark
adds or merges the rows (``spark``: DataFrames, MERGE). Pure, from what the plan knows. A load that
meets more than that (a table that another program changed, rows that are too large for a task)
takes another way; the report counts the way of each. Not here: the files (``tables.files``),
DataFrames (``tables.frame``). Neighbours: ``engine.plan.load_ways`` calls it."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from penstock.model.catalog import DestinationSyncMode
from penstock.model.segments import WriteDisposition
from penstock.model.types import Kind
from penstock.tables.contract import LoadWay
from penstock.tables.files.merge_job import compared_in_tasks


class PlannedWay(NamedTuple):
    """``way`` None: it is only known at the load. ``reason``: a clause."""

    way: LoadWay | None
    reason: str


class PlannedLoads(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what the plan knows about a stream's loads. ``kinds``: of its columns; ``files``: the
    tables are local files (``TableFormat.takes_parts``); ``shaped``: lanes write its parts in the
    table's layout; ``queried``: the result of a query decides the columns; ``replaces``: a load
    replaces all rows of the table."""

    disposition: WriteDisposition
    kinds: Mapping[str, Kind]
    files: bool
    shaped: bool
    queried: bool
    replaces: bool


def planned_way(loads: PlannedLoads) -> PlannedWay:
    """Returns the way of the stream's loads, and why."""
    if loads.shaped:
        return PlannedWay(LoadWay.publish, "the parts have the shape of the table")
    by_spark = LoadWay.rewrite if loads.replaces else LoadWay.spark
    if loads.queried:
        return PlannedWay(None, "the result of the query decides the columns")
    if not loads.files:
        return PlannedWay(by_spark, "the table is not in a folder of this machine")
    given = loads.disposition
    if given.mode is not DestinationSyncMode.append_dedup:
        return PlannedWay(by_spark, "the parts do not have the shape of the table")
    if compared_in_tasks(loads.kinds, given.primary_key, given.cursor, arrival=given.arrival):
        return PlannedWay(LoadWay.merge, "a Spark task compares the keys of parts and table")
    return PlannedWay(by_spark, "only Spark compares keys or cursors of these types")
