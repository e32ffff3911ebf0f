"""Orders the rows of a load by arrival, together with the rows of its table.

Within one lane, the sequence number is that order. Neighbours: ``load_frame`` keeps the newest rows
by it, ``tables.newest`` has the rule."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.model.catalog import DestinationSyncMode
from penstock.model.types import EXTRACTED_AT, SEQ, Field
from penstock.spark.types import quoted
from penstock.tables.contract import TableLoad
from penstock.tables.load_columns import cut_cursor
from penstock.tables.newest import SPARK, lane_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORIGIN = "_penstock_origin"  # 0: a row the table has, 1: a row of the load
SENT = "_penstock_sent"  # the source's text of a cursor that was cut
ARRIVAL = "_penstock_arrival"  # SEQ of the load's rows; of a stream in shards a struct
_OF_LANES = "_penstock_shown", "_penstock_lane"
_BLOCK, _TOP = "_penstock_block", "_penstock_top"  # of rows of a lane; what it had shown before


def with_arrival(parts: "DataFrame", load: TableLoad) -> "DataFrame":
    """Returns the rows of a load's ``parts`` with :data:`ARRIVAL`."""
    from pyspark.sql import functions as F

    if not load.load.shards or load.mode is not DestinationSyncMode.append_dedup:
        return parts.withColumn(ARRIVAL, F.col(SEQ))
    rows = _with_lanes(parts, load)
    return rows.withColumn(ARRIVAL, F.struct(*_OF_LANES, SEQ)).drop(*_OF_LANES)


def _with_lanes(parts: "DataFrame", load: TableLoad) -> "DataFrame":
    """Returns the rows of a stream that is read in shards, with the columns that order rows of
    several lanes: the highest extraction time that the lane has shown up to the row, and the lane.
    Takes rows in blocks, so that no task has all of a lane."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    shown, lane = _OF_LANES
    rows = parts.withColumn(lane, F.expr(lane_sql(load.load.shards, SEQ, SPARK)))
    rows = rows.withColumn(_BLOCK, F.shiftright(SEQ, 16))
    tops = rows.groupBy(lane, _BLOCK).agg(F.max(EXTRACTED_AT).alias("top"))
    before = Window.partitionBy(lane).orderBy(_BLOCK).rowsBetween(Window.unboundedPreceding, -1)
    tops = tops.select(_BLOCK, F.max("top").over(before).alias(_TOP))
    in_block = Window.partitionBy(_BLOCK).orderBy(SEQ)
    in_block = in_block.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    rows = rows.withColumn(shown, F.max(EXTRACTED_AT).over(in_block))
    rows = rows.join(F.broadcast(tops), _BLOCK)
    return rows.withColumn(shown, F.greatest(shown, _TOP)).drop(_BLOCK, _TOP)


def takes_sent(load: TableLoad) -> bool:
    """Returns whether the load's rows have :data:`SENT`, because their table has no change
    lists."""
    return load.policy.metadata is None and cut_cursor(load) is not None


def order_columns(load: TableLoad) -> tuple[str, ...]:
    """Returns the columns of ``read_parts`` that ``newest`` needs in addition to the table's."""
    return (ARRIVAL, SENT) if takes_sent(load) else (ARRIVAL,)


def with_table_order(rows: "DataFrame", load: TableLoad, fields: Sequence[Field]) -> "DataFrame":
    """Returns the table's rows (columns ``fields``) with the columns by which :func:`newest` orders
    them: :data:`ORIGIN` 0, and as :data:`ARRIVAL` the extraction time if they have one. Nothing
    else is known about the order of several rows of a key (in a table that was appended to)."""
    from pyspark.sql import functions as F

    at = load.policy.metadata.extracted_at if load.policy.metadata else None
    arrival = F.lit(None).cast("bigint")
    if at is not None and any(f.name == at for f in fields):
        arrival = F.unix_micros(F.col(quoted(at)).cast("timestamp"))
    if load.load.shards:
        shown, lane = _OF_LANES
        none = F.lit(None).cast("int").alias(lane), F.lit(None).cast("bigint").alias(SEQ)
        arrival = F.struct(F.timestamp_micros(arrival).alias(shown), *none)
    sent = {SENT: F.lit(None).cast("string")} if takes_sent(load) else {}
    return rows.withColumns({ARRIVAL: arrival, ORIGIN: F.lit(0), **sent})
