"""One Spark session for all table tests, and a builder of loads over real part files."""

import datetime as dt
import itertools
import uuid
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.model.catalog import DestinationSyncMode, StreamId
from penstock.model.segments import CursorOrder, Load, PartRef, SegmentId, WriteDisposition
from penstock.model.types import (
    CHANGES,
    EXTRACTED_AT,
    RAW_ID,
    SEQ,
    DataType,
    Field,
    Kind,
    MetadataNames,
    RowSchema,
)
from penstock.tables.contract import (
    Deletes,
    SchemaChangePolicies,
    TableLoad,
    TableName,
    TablePolicy,
)

NAMES = MetadataNames("_raw_id", "_extracted_at", "_meta", "_generation_id")
_CHANGES = pa.list_(pa.struct([(n, pa.string()) for n in ("field", "change", "reason")]))
_SIMPLE = {
    Kind.string: pa.string(),
    Kind.boolean: pa.bool_(),
    Kind.integer: pa.int64(),
    Kind.number: pa.float64(),
    Kind.date: pa.date32(),
    Kind.timestamp: pa.timestamp("us", "UTC"),
    Kind.timestamp_ntz: pa.timestamp("us"),
    Kind.time: pa.string(),
    Kind.time_tz: pa.string(),
    Kind.binary: pa.binary(),
    Kind.json: pa.string(),
}


def arrow(kind: DataType) -> pa.DataType:
    if kind.kind is Kind.decimal:
        return pa.decimal128(kind.precision, kind.scale)
    if kind.kind is Kind.array:
        return pa.list_(arrow(kind.item))
    if kind.kind is Kind.struct:
        return pa.struct([(f.name, arrow(f.type)) for f in kind.fields])
    return _SIMPLE[kind.kind]


def data_type(spec: Any) -> DataType:
    """A type from its kind, from (precision, scale), from [item], or from {name: type}."""
    if isinstance(spec, tuple):
        return DataType(Kind.decimal, *spec)
    if isinstance(spec, list):
        return DataType(Kind.array, item=data_type(spec[0]))
    if isinstance(spec, dict):
        return DataType(Kind.struct, fields=fields(spec))
    return DataType(Kind(spec))


def fields(columns: dict[str, Any]) -> tuple[Field, ...]:
    return tuple(Field(n, n, data_type(spec)) for n, spec in columns.items())


class Loads:
    """Writes parts and gives the loads over them. Extraction times and arrival grow by the row."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = itertools.count(1)

    def part(
        self, schema: RowSchema, rows: list[dict[str, Any]], changes: list[Any] | None = None
    ) -> Path:
        ticks = [next(self.clock) for _ in rows]
        start = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
        columns = {
            f.name: pa.array([r.get(f.name) for r in rows], arrow(f.type)) for f in schema.fields
        }
        columns |= {
            SEQ: pa.array(
                [r.get("@seq", (1 << 40) + t) for r, t in zip(rows, ticks, strict=True)], pa.int64()
            ),
            RAW_ID: pa.array([str(uuid.UUID(int=t)) for t in ticks]),
            EXTRACTED_AT: pa.array(
                [
                    r.get("@at") or start + dt.timedelta(seconds=t)
                    for r, t in zip(rows, ticks, strict=True)
                ],
                pa.timestamp("us", "UTC"),
            ),
            CHANGES: pa.array(changes or [None] * len(rows), _CHANGES),
        }
        path = self.folder / f"part-{next(self.clock):06d}.parquet"
        pq.write_table(pa.table(columns), path)
        return path

    def load(
        self,
        number: int,
        rows: list[dict[str, Any]] | list[list[dict[str, Any]]],
        columns: dict[str, Any] | None = None,
        *,
        table: TableName | str = "t",
        mode: str = "append",
        key: str | None = None,
        replaces: bool = False,
        primary_key: tuple[tuple[str, ...], ...] = (("id",),),
        cursor: tuple[str, ...] = (),
        deleted: str | None = None,
        deletes: str = "hard",
        arrival: bool = False,
        cursor_order: CursorOrder = CursorOrder.by_value,
        metadata: MetadataNames | None = NAMES,
        evolution: dict[str, str] | None = None,
        changes: list[Any] | None = None,
    ) -> TableLoad:
        schema = RowSchema(fields(columns or {"id": "integer", "v": "string"}), 1)
        groups = rows if rows and isinstance(rows[0], list) else [rows] if rows else []
        paths = [self.part(schema, group, changes) for group in groups]  # type: ignore[arg-type]
        name = TableName(None, table) if isinstance(table, str) else table
        refs = tuple(
            PartRef(p.name, len(g), 1, p.stat().st_size, 0)
            for p, g in zip(paths, groups, strict=True)
        )
        load = Load(
            key=key or f"birth/{name.name}",
            number=number,
            stream=StreamId(name.namespace, name.name),
            disposition=WriteDisposition(
                mode=DestinationSyncMode(mode),
                primary_key=primary_key,
                cursor=cursor,
                deleted_column=deleted,
                sync_id=7,
                arrival=arrival,
                cursor_order=cursor_order,
            ),
            segments=(SegmentId(1, number),),
            parts=refs,
            schema_version=1,
            generation=3,
            replaces=replaces,
        )
        return TableLoad(
            load=load,
            table=name,
            parts=tuple(map(str, paths)),
            schema=schema,
            policy=TablePolicy(
                metadata=metadata,
                deletes=Deletes(deletes),
                evolution=msgspec.convert(evolution or {}, SchemaChangePolicies),
            ),
        )


@pytest.fixture
def loads(tmp_path: Path) -> Loads:
    folder = tmp_path / "parts [1] +%"
    folder.mkdir()
    return Loads(folder)


@pytest.fixture
def spark(shared_spark: Any) -> Any:
    return shared_spark
