"""Describes new Parquet files, with Delta's statistics, from their footers.

Imports no Spark, since the tasks that write files use it. Neighbour: ``delta.files`` puts them into
the log."""

from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from penstock.tables.files.merge_job import NewFile

_STATISTICS_COLUMNS = 32  # Delta's default
_TEXT_LENGTH = 32  # of a text in the statistics
_GREATEST = "\U0010ffff"
_OLDEST_YEAR, _NEWEST_YEAR = 1900, 9998  # between which all readers read dates alike


def described_file(file: Path) -> NewFile:
    """Describes a file for the commit that names it, by its footer."""
    about = file.stat()
    modified = int(about.st_mtime * 1000)
    return NewFile(file.name, about.st_size, modified, statistics(file))


def statistics(file: Path) -> dict[str, Any]:
    """Returns Delta's statistics of a Parquet file from its footer: the row count and, for the
    first columns, null count, minimum and maximum if these are integers, texts, dates or instants.
    A bound may be wider than the values, never narrower; an unknown one is left out."""
    import pyarrow.parquet as pq

    footer = pq.read_metadata(file)
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    leaf = 0
    for field in footer.schema.to_arrow_schema():
        width = _leaves(field.type)
        nested, index = width != 1 or field.type.num_fields > 0, leaf
        leaf += width
        if leaf > _STATISTICS_COLUMNS:
            break
        if nested:
            continue
        found = [
            footer.row_group(group).column(index).statistics
            for group in range(footer.num_row_groups)
        ]
        if not all(s is not None and s.has_null_count for s in found):
            continue
        nulls[field.name] = sum(s.null_count for s in found)
        valued = [s for s in found if s.num_values]
        if valued and all(s.has_min_max for s in valued):
            with suppress(OverflowError, ValueError):
                low, high = min(s.min for s in valued), max(s.max for s in valued)
                bounds = _lower(low), _upper(high)
                if None not in bounds:
                    least[field.name], greatest[field.name] = bounds
    return {
        "numRecords": footer.num_rows,
        "minValues": least,
        "maxValues": greatest,
        "nullCount": nulls,
    }


def _leaves(kind: Any) -> int:
    inner = [kind.field(index).type for index in range(kind.num_fields)]
    return sum(map(_leaves, inner)) if inner else 1


def _lower(value: Any) -> Any:
    if isinstance(value, str):
        return value[:_TEXT_LENGTH]
    return _bound(value)


def _upper(value: Any) -> Any:
    if isinstance(value, str):
        if len(value) <= _TEXT_LENGTH:
            return value
        # a text that continues with the greatest character may be above any bound of this length
        return None if value[_TEXT_LENGTH] == _GREATEST else value[:_TEXT_LENGTH] + _GREATEST
    if isinstance(value, datetime):
        value += timedelta(microseconds=-value.microsecond % 1000)
    return _bound(value)


def _bound(value: Any) -> Any:
    """Returns a value in Delta's JSON, cut to milliseconds; None for one that is left out."""
    if isinstance(value, date) and not _OLDEST_YEAR <= value.year <= _NEWEST_YEAR:
        return None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return None
        text = value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds")
        return f"{text}Z"
    if isinstance(value, date):
        return value.isoformat()
    return value if isinstance(value, int) and not isinstance(value, bool) else None
