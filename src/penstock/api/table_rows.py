"""Reads the first rows of a table that a run wrote, without Spark.

Only tables in folders of this machine. Not here: a stream's preview (``engine.inspect.preview``).
"""

from pathlib import Path
from typing import Any
from urllib.parse import unquote

from penstock.codec.exact_json import exact_text
from penstock.errors import ConfigError, PenstockError


def first_rows(format: str, location: str, limit: int) -> dict[str, Any]:
    """Returns ``{"columns": [names], "rows": [lists of texts]}`` of the table at ``location``.
    Raises ``ConfigError`` (``table.unreadable``)."""
    import pyarrow.parquet as pq

    place = Path(location.removeprefix("file://"))
    columns: list[str] = []
    rows: list[list[str | None]] = []
    try:
        for file in _files(format, place):
            opened = pq.ParquetFile(file)
            columns = columns or opened.schema_arrow.names
            for batch in opened.iter_batches(batch_size=limit):
                found = batch.slice(0, limit - len(rows)).to_pylist()
                rows += [[cell_text(row.get(name)) for name in columns] for row in found]
                break
            if len(rows) >= limit:
                break
    except (OSError, ValueError, PenstockError) as e:
        raise ConfigError(
            f"the table {location} cannot be read here: {e}",
            code="table.unreadable",
            where=location,
            hint="read it with the program that you use for tables",
        ) from None
    return {"columns": columns, "rows": rows}


def _files(format: str, place: Path) -> list[str]:
    if format == "delta":
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        from penstock.tables.delta.files import is_misread

        if is_misread(place):
            raise ValueError("deltalake reads its name as a URL")
        try:
            return [unquote(uri) for uri in DeltaTable(str(place)).file_uris()]
        except DeltaError as e:
            raise ValueError(str(e)) from None
    if format == "parquet":
        from penstock.api.reading import table_files

        return table_files(place)
    raise ValueError(f"{format} tables are not shown")


def cell_text(value: Any) -> str | None:
    """Returns a value as text, one of several values as JSON."""
    if isinstance(value, dict | list):
        try:
            return exact_text(value).decode()[:500]
        except (TypeError, ValueError):  # a map whose keys are no texts
            pass
    return None if value is None else str(value)[:500]
