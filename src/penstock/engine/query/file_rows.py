"""Stages the rows of a model that is CSV or JSON files: typed rows, and broken lines.

Broken lines become rejects in the lane (``engine.worker.staged_source``). A missing row may be one
of them, so a mirror removes nothing while there are any. Not here: how lines are decoded
(``spark.text_files``). Neighbour: ``query_reader`` stages all models.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.engine.query.model_diff import ModelDiff
from penstock.engine.specs.lane import LaneJob
from penstock.model.catalog import StreamId
from penstock.model.staged_rows import BROKEN, GIVEN, LINE, MISFITS, StagedRows
from penstock.model.type_words import type_text
from penstock.model.types import DataType, Field, Kind
from penstock.protocols.json_schema.exact_types import exact_type
from penstock.spark.model import Model, write
from penstock.spark.text_files import read_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SHOWN = 10


def stage_files(
    spark: "SparkSession", model: Model, diff: ModelDiff, lane: LaneJob, folder: Path, at: int
) -> StagedRows:
    """Writes the rows of files into ``folder``, or their differences into that of the snapshots.
    Raises ``ConfigError``, ``SourceError``."""
    assert model.text is not None
    stream = lane.streams[0].configured
    planned = {
        name: exact_type(schema)
        for name, schema in stream.stream.json_schema.get("properties", {}).items()
    }
    rows, fields, headed = read_files(spark, model, planned)
    if not headed and not stream.sends:
        diff.refuse_unheaded(stream, model.path)
    if lane.limit is not None and not stream.sends:
        rows = rows.limit(lane.limit)
    files = write(rows, folder, model)
    staged = spark.read.parquet(*files) if files else rows.limit(0)
    broken, lossy = staged.selectExpr(f"count({BROKEN})", f"count({GIVEN})").collect()[0]
    misfits = _misfits(staged) if lossy else {}
    diff.notes += _advice(stream.id, fields, misfits)
    given = ("fields" if model.text.kind == "csv" else "record") if lossy else ""
    if stream.sends:
        diff.clean(lane)
        carried = (GIVEN,) if given else ()
        good = _named(staged.filter(f"{BROKEN} IS NULL"), fields, carried)
        found = diff.stage(lane, good, fields, at, carried=carried, removes=not broken)
        return msgspec.structs.replace(found, given=given, broken=files if broken else ())
    if lane.dry and files:
        good = staged.filter(f"{BROKEN} IS NULL").drop(GIVEN, MISFITS, BROKEN, LINE)
        diff.notes.append(f"{stream.id}: {good.count():,} rows would be sent")
        diff.show(stream.id, good, [f.source for f in fields])
    return StagedRows(
        files=files,
        columns=tuple(f.source for f in fields),
        last=None if lane.dry else diff.forgotten(stream),
        at=at,
        given=given,
        broken=files if broken else (),
    )


def _misfits(staged: "DataFrame") -> dict[int, int]:
    """Returns, for each column by its number, how many of its values lost something."""
    from pyspark.sql import functions as F

    numbers = staged.filter(f"{MISFITS} IS NOT NULL").select(F.explode(MISFITS).alias("number"))
    counted = numbers.groupBy("number").count().collect()
    return {row["number"]: row["count"] for row in counted}


def _named(staged: "DataFrame", fields: Sequence[Field], carried: Sequence[str]) -> "DataFrame":
    """Returns the rows under the names of their columns, and the columns ``carried``."""
    from pyspark.sql import functions as F

    named = [F.col(f"c{n}").alias(f.source) for n, f in enumerate(fields)]
    return staged.select(*named, *carried)


def _advice(stream: StreamId, fields: Sequence[Field], misfits: dict[int, int]) -> list[str]:
    notes: list[str] = []
    for number, count in sorted(misfits.items())[:_SHOWN]:
        field = fields[number]
        if field.type.kind in (Kind.string, Kind.json):
            continue
        wider = DataType(Kind.json if field.type.kind in (Kind.array, Kind.struct) else Kind.string)
        notes.append(
            f"{stream}: values of {field.source} do not fit {type_text(field.type)}, the type of "
            f"the column ({count:,}): `types: {{ {field.source}: {wider.kind.value} }}` for the "
            "stream keeps them (a table that exists gets the new type by `penstock run --recreate`)"
        )
    return notes
