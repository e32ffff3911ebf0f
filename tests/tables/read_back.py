"""Reads tables as Python values without Spark, whose reading takes longer than what most tests of
tables do. That Spark reads them too: ``test_tables_modes``, ``test_tables_delta_layout``."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from penstock.tables.contract import TableName


def arrow_table(tables: Any, table: str | TableName = "t") -> pa.Table:
    place = tables.location(table if isinstance(table, TableName) else TableName(None, table))
    if tables.name == "delta":
        return DeltaTable(place).to_pyarrow_table()
    files = sorted(Path(place).glob("[!._]*.parquet"))
    return pa.concat_tables(map(pq.read_table, files), promote_options="permissive")


def rows_of(tables: Any, *columns: str, table: str | TableName = "t") -> list[tuple[Any, ...]]:
    """One tuple a row, in the table's order; without names all columns."""
    found = arrow_table(tables, table)
    return [tuple(row.values()) for row in found.select(columns or found.column_names).to_pylist()]
